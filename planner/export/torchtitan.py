"""torchtitan 0.3: a command line (0.3 has no TOML), and the pipeline schedule as torch's CSV.

The CSV holds the order that was simulated, so the run follows it exactly: one row per pipeline rank, one cell
``{stage}{F|B|I|W}{microbatch}`` per task (torch.distributed.pipelining.schedules, ``_load_csv``).
"""

import csv
import io
from collections.abc import Iterator, Mapping

from costmodel.schedules import Shape, rank_order
from planner.export.scripts import Program, header, read_flags, slurm_script, torchrun_script
from planner.export.target import (
    Launch,
    Refusal,
    Target,
    unordered_groups,
)

NAME, VERSION = "torchtitan", "torchtitan 0.3"
FLAGS_FILE, SCHEDULE_FILE = "torchtitan.args", "schedule.csv"

# Registered configurations by (layers, width, vocabulary): module and function of torchtitan.models.
CONFIGS: Mapping[tuple[int, int, int], tuple[str, str]] = {
    (32, 4096, 128256): ("llama3", "llama3_8b"),
    (80, 8192, 128256): ("llama3", "llama3_70b"),
    (126, 16384, 128256): ("llama3", "llama3_405b"),
    (28, 1024, 151936): ("qwen3", "qwen3_0_6b"),
    (28, 2048, 151936): ("qwen3", "qwen3_1_7b"),
    (40, 5120, 151936): ("qwen3", "qwen3_14b"),
    (64, 5120, 151936): ("qwen3", "qwen3_32b"),
    (48, 2048, 151936): ("qwen3", "qwen3_30b_a3b"),
    (27, 2048, 102400): ("deepseek_v3", "deepseek_v3_16b"),
    (61, 7168, 129280): ("deepseek_v3", "deepseek_v3_671b"),
    (24, 2880, 201088): ("gpt_oss", "gpt_oss_20b"),
    (36, 2880, 201088): ("gpt_oss", "gpt_oss_120b"),
}
_RESHARD: Mapping[int, str] = {0: "never", 2: "never", 3: "always"}
_CHECKPOINTING: Mapping[str, str] = {"none": "none", "selective": "selective", "full": "full"}
_SCHEDULE_NAMES: Mapping[str, str] = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero_bubble": "InterleavedZeroBubble",
}


def flags(launch: Launch) -> list[str]:
    """Return one flag with its values a line."""
    strategy, training = launch.strategy, launch.training
    sequence_parallel = "enable" if strategy.sequence_parallel else "no-enable"
    replicas = strategy.dp * strategy.cp // _shard_ranks(launch)
    lines = [
        f"--parallelism.tensor_parallel_degree {strategy.tp}",
        f"--parallelism.{sequence_parallel}_sequence_parallel",
        f"--parallelism.context_parallel_degree {strategy.cp}",
        f"--parallelism.data_parallel_replicate_degree {replicas}",
        f"--parallelism.data_parallel_shard_degree {strategy.dp // replicas}",
        f"--parallelism.fsdp_reshard_after_forward {_RESHARD[strategy.zero]}",
        f"--training.seq_len {training.sequence}",
        f"--training.global_batch_size {strategy.global_batch}",
    ]
    if launch.experts:
        lines.append(f"--parallelism.expert_parallel_degree {strategy.ep}")
    if training.precision == "fp32":
        lines.append("--training.mixed_precision_param float32")
    return lines + list(_batch_flags(launch))


def schedule_csv(launch: Launch) -> str:
    """Return the order of tasks of each pipeline rank as torch reads it."""
    strategy = launch.strategy
    shape = Shape(strategy.schedule, strategy.pp, strategy.vpp, strategy.microbatches)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for rank in range(strategy.pp):
        writer.writerow(
            f"{task.chunk * strategy.pp + rank}{task.kind}{task.microbatch}"
            for task in rank_order(shape, rank)
        )
    return text.getvalue()


def module_names(launch: Launch) -> list[list[str]]:
    """Return the modules of each virtual stage by torchtitan's names of a decoder's parts."""
    parts = [
        [f"layers.{chunk.first_layer + index}" for index in range(chunk.layers)]
        for chunk in launch.placement.chunks
    ]
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    return parts


