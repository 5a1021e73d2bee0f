"""Megatron-LM: a flags file and scripts that launch it with torchrun or Slurm.

Spellings of megatron-core 0.16 to 0.20; stage layout as Megatron documents it: equal stages need no flag,
unequal first and last stages the ``--decoder-{first,last}-pipeline-num-layers`` flags, everything else the
layout string (costmodel.layout).
"""

from collections.abc import Iterator, Mapping

from costmodel.frameworks import behaviour
from costmodel.layout import layout_of
from costmodel.spec import TrainingSpec
from planner.export.megatron_model import Line, model_lines, model_refusals
from planner.export.scripts import Program, header, read_flags, slurm_script, torchrun_script
from planner.export.target import Launch, Refusal, Target, orders, unordered_groups

NAME, VERSION = "megatron", "Megatron-LM core 0.16 to 0.20"
FLAGS_FILE = "megatron.args"

# Degrees and sizes that one flag carries as a number; the reader uses the same table.
SIZES: tuple[tuple[str, str], ...] = (
    ("--tensor-model-parallel-size", "tp"),
    ("--pipeline-model-parallel-size", "pp"),
    ("--context-parallel-size", "cp"),
    ("--expert-model-parallel-size", "ep"),
    ("--expert-tensor-parallel-size", "etp"),
    ("--micro-batch-size", "micro_batch"),
)
FSDP_SHARDING: Mapping[int, str] = {2: "optim_grads", 3: "optim_grads_params"}
PP_BEFORE_DP = "tp-cp-ep-pp-dp"
PRECISION: Mapping[str, tuple[Line, ...]] = {
    "bf16": (("--bf16",),),
    "fp16": (("--fp16",),),
    "fp8": (("--bf16",), ("--fp8-format", "hybrid")),
    "fp32": (),
    "tf32": (),
}
# Switches of a framework's behaviour (costmodel.frameworks) and values of options that Megatron has flags for.
SWITCHES: Mapping[str, str] = {
    "gradient_overlap": "--overlap-grad-reduce",
    "gather_overlap": "--overlap-param-gather",
    "tp_overlap": "--tp-comm-overlap",
}
OPTIONS: Mapping[tuple[str, str], tuple[Line, ...]] = {
    ("gradient_dtype", "bf16"): (("--grad-reduce-in-bf16",),),
    ("optimizer", "precision_aware"): (
        ("--exp-avg-dtype", "bf16"),
        ("--exp-avg-sq-dtype", "bf16"),
        ("--main-grads-dtype", "bf16"),
    ),
}
_FOREIGN_OPTIONS: Mapping[tuple[str, str], str] = {
    ("adapter", "lora"): "pretrain_gpt.py trains all weights",
    ("adapter", "qlora"): "pretrain_gpt.py trains all weights",
    ("optimizer", "pure_bf16"): "there is always a master copy of the weights",
    ("optimizer", "adam8bit"): "moments have 16 or 32 bits",
    ("optimizer_step", "in_backward"): "the optimizer steps behind the last backward",
    ("offload_parameters", "on"): "weights stay on the GPU",
}
# From Blackwell on Megatron no longer asks for one connection (validate_args, device arch 10).
_FREE_CONNECTIONS = frozenset({"blackwell"})


def flag_lines(launch: Launch) -> list[Line]:
    """Return every flag of the launch: model, training, strategy, placement."""
    training = launch.training
    return [
        *model_lines(launch.model, training),
        ("--seq-length", str(training.sequence)),
        ("--global-batch-size", str(launch.strategy.global_batch)),
        *PRECISION[training.precision],
        *([("--attention-backend", "unfused")] if training.attention == "standard" else []),
        *parallel_lines(launch),
    ]


def parallel_lines(launch: Launch) -> list[Line]:
    """Return the flags of strategy, placement and framework options."""
    return [
        *_strategy_lines(launch),
        *_layout_lines(launch),
        *_recompute_lines(launch),
        *_option_lines(launch),
    ]


def _strategy_lines(launch: Launch) -> Iterator[Line]:
    strategy = launch.strategy
    for flag, name in SIZES:
        if name not in ("ep", "etp") or launch.experts:
            yield (flag, str(getattr(strategy, name)))
    if strategy.sequence_parallel and strategy.tp > 1:
        yield ("--sequence-parallel",)
    yield from _sharding_lines(launch)
    if strategy.offload_optimizer or _precision_aware(launch.training):
        yield ("--use-precision-aware-optimizer",)
    if strategy.offload_optimizer:
        yield ("--optimizer-cpu-offload",)
        yield ("--optimizer-offload-fraction", str(strategy.offload_optimizer))
    if strategy.offload_activations:
        layers = round(strategy.offload_activations * len(launch.model.layers))
        yield ("--cpu-offloading-num-layers", str(layers))
    if orders(strategy.placement_order, strategy) == orders(PP_BEFORE_DP, strategy) and (
        strategy.pp > 1 and strategy.dp > 1
    ):
        yield ("--use-tp-pp-dp-mapping",)


