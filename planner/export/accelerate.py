"""accelerate 1.15: the YAML that ``accelerate launch`` reads, with FSDP2 and its parallelism section."""

from collections.abc import Iterator
from typing import Any

from costmodel.load import write_yaml
from planner.export.scripts import PORT, Program, header, script
from planner.export.target import Launch, Refusal, Target

NAME, VERSION = "accelerate", "accelerate 1.15"
CONFIG_FILE = "accelerate.yaml"


def config(launch: Launch) -> dict[str, Any]:
    """Return the configuration as plain values."""
    strategy = launch.strategy
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": "FSDP" if sharded(launch) else "MULTI_GPU",
        "machine_rank": 0,
        "main_process_port": PORT,
        "main_training_function": "main",
        "mixed_precision": precision(launch),
        "num_machines": launch.nodes,
        "num_processes": strategy.gpus,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }
    if sharded(launch):
        values["fsdp_config"] = fsdp_config(launch)
        if strategy.tp * strategy.cp > 1 or replicas(launch) > 1:
            values["parallelism_config"] = _parallelism(launch)
    return values


def sharded(launch: Launch) -> bool:
    """Return whether FSDP2 wraps the model; plain data parallelism is DDP."""
    return launch.strategy.zero > 0 or launch.strategy.tp > 1 or launch.strategy.cp > 1


def replicas(launch: Launch) -> int:
    """Return how many copies of the sharded model there are."""
    return launch.strategy.dp * launch.strategy.cp // launch.strategy.sharding_ranks


def precision(launch: Launch) -> str:
    """Return accelerate's word for the precision."""
    asked = launch.training.precision
    return asked if asked in ("bf16", "fp16", "fp8") else "no"


def fsdp_config(launch: Launch) -> dict[str, Any]:
    """Return FSDP2's section; without a class name it wraps the modules that a model declares unsplittable."""
    return {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": launch.strategy.zero == 3,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_activation_checkpointing": launch.recomputes_all,
        "fsdp_offload_params": False,
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }


def _parallelism(launch: Launch) -> dict[str, Any]:
    strategy = launch.strategy
    prefix = "parallelism_config_"
    values: dict[str, Any] = {
        f"{prefix}dp_replicate_size": replicas(launch),
        f"{prefix}dp_shard_size": strategy.dp // replicas(launch),
        f"{prefix}tp_size": strategy.tp,
        f"{prefix}cp_size": strategy.cp,
    }
    if strategy.cp > 1:
        values[f"{prefix}cp_comm_strategy"] = "allgather"
    return values


def refusals(launch: Launch) -> Iterator[Refusal]:
    """Yield what FSDP2 under accelerate does not do; the Hugging Face Trainer shares it."""
    strategy = launch.strategy
    several = strategy.dp * strategy.cp > 1
    rules = (
        ("zero", several and strategy.zero == 1, "FSDP2 shards gradients as well", (0, 2, 3)),
        ("zero", strategy.zero == 0 and strategy.cp > 1, "context parallelism shards", (2, 3)),
        (
            "tp",
            strategy.tp > 1
            and strategy.dp > 1
            and (strategy.zero == 0 or replicas(launch) == strategy.dp),
            "tensor parallelism needs sharded data parallelism beside it",
            1,
        ),
        (
            "zero_group",
            strategy.zero > 0 and strategy.sharding_ranks % strategy.cp != 0,
            "the sharding group holds whole context-parallel groups",
            None,
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
    if launch.recomputes_all and not sharded(launch):
        yield Refusal(
            field="recompute",
            rule="activation checkpointing is part of FSDP here; under DDP the program switches it on",
            value=strategy.recompute,
            nearest="none",
        )


def launch_script(launch: Launch, head: list[str], arguments: str) -> str:
    """Return a script that starts ``$TRAIN_SCRIPT`` with ``arguments`` on every node."""
    nodes = (
        []
        if launch.nodes == 1
        else [
            '  --machine_rank "${NODE_RANK:?0 on the head node, 1, 2, .. on the others}" \\',
            '  --main_process_ip "${MASTER_ADDR:?host name of the head node}" \\',
        ]
    )
    program = Program(
        command=f'"$TRAIN_SCRIPT" {arguments} "$@"',
        required={"TRAIN_SCRIPT": "training program"},
        environment={"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": str(launch.strategy.microbatches)},
    )
    start = f'accelerate launch --config_file "$here/{CONFIG_FILE}" \\'
    return script(head, program, [start, *nodes, f"  {program.command}"])


def files(launch: Launch) -> dict[str, str]:
    """Return configuration and launch script by name."""
    strategy = launch.strategy
    head = header(launch, VERSION)
    usage = "# the batch arguments are spelled as in transformers' examples"
    arguments = (
        f"--per_device_train_batch_size {strategy.micro_batch} "
        f"--gradient_accumulation_steps {strategy.microbatches}"
    )
    return {
        CONFIG_FILE: "\n".join(head) + "\n" + write_yaml(config(launch)),
        "run.sh": launch_script(launch, [*head, usage], arguments),
    }


EXPORTED = frozenset(
    {"dp", "tp", "cp", "micro_batch", "microbatches", "zero", "zero_group", "recompute"}
)
INEXPRESSIBLE = {
    "pp": "there is no pipeline parallelism outside its Megatron-LM plugin",
    "vpp": "there is no pipeline parallelism",
    "schedule": "there is no pipeline parallelism",
    "ep": "there is no expert parallelism",
    "etp": "there is no expert parallelism",
    "sequence_parallel": "tensor-parallel plans of transformers do not split norms and residuals",
    "offload_optimizer": "offload moves parameters and gradients together with the optimizer",
    "offload_activations": "no option offloads activations",
    "placement_order": "the mesh is tp, cp, dp from the nearest ranks outwards",
    "placement.first_layer": "there is no pipeline parallelism",
    "placement.layers": "there is no pipeline parallelism",
    "placement.recomputed": "activation checkpointing is one choice for all layers",
    "placement.device_groups": "all ranks hold the same layers",
}
TARGET = Target(
    name=NAME,
    version=VERSION,
    exported=EXPORTED,
    inexpressible=INEXPRESSIBLE,
    refuse=refusals,
    files=files,
)
