"""DeepSpeed: the JSON configuration, and a script that starts the user's training program with it.

DeepSpeed asserts train_batch_size = micro batch * accumulation * data-parallel ranks, so all three are written.
Bucket sizes are elements; the defaults of 0.19 are written out because they cost about 1 GB each in 16 bits.
"""

import json
from collections.abc import Iterator
from typing import Any

from planner.export.scripts import Program, header, torchrun_script
from planner.export.target import Launch, Refusal, Target, unordered_groups

NAME, VERSION = "deepspeed", "DeepSpeed 0.19"
CONFIG_FILE = "deepspeed.json"
_BUCKET_ELEMENTS = (
    500_000_000  # DeepSpeed's default of reduce_bucket_size and allgather_bucket_size
)


def config(launch: Launch) -> dict[str, Any]:
    """Return the configuration as plain values."""
    strategy, precision = launch.strategy, launch.training.precision
    values: dict[str, Any] = {
        "shardplan": header(launch, VERSION),
        "train_batch_size": strategy.global_batch,
        "train_micro_batch_size_per_gpu": strategy.micro_batch,
        "gradient_accumulation_steps": strategy.microbatches,
        "zero_optimization": _zero(launch),
    }
    if precision in ("bf16", "fp16"):
        values[precision] = {"enabled": True}
    if strategy.pp > 1:
        values["pipeline"] = {
            "stages": strategy.pp,
            "partition": "uniform",
            "activation_checkpoint_interval": int(launch.recomputes_all),
        }
    if strategy.tp > 1:
        values["tensor_parallel"] = {"autotp_size": strategy.tp}
    if launch.recomputes_all:
        values["activation_checkpointing"] = {
            "number_checkpoints": len(launch.model.layers),
            "cpu_checkpointing": strategy.offload_activations > 0,
        }
    return values


def _zero(launch: Launch) -> dict[str, Any]:
    strategy = launch.strategy
    values: dict[str, Any] = {"stage": strategy.zero}
    if strategy.zero:
        values |= {
            "overlap_comm": True,
            "contiguous_gradients": True,
            "reduce_scatter": True,
            "reduce_bucket_size": _BUCKET_ELEMENTS,
            "allgather_bucket_size": _BUCKET_ELEMENTS,
        }
    if strategy.zero == 3:
        values |= {
            "sub_group_size": 10**9,
            "stage3_prefetch_bucket_size": 5 * 10**7,
            "stage3_param_persistence_threshold": 10**5,
            "stage3_max_live_parameters": 10**9,
            "stage3_max_reuse_distance": 10**9,
            "stage3_gather_16bit_weights_on_model_save": True,
        }
    if strategy.offload_optimizer:
        values["offload_optimizer"] = {
            "device": "cpu",
            "pin_memory": True,
            "ratio": strategy.offload_optimizer,
        }
    return values


def refusals(launch: Launch) -> Iterator[Refusal]:
    """Yield combinations that DeepSpeed's engines assert against."""
    strategy = launch.strategy
    offloaded = strategy.offload_activations
    rules = (
        (
            "zero",
            strategy.pp > 1 and strategy.zero > 1,
            "the pipeline engine needs zero < 2",
            (0, 1),
        ),
        (
            "zero",
            strategy.tp > 1 and strategy.zero > 2,
            "tensor parallelism needs zero < 3",
            (1, 2),
        ),
        (
            "tp",
            strategy.tp > 1 and strategy.pp > 1,
            "autotp and the pipeline engine exclude each other",
            1,
        ),
        ("schedule", strategy.pp > 1 and strategy.schedule != "1f1b", "pipelines run 1F1B", "1f1b"),
        (
            "recompute",
            strategy.recompute == "selective",
            "layers recompute fully or not",
            ("none", "full"),
        ),
        (
            "offload_optimizer",
            strategy.offload_optimizer > 0 and not strategy.zero,
            "offload needs zero >= 1",
            0,
        ),
        (
            "offload_optimizer",
            0 < strategy.offload_optimizer < 1 and strategy.zero < 3,
            "a share of the optimizer is offloaded by zero 3 only",
            (0, 1),
        ),
        (
            "offload_activations",
            offloaded > 0 and not (launch.recomputes_all and offloaded == 1),
            "all inputs of fully recomputed layers are offloaded or none",
            (0, 1),
        ),
    )
    for field, broken, rule, nearest in rules:
        if broken:
            yield Refusal(field=field, rule=rule, value=getattr(strategy, field), nearest=nearest)
    if launch.training.precision == "fp8":
        yield Refusal(field="training.precision", rule="fp8 is not offered", value="fp8")
    yield from unordered_groups(launch)


def files(launch: Launch) -> dict[str, str]:
    """Return configuration and launch script by name."""
    notes = [
        *header(launch, VERSION),
        "# the program passes --deepspeed_config to deepspeed.initialize",
    ]
    if launch.strategy.pp > 1:
        notes.append(
            f'# its PipelineModule takes num_stages={launch.strategy.pp}, partition_method="uniform"'
        )
    if launch.recomputes_all:
        notes.append(
            "# its layers call deepspeed.checkpointing.checkpoint, or gradient_checkpointing_enable()"
        )
    program = Program(
        command=f'"$TRAIN_SCRIPT" --deepspeed --deepspeed_config "$here/{CONFIG_FILE}" "$@"',
        required={"TRAIN_SCRIPT": "training program"},
        environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    )
    return {
        CONFIG_FILE: json.dumps(config(launch), indent=2) + "\n",
        "run.sh": torchrun_script(launch, notes, program),
    }


TARGET = Target(
    name=NAME,
    version=VERSION,
    exported=frozenset(
        {
            "dp",
            "tp",
            "pp",
            "micro_batch",
            "microbatches",
            "schedule",
            "zero",
            "recompute",
            "offload_optimizer",
            "offload_activations",
            "placement.first_layer",
            "placement.device_groups",
        }
    ),
    inexpressible={
        "cp": "there is no context parallelism (Ulysses splits heads)",
        "ep": "expert groups are made in the model's code (MoE layer, ep_size)",
        "etp": "expert groups are made in the model's code",
        "vpp": "a pipeline rank holds one stage",
        "zero_group": "state is sharded over all data-parallel ranks",
        "sequence_parallel": "tensor parallelism does not split norms and residuals",
        "placement_order": "ranks are ordered tp, dp, pp from the nearest outwards",
        "placement.layers": "stages are cut uniformly or by parameters, not as asked",
        "placement.recomputed": "activation checkpointing is one choice for all stages",
    },
    refuse=refusals,
    files=files,
)