def _sharding_lines(launch: Launch) -> Iterator[Line]:
    strategy = launch.strategy
    if strategy.zero:
        yield ("--use-distributed-optimizer",)
    if strategy.zero in FSDP_SHARDING:
        yield ("--use-megatron-fsdp",)
        yield ("--data-parallel-sharding-strategy", FSDP_SHARDING[strategy.zero])
        yield ("--ckpt-format", "fsdp_dtensor")
        yield ("--no-gradient-accumulation-fusion",)
    instances = strategy.dp * strategy.cp // strategy.sharding_ranks
    if strategy.zero and instances > 1:
        yield ("--num-distributed-optimizer-instances", str(instances))


def _layout_lines(launch: Launch) -> Iterator[Line]:
    strategy, counts = launch.strategy, launch.placement.layer_counts()
    if launch.even:
        if strategy.vpp > 1:
            yield ("--num-virtual-stages-per-pipeline-rank", str(strategy.vpp))
    elif strategy.vpp == 1 and len(set(counts[1:-1])) <= 1 and min(counts) > 0:
        yield ("--decoder-first-pipeline-num-layers", str(counts[0]))
        yield ("--decoder-last-pipeline-num-layers", str(counts[-1]))
    else:
        layout = layout_of(counts, launch.model.mtp_layers)
        yield ("--pipeline-model-parallel-layout", layout.text)


def _recompute_lines(launch: Launch) -> Iterator[Line]:
    options = launch.training.options
    if launch.recomputes_all:
        yield ("--recompute-granularity", "full")
        yield ("--recompute-method", "uniform")
        yield ("--recompute-num-layers", options.get("recompute_group", "1"))
    elif any(launch.recomputed):
        yield ("--recompute-granularity", "full")
        yield ("--recompute-method", "block")
        yield ("--recompute-num-layers", str(_block_layers(launch)))
    elif launch.strategy.recompute == "selective":
        modules = options.get("recompute_modules", "core_attn").split("+")
        yield ("--recompute-granularity", "selective")
        yield ("--recompute-modules", *modules)


def _block_layers(launch: Launch) -> int:
    return max(launch.recomputed)


def _precision_aware(training: TrainingSpec) -> bool:
    return training.options.get("optimizer") == "precision_aware"


def _option_lines(launch: Launch) -> Iterator[Line]:
    for name, flag in SWITCHES.items():
        if name in _switched_on(launch):
            yield (flag,)
    for (name, value), lines in OPTIONS.items():
        if launch.training.options.get(name) == value:
            yield from lines


def _switched_on(launch: Launch) -> set[str]:
    """Return switches that are on and have something to overlap."""
    now, strategy = behaviour(launch.training), launch.strategy
    useful = {
        "gradient_overlap": strategy.dp * strategy.cp > 1,
        "gather_overlap": strategy.dp * strategy.cp > 1 and strategy.zero > 0,
        "tp_overlap": strategy.tp > 1,
    }
    return {name for name in SWITCHES if getattr(now, name) and useful[name]}


def refusals(launch: Launch) -> Iterator[Refusal]:
    """Yield what of the model has no flag, then what ``parallel_refusals`` yields."""
    yield from model_refusals(launch)
    yield from parallel_refusals(launch)


def parallel_refusals(launch: Launch) -> Iterator[Refusal]:
    """Yield combinations that Megatron's argument checks or schedules do not allow."""
    yield from _strategy_refusals(launch)
    yield from _recompute_refusals(launch)
    yield from _option_refusals(launch)
    yield from unordered_groups(launch)


def _strategy_refusals(launch: Launch) -> Iterator[Refusal]:
    strategy = launch.strategy
    if strategy.pp > 1 and strategy.schedule in ("gpipe", "zero_bubble"):
        yield Refusal(
            field="schedule",
            rule="pretrain_gpt.py runs 1F1B and interleaved 1F1B only",
            value=strategy.schedule,
            nearest=("1f1b", "interleaved"),
        )
    order = orders(strategy.placement_order, strategy)
    allowed = ("tp-cp-ep-dp-pp", PP_BEFORE_DP)
    if order not in [orders(text, strategy) for text in allowed]:
        yield Refusal(
            field="placement_order",
            rule="ranks are ordered tp-cp-ep-dp-pp or tp-cp-ep-pp-dp",
            value=strategy.placement_order,
            nearest=allowed,
        )
    if strategy.zero > 1 and order != orders(allowed[0], strategy):
        yield Refusal(field="placement_order", rule="Megatron-FSDP keeps the default rank order")
    if strategy.offload_optimizer and not strategy.zero:
        yield Refusal(
            field="offload_optimizer",
            rule="optimizer offload needs the distributed optimizer (zero 1)",
            value=strategy.offload_optimizer,
        )
    yield from _activation_offload_refusals(launch)