def _batch_flags(launch: Launch) -> Iterator[str]:
    """Yield the batch: without a pipeline micro-batches are accumulated, with one they fill it."""
    strategy = launch.strategy
    if strategy.pp == 1:
        yield f"--training.local_batch_size {strategy.micro_batch}"
        return
    yield f"--training.local_batch_size {strategy.micro_batch * strategy.microbatches}"
    yield f"--parallelism.pipeline_parallel_microbatch_size {strategy.micro_batch}"
    yield f"--parallelism.pipeline_parallel_degree {strategy.pp}"
    yield f"--parallelism.pipeline_parallel_schedule {_SCHEDULE_NAMES[strategy.schedule]}"
    yield "--training.disable_cuda_graphs"  # 0.3 refuses pipelines with them
    parts = " ".join(",".join(part) for part in module_names(launch))
    yield f"--parallelism.module_fqns_per_model_part {parts}"


def _shard_ranks(launch: Launch) -> int:
    """Return over how many data- and context-parallel ranks parameters are sharded."""
    return launch.strategy.sharding_ranks if launch.strategy.zero else launch.strategy.cp


def refusals(launch: Launch) -> Iterator[Refusal]:
    """Yield what torchtitan's mesh, schedules or configurations do not allow."""
    strategy = launch.strategy
    sharded = strategy.dp * strategy.cp > 1
    heads = [kind.attention.kv_heads for kind in launch.model.kinds if kind.attention]
    rules = (
        ("zero", sharded and strategy.zero == 1, "FSDP2 shards gradients as well", (0, 2, 3)),
        ("zero", strategy.cp > 1 and strategy.zero == 0, "context parallelism shards", (2, 3)),
        (
            "zero_group",
            strategy.zero > 0 and strategy.sharding_ranks % strategy.cp != 0,
            "the sharding group holds whole context-parallel groups",
            None,
        ),
        ("tp", any(count % strategy.tp for count in heads), "tp divides key/value heads", heads),
    )
    for field, broken, rule, nearest in rules:
        if broken:
            yield Refusal(field=field, rule=rule, value=getattr(strategy, field), nearest=nearest)
    yield from _training_refusals(launch)
    yield from unordered_groups(launch)


def _training_refusals(launch: Launch) -> Iterator[Refusal]:
    training = launch.training
    if training.precision not in ("bf16", "fp32"):
        yield Refusal(
            field="training.precision",
            rule="the command line offers bf16 and fp32; fp8 is part of a configuration function",
            value=training.precision,
            nearest=("bf16", "fp32"),
        )
    if training.attention == "standard":
        yield Refusal(field="training.attention", rule="attention is fused", value="standard")
    attentions = [kind.attention for kind in launch.model.kinds]
    causal = all(attention is not None and attention.causal for attention in attentions)
    if launch.model.decoder_start or not launch.model.vocab or not causal:
        yield Refusal(field="model", rule="models are decoders on tokens", value=launch.model.name)


def files(launch: Launch) -> dict[str, str]:
    """Return flags, schedule and launch scripts by name."""
    head = header(launch, VERSION)
    model = launch.model
    config = CONFIGS.get((len(model.layers), model.hidden, model.vocab))
    module = {
        "MODULE": f"torchtitan module of {model.name}",
        "CONFIG": f"configuration function of {model.name}",
    }
    pipelined = launch.strategy.pp > 1
    schedule = f'--parallelism.pipeline_parallel_schedule_csv "$here/{SCHEDULE_FILE}" '
    kind = "full" if launch.recomputes_all else _CHECKPOINTING[launch.strategy.recompute]
    program = Program(
        command=(
            '-m torchtitan.train --module "$MODULE" --config "$CONFIG" "${args[@]}" '
            f'{schedule if pipelined else ""}"$@" activation-checkpoint:{kind}'
        ),
        required={} if config else module,
        environment=dict(zip(("MODULE", "CONFIG"), config, strict=True)) if config else {},
        body=read_flags(FLAGS_FILE),
    )
    texts = {
        FLAGS_FILE: "\n".join([*head, *flags(launch)]) + "\n",
        "run.sh": torchrun_script(launch, head, program),
        "run.slurm.sh": slurm_script(launch, head, program),
    }
    return texts | ({SCHEDULE_FILE: schedule_csv(launch)} if pipelined else {})


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
            "vpp",
            "micro_batch",
            "microbatches",
            "schedule",
            "zero",
            "zero_group",
            "sequence_parallel",
            "recompute",
            "placement.first_layer",
            "placement.layers",
            "placement.device_groups",
        }
    ),
    inexpressible={
        "etp": "expert parallelism spans the tensor-parallel ranks, an expert is never cut",
        "offload_optimizer": "offload moves parameters and gradients together with the optimizer",
        "offload_activations": "no option offloads activations",
        "placement_order": "the mesh is tp, cp, dp, pp from the nearest ranks outwards",
        "placement.recomputed": "activation checkpointing is one choice for all layers",
    },
    refuse=refusals,
    files=files,
)
