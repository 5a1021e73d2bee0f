"""What each framework can run, as facts; planner.rules turns them into named rules.

Sources: Megatron-LM 0.19 `validate_args` and TransformerConfig; torchtitan 0.3 parallel_dims and torch 2.13
`torch.distributed.pipelining.schedules`; DeepSpeed 0.19 `PipelineEngine` (asserts ZeRO stage < 2);
nanotron's ParallelismArgs; accelerate 1.15's ParallelismConfig; torchgpipe (arXiv 2004.09910); PipeDream (SOSP 2019);
SageMaker's model parallel library (arXiv 2111.05972).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from costmodel.strategy import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Legality:
    """What one framework allows.

    Attributes:
        tensor, pipeline, context, expert: Whether the degree may exceed one.
        schedules: Pipeline schedules it has.
        zero: ZeRO stages it has; ``zero_pipeline`` those it combines with a pipeline.
        replicates_kv_heads: Whether key/value heads fewer than tensor ranks are replicated.
        full_microbatches: Whether it needs at least as many micro-batches as stages.
        uneven_stages: Whether stages may hold unequal numbers of layers.
        context_shards: Whether context ranks always shard the parameters, so that they need ZeRO 2 or 3.
        moe_needs_sequence_parallel: Whether experts with tensor parallelism need sequence parallelism.
        offload_excludes_recompute: Whether activations are offloaded only without recomputation and pipeline.
    """

    tensor: bool = True
    pipeline: bool = True
    context: bool = True
    expert: bool = True
    schedules: tuple[Schedule, ...] = ("1f1b",)
    zero: tuple[int, ...] = (0, 1)
    zero_pipeline: tuple[int, ...] = (0, 1)
    replicates_kv_heads: bool = False
    full_microbatches: bool = False
    uneven_stages: bool = True
    context_shards: bool = False
    moe_needs_sequence_parallel: bool = False
    offload_excludes_recompute: bool = False


_MEGATRON = Legality(
    schedules=("1f1b", "interleaved"),
    zero=(0, 1, 2, 3),
    replicates_kv_heads=True,
    moe_needs_sequence_parallel=True,
    offload_excludes_recompute=True,
)
_SHARDED = Legality(
    tensor=False, pipeline=False, context=False, expert=False, zero=(0, 2, 3), zero_pipeline=()
)
_TORCH = Legality(
    schedules=("gpipe", "1f1b", "interleaved", "zero_bubble"),
    zero=(0, 2, 3),
    zero_pipeline=(0, 2, 3),
    full_microbatches=True,
    context_shards=True,
)
_STAGES = Legality(tensor=False, context=False, expert=False, zero=(0,))

LEGALITY: Mapping[str, Legality] = {
    "megatron": _MEGATRON,
    "nemo": _MEGATRON,
    "megatron-lm": replace(_MEGATRON, context=False, expert=False, zero=(0, 1)),
    "megatron-deepspeed": Legality(context=False, zero=(0, 1, 2, 3)),
    "deepspeed": Legality(context=False, zero=(0, 1, 2, 3)),
    "torchtitan": _TORCH,
    "torchgpipe": replace(_STAGES, schedules=("gpipe",)),
    "pipedream": replace(_STAGES, schedules=("no_flush",)),
    "sagemaker": Legality(context=False, expert=False, schedules=("gpipe", "1f1b"), zero=(0, 1)),
    "nanotron": Legality(schedules=("gpipe", "1f1b"), zero=(0, 1)),
    "composer": _SHARDED,
    "fsdp": _SHARDED,
    "fms-fsdp": _SHARDED,
    "ddp": replace(_SHARDED, zero=(0,)),
    "accelerate": replace(_SHARDED, tensor=True, context=True),
    "hf-trainer": replace(_SHARDED, zero=(0, 1, 2, 3)),
}
"""Every framework that a scenario may name."""