def _activation_offload_refusals(launch: Launch) -> Iterator[Refusal]:
    strategy = launch.strategy
    layers = strategy.offload_activations * len(launch.model.layers)
    rules = (
        (strategy.pp > 1, "activation offload needs pp = 1"),
        (any(launch.recomputed), "activation offload needs layers that do not recompute"),
        (strategy.recompute != "none", "activation offload needs layers that do not recompute"),
        (abs(layers - round(layers)) > 1e-6, "activations are offloaded by whole layers"),
        (strategy.offload_activations >= 1, "at least one layer's activations stay on the GPU"),
    )
    for broken, rule in rules:
        if strategy.offload_activations and broken:
            yield Refusal(
                field="offload_activations", rule=rule, value=strategy.offload_activations
            )


def _recompute_refusals(launch: Launch) -> Iterator[Refusal]:
    if not launch.recomputes_some:
        return
    block = _block_layers(launch)
    counts = launch.placement.layer_counts()
    reachable = tuple(min(block, count) for count in counts)
    if launch.recomputed != reachable:
        yield Refusal(
            field="placement.recomputed",
            rule="every virtual stage recomputes the same number of layers (--recompute-num-layers)",
            value=launch.recomputed,
            nearest=(reachable,),
        )
    if launch.strategy.recompute == "selective":
        yield Refusal(
            field="recompute",
            rule="layers recompute fully or selectively, not a mixture",
            value=launch.strategy.recompute,
            nearest=("none", "full"),
        )


def _option_refusals(launch: Launch) -> Iterator[Refusal]:
    on, strategy = _switched_on(launch), launch.strategy
    foreign = {
        name: rule
        for (name, value), rule in _FOREIGN_OPTIONS.items()
        if launch.training.options.get(name) == value
    }
    if "gather_overlap" in on and "gradient_overlap" not in on:
        foreign["gather_overlap"] = "parameters are gathered beside compute only if gradients are"
    if "tp_overlap" in on and not strategy.sequence_parallel:
        foreign["tp_overlap"] = "tensor-parallel overlap needs sequence parallelism"
    if _precision_aware(launch.training) and not strategy.zero:
        foreign["optimizer"] = "the precision-aware optimizer is the distributed one (zero 1)"
    for name, rule in foreign.items():
        value = launch.training.options.get(name)
        yield Refusal(field=f"training.options.{name}", rule=rule, value=value)


def files(launch: Launch) -> dict[str, str]:
    """Return flags file and launch scripts by name."""
    head = header(launch, VERSION)
    lines = [" ".join(line) for line in flag_lines(launch)]
    world = f"# world size {launch.strategy.gpus}"
    program = Program(
        command='"$MEGATRON_PATH/pretrain_gpt.py" "${args[@]}" "$@"',
        required={"MEGATRON_PATH": f"folder of {VERSION}"},
        environment=environment(launch),
        body=read_flags(FLAGS_FILE),
    )
    usage = "# arguments of this script go to Megatron: data, tokenizer, learning rate, checkpoints"
    return {
        FLAGS_FILE: "\n".join([*head, world, *lines]) + "\n",
        "run.sh": torchrun_script(launch, [*head, usage], program),
        "run.slurm.sh": slurm_script(launch, [*head, usage], program),
    }


def environment(launch: Launch) -> dict[str, str]:
    """Return the environment variables that the plan wants."""
    strategy = launch.strategy
    variables = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    one_connection = (strategy.tp > 1 or strategy.cp > 1) and strategy.zero < 2
    if one_connection and launch.cluster.device.architecture not in _FREE_CONNECTIONS:
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    return variables


TARGET = Target(
    name=NAME,
    version=VERSION,
    exported=frozenset(
        {
            "dp",
            "tp",
            "pp",
            "cp",
            "ep",
            "etp",
            "vpp",
            "micro_batch",
            "microbatches",
            "schedule",
            "zero",
            "zero_group",
            "sequence_parallel",
            "recompute",
            "offload_optimizer",
            "offload_activations",
            "placement_order",
            "placement.first_layer",
            "placement.layers",
            "placement.recomputed",
            "placement.device_groups",
        }
    ),
    inexpressible={},
    refuse=refusals,
    files=files,
)
