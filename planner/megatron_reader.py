"""Megatron arguments to a question and an answer: model, training, strategy and placement.

Defaults and derived values are those of megatron-core 0.16 to 0.20 (``validate_args``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from costmodel.errors import InputError
from costmodel.layout import check_layout, parse_layout, placed_counts
from costmodel.spec import (
    AttentionKernel,
    ModelSpec,
    Precision,
    TrainingSpec,
)
from costmodel.strategy import Recompute, Schedule, Strategy
from planner.export.megatron import FSDP_SHARDING, OPTIONS, PP_BEFORE_DP, SIZES, SWITCHES
from planner.megatron_model import read_model
from planner.megatron_text import Flags, read_flags, substitute
from planner.plans import Chunk, Placement

_FSDP_STAGES = {name: stage for stage, name in FSDP_SHARDING.items()} | {"optim": 1, "no_shard": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronRun:
    """What a Megatron command line says.

    Attributes:
        warnings: What was read but means nothing to the cost model, or was read twice, in words.
    """

    model: ModelSpec
    training: TrainingSpec
    strategy: Strategy
    placement: Placement
    warnings: tuple[str, ...] = ()


def read_megatron(
    path: Path | str, gpus: int | None = None, variables: Mapping[str, str] | None = None
) -> MegatronRun:
    """Read an argument file, a shell script or a functional-test YAML.

    Args:
        path: The file; its ending selects the form.
        gpus: World size, where the file does not say it.
        variables: Values of shell variables that the file expects from outside.

    Raises:
        InputError: If the file cannot be read, a needed flag or variable is missing, or sizes do not divide.
        UnsupportedError: If the layout places embedding or loss where the cost model has no word for it.
    """
    flags = read_flags(Path(path), variables)
    return megatron_run(flags, gpus, name=Path(path).stem)


def megatron_run(flags: Flags, gpus: int | None = None, name: str = "megatron") -> MegatronRun:
    """Interpret flags; see ``read_megatron``."""
    model = read_model(flags, name)
    strategy = _strategy(flags, model, gpus)
    counts, vpp = _layer_counts(flags, model, strategy.pp)
    placement, recompute = _placement(flags, counts)
    schedule: Schedule = "interleaved" if vpp > 1 else "1f1b"
    return MegatronRun(
        model=model,
        training=_training(flags, strategy),
        strategy=replace(strategy, vpp=vpp, schedule=schedule, recompute=recompute),
        placement=placement,
        warnings=tuple(f"{flag} occurs with different values" for flag in flags.repeated),
    )


def _strategy(flags: Flags, model: ModelSpec, gpus: int | None) -> Strategy:
    sizes: dict[str, Any] = {name: flags.integer(flag, 1) or 1 for flag, name in SIZES}
    experts = flags.has("--num-experts")
    if experts and not flags.has("--expert-tensor-parallel-size"):
        sizes["etp"] = sizes["tp"]  # Megatron's default
    world = gpus or _world_size(flags)
    model_parallel = sizes["tp"] * sizes["pp"] * sizes["cp"]
    if world % model_parallel:
        rule = f"must be a multiple of tp * pp * cp = {model_parallel}"
        raise InputError(rule, file=flags.file, key="gpus", value=world)
    dp = world // model_parallel
    batch, step = _global_batch(flags, dp, sizes["micro_batch"]), dp * sizes["micro_batch"]
    if batch % step:
        rule = f"must be a multiple of micro batch * dp = {step}"
        raise InputError(rule, file=flags.file, key="--global-batch-size", value=batch)
    zero = _zero(flags)
    return Strategy(
        **sizes,
        dp=dp,
        microbatches=batch // step,
        zero=zero,
        zero_group=_zero_group(flags, dp * sizes["cp"]) if zero else 0,
        sequence_parallel=flags.has("--sequence-parallel") and sizes["tp"] > 1,
        offload_optimizer=_offloaded_optimizer(flags),
        offload_activations=(flags.integer("--cpu-offloading-num-layers", 0) or 0)
        / len(model.layers),
        placement_order=PP_BEFORE_DP if flags.has("--use-tp-pp-dp-mapping") else "tp-cp-ep-dp-pp",
    )


def _world_size(flags: Flags) -> int:
    """Return the number of GPUs from torchrun's arguments, Slurm's directives or the usual variables."""
    per_node = _first_number(
        flags,
        ("--nproc_per_node", "--nproc-per-node"),
        ("GPUS_PER_NODE", "SLURM_GPUS_PER_NODE", "SLURM_NTASKS_PER_NODE"),
    )
    nodes = _first_number(flags, ("--nnodes",), ("NNODES", "NUM_NODES", "SLURM_NNODES"))
    world = _first_number(flags, (), ("WORLD_SIZE",))
    if per_node is not None and nodes is not None:
        return per_node * nodes
    if world is None:
        raise InputError(
            "must be given, because the file does not say it", file=flags.file, key="gpus"
        )
    return world


def _first_number(flags: Flags, names: Sequence[str], variables: Sequence[str]) -> int | None:
    texts = [flags.values[name][0] for name in names if flags.values.get(name)]
    texts += [f"${name}" for name in variables if name in flags.variables]
    numbers = [substitute(text, flags.variables).strip("\"'") for text in texts]
    return next((int(number) for number in numbers if number.isdigit()), None)


def _global_batch(flags: Flags, dp: int, micro_batch: int) -> int:
    """Return the global batch, which Megatron lets default to one micro-batch per replica."""
    return flags.integer("--global-batch-size") or dp * micro_batch


def _zero(flags: Flags) -> int:
    if flags.has("--use-torch-fsdp2"):
        return 2 if flags.has("--torch-fsdp2-no-reshard-after-forward") else 3
    if flags.has("--use-megatron-fsdp", "--use-custom-fsdp"):
        return _FSDP_STAGES.get(flags.text("--data-parallel-sharding-strategy") or "no_shard", 0)
    return 1 if flags.has("--use-distributed-optimizer") else 0


def _zero_group(flags: Flags, ranks: int) -> int:
    instances = flags.integer("--num-distributed-optimizer-instances", 1) or 1
    return ranks // instances if instances > 1 else 0


def _offloaded_optimizer(flags: Flags) -> float:
    if not flags.has("--optimizer-cpu-offload"):
        return 0.0
    return flags.number("--optimizer-offload-fraction", 1.0)


def _layer_counts(flags: Flags, model: ModelSpec, pp: int) -> tuple[tuple[int, ...], int]:
    """Return layers of each virtual stage and the number of chunks per rank."""
    layers = len(model.layers)
    if text := flags.text("--pipeline-model-parallel-layout"):
        layout = parse_layout(text, "--pipeline-model-parallel-layout")
        check_layout(layout, layers=layers, pp=pp, mtp_layers=model.mtp_layers)
        return placed_counts(layout), len(layout.stages) // pp
    ranks = _rank_layers(flags, layers, pp)
    vpp = flags.integer("--num-virtual-stages-per-pipeline-rank") or 1
    if per_chunk := flags.integer("--num-layers-per-virtual-pipeline-stage"):
        vpp = ranks[0] // per_chunk
    if any(count % vpp for count in ranks):
        rule = f"layers of each rank ({_listed(ranks)}) must be a multiple of the chunks"
        raise InputError(rule, file=flags.file, key="pipeline", value=vpp)
    counts = [ranks[stage % pp] // vpp for stage in range(pp * vpp)]
    counts[0] -= flags.has("--account-for-embedding-in-pipeline-split")
    counts[-1] -= flags.has("--account-for-loss-in-pipeline-split")
    return tuple(counts), vpp


def _rank_layers(flags: Flags, layers: int, pp: int) -> tuple[int, ...]:
    """Return layers (and ends that count as one) of each rank."""
    first = flags.integer("--decoder-first-pipeline-num-layers")
    last = flags.integer("--decoder-last-pipeline-num-layers")
    ends = flags.has("--account-for-embedding-in-pipeline-split") + flags.has(
        "--account-for-loss-in-pipeline-split"
    )
    left = layers + ends - (first or 0) - (last or 0)
    ranks = pp - (first is not None) - (last is not None)
    if (ranks and (left % ranks or left < 0)) or (not ranks and left):
        rule = f"{left} layers must divide over {ranks} pipeline ranks"
        raise InputError(rule, file=flags.file, key="--pipeline-model-parallel-size", value=pp)
    middle = (left // ranks,) * ranks if ranks else ()
    return (*([first] if first is not None else []), *middle, *([last] if last is not None else []))


def _placement(flags: Flags, counts: Sequence[int]) -> tuple[Placement, Recompute]:
    recompute, block = _recompute(flags)
    chunks = tuple(
        Chunk(
            first_layer=sum(counts[:stage]),
            layers=count,
            recomputed=count if recompute == "full" else min(block, count),
        )
        for stage, count in enumerate(counts)
    )
    return Placement(chunks=chunks), recompute


def _recompute(flags: Flags) -> tuple[Recompute, int]:
    """Return the kind for all layers, and how many layers of each chunk recompute fully besides."""
    kind = flags.text("--recompute-granularity")
    if kind == "full" and flags.text("--recompute-method") == "block":
        return "none", flags.integer("--recompute-num-layers", 1) or 1
    if kind == "full":
        return "full", 0
    selective = kind == "selective" or flags.has("--recompute-activations")
    return ("selective" if selective else "none"), 0


def _training(flags: Flags, strategy: Strategy) -> TrainingSpec:
    kernel: AttentionKernel = "flash"
    if flags.text("--attention-backend") in ("unfused", "local"):
        kernel = "standard"
    return TrainingSpec(
        global_batch=strategy.global_batch,
        sequence=_sequence(flags),
        framework="megatron",
        precision=_precision(flags),
        attention=kernel,
        options=_options(flags),
    )


def _options(flags: Flags) -> dict[str, str]:
    options = {name: "on" for name, flag in SWITCHES.items() if flags.has(flag)}
    for (name, value), lines in OPTIONS.items():
        if all(flags.values.get(flag) == tuple(values) for flag, *values in lines):
            options[name] = value
    modules = flags.values.get("--recompute-modules", ("core_attn",))
    if modules != ("core_attn",):
        options["recompute_modules"] = "+".join(modules)
    group = flags.integer("--recompute-num-layers", 1) or 1
    if _recompute(flags)[0] == "full" and group > 1:
        options["recompute_group"] = str(group)
    return options


def _sequence(flags: Flags) -> int:
    return flags.integer("--seq-length") or flags.need("--encoder-seq-length")


def _precision(flags: Flags) -> Precision:
    if flags.has("--fp8-format", "--fp8-hybrid", "--fp8-e4m3"):
        return "fp8"
    return "bf16" if flags.has("--bf16") else "fp16" if flags.has("--fp16") else "fp32"


def _listed(numbers: Sequence[int]) -> str:
    return "/".join(str(number) for number in numbers)
