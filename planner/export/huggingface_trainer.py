"""Hugging Face Trainer: TrainingArguments as YAML (``HfArgumentParser.parse_yaml_file``) and a launch script.

The Trainer runs on accelerate, so what accelerate's FSDP2 cannot express the Trainer cannot either; degrees that
TrainingArguments has no field for are handed over in accelerate's own configuration file.
"""

from collections.abc import Iterator
from typing import Any

from costmodel.load import write_yaml
from planner.export import accelerate
from planner.export.scripts import header
from planner.export.target import Launch, Refusal, Target

NAME, VERSION = "huggingface-trainer", "transformers 5.24"
ARGUMENTS_FILE = "training_arguments.yaml"


def arguments(launch: Launch) -> dict[str, Any]:
    """Return the TrainingArguments that the plan fixes; the rest is the user's."""
    strategy = launch.strategy
    values: dict[str, Any] = {
        "output_dir": "output",
        "per_device_train_batch_size": strategy.micro_batch,
        "gradient_accumulation_steps": strategy.microbatches,
        "bf16": launch.training.precision in ("bf16", "fp8"),
        "fp16": launch.training.precision == "fp16",
    }
    if accelerate.sharded(launch):
        section = accelerate.fsdp_config(launch)
        values["fsdp"] = True
        values["fsdp_config"] = {key.removeprefix("fsdp_"): item for key, item in section.items()}
    elif launch.recomputes_all:
        values["gradient_checkpointing"] = True
        values["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    return values


def refusals(launch: Launch) -> Iterator[Refusal]:
    """Yield what accelerate refuses, but for recomputation, which the Trainer switches without FSDP too."""
    for refusal in accelerate.refusals(launch):
        if refusal.field != "recompute" or launch.strategy.recompute == "selective":
            yield refusal


def files(launch: Launch) -> dict[str, str]:
    """Return arguments, accelerate's configuration and launch script by name."""
    head = header(launch, VERSION)
    usage = f"# the program reads {ARGUMENTS_FILE} with HfArgumentParser.parse_yaml_file"
    return {
        ARGUMENTS_FILE: "\n".join(head) + "\n" + write_yaml(arguments(launch)),
        accelerate.CONFIG_FILE: "\n".join(head) + "\n" + write_yaml(accelerate.config(launch)),
        "run.sh": accelerate.launch_script(launch, [*head, usage], f'"$here/{ARGUMENTS_FILE}"'),
    }


TARGET = Target(
    name=NAME,
    version=VERSION,
    exported=accelerate.EXPORTED,
    inexpressible=accelerate.INEXPRESSIBLE,
    refuse=refusals,
    files=files,
)
