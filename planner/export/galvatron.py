"""Galvatron 2.4: the JSON that its runtime reads (``galvatron_config_path``), layer by layer.

The only target here that carries recomputation of single layers; its sharding is DDP, ZeRO-2 or ZeRO-3.
"""

import json
from collections.abc import Iterator
from typing import Any

from planner.export.scripts import Program, header, torchrun_script
from planner.export.target import Launch, Refusal, Target, unordered_groups

NAME, VERSION = "galvatron", "Galvatron 2.4"
CONFIG_FILE = "galvatron.json"
_DEFAULT_SHARDING = {0: "ddp", 2: "zero2", 3: "zero2"}
_PIPELINES = {"1f1b": "pipedream_flush", "gpipe": "gpipe"}


def config(launch: Launch) -> dict[str, Any]:
    """Return the configuration as plain values."""
    strategy, layers = launch.strategy, len(launch.model.layers)
    full_sharding = int(strategy.zero == 3)
    return {
        "shardplan": header(launch, VERSION),
        "pp_deg": strategy.pp,
        "tp_sizes_enc": _each(layers, strategy.tp),
        "tp_consecutive_flags": _each(layers, 1),
        "dp_types_enc": _each(layers, full_sharding),
        "use_sp": _each(layers, 0),
        "checkpoint": ",".join(map(str, _checkpoints(launch))),
        "global_bsz": strategy.global_batch,
        "chunks": strategy.microbatches,
        "pp_division": ",".join(map(str, launch.placement.layer_counts())),
        "pipeline_type": _PIPELINES[strategy.schedule],
        "default_dp_type": _DEFAULT_SHARDING[strategy.zero],
        "vtp": strategy.tp,
        "vsp": 0,
        "embed_sdp": full_sharding,
    }


def _each(layers: int, value: int) -> str:
    return ",".join([str(value)] * layers)


def _checkpoints(launch: Launch) -> list[int]:
    """Return for each layer whether it recomputes: the first ones of each stage."""
    pairs = zip(launch.placement.chunks, launch.recomputed, strict=True)
    return [int(index < count) for chunk, count in pairs for index in range(chunk.layers)]


def refusals(launch: Launch) -> Iterator[Refusal]:
    """Yield values that the JSON has no word for."""
    strategy = launch.strategy
    rules = (
        ("zero", strategy.zero == 1, "data parallelism is DDP, ZeRO-2 or ZeRO-3", (0, 2, 3)),
        (
            "schedule",
            strategy.pp > 1 and strategy.schedule not in _PIPELINES,
            "pipelines run GPipe or 1F1B",
            tuple(_PIPELINES),
        ),
        (
            "recompute",
            strategy.recompute == "selective",
            "layers recompute fully or not",
            ("none", "full"),
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
    strategy, training = launch.strategy, launch.training
    precision = training.precision if training.precision in ("bf16", "fp16") else "fp32"
    words = [
        '"$TRAIN_SCRIPT"',
        f'--galvatron_config_path "$here/{CONFIG_FILE}"',
        f"--global_train_batch_size {strategy.global_batch} --chunks {strategy.microbatches}",
        f"--mixed_precision {precision} --seq-length {training.sequence}",
        *(["--sequence-parallel"] if strategy.sequence_parallel else []),
        '"$@"',
    ]
    program = Program(
        command=" ".join(words),
        required={"TRAIN_SCRIPT": f"train_dist.py of the model in {VERSION}"},
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    )
    return {
        CONFIG_FILE: json.dumps(config(launch), indent=2) + "\n",
        "run.sh": torchrun_script(launch, header(launch, VERSION), program),
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
            "sequence_parallel",
            "recompute",
            "placement.first_layer",
            "placement.layers",
            "placement.recomputed",
            "placement.device_groups",
        }
    ),
    inexpressible={
        "cp": "this release has no context parallelism",
        "ep": "this release has no expert parallelism",
        "etp": "this release has no expert parallelism",
        "vpp": "a pipeline rank holds one stage",
        "zero_group": "state is sharded over all data-parallel ranks",
        "offload_optimizer": "no option offloads the optimizer",
        "offload_activations": "no option offloads activations",
        "placement_order": "ranks are ordered tp, dp, pp from the nearest outwards",
    },
    refuse=refusals,
    files=files,
)
