"""What follows the last backward: gradient reduction, exchange of tied embeddings, optimizer.

All three stream over parameters; the bytes are counted from the published code of Megatron-LM's fp16 optimizer and of its
gradient reduction before contiguous buffers (one flattened copy, one division, one copy back: 3 x 4 bytes of fp16).
"""

from dataclasses import dataclass

from costmodel.errors import InputError
from costmodel.events import CommEvent
from costmodel.recompose.operator_prices import EMBEDDING, OperatorPrices
from costmodel.recompose.plan_file import MeasuredPlan

_REDUCTION_BYTES = 12
# fp16 gradient to fp32 (2 + 4), unscaling (4 + 4), norm (4), clipping (4 + 4), count of zeros (4), Adam (read
# 16, write 12), master weight to fp16 (4 + 2).
_OPTIMIZER_BYTES = 64
_FP16 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Seconds after the last backward."""

    gradient_reduction_s: tuple[float, ...]
    embedding_exchange_s: float
    optimizer_s: tuple[float, ...]


def finish(plan: MeasuredPlan, prices: OperatorPrices) -> Finish:
    """Return what follows the last backward, by stage."""
    parameters = [_parameters(plan, prices, stage) for stage in range(len(plan.stages))]
    stream = prices.stream_bytes_per_s
    return Finish(
        gradient_reduction_s=tuple(
            count * _REDUCTION_BYTES / stream + _across_replicas(plan, prices, stage, count)
            for stage, count in enumerate(parameters)
        ),
        embedding_exchange_s=_embedding_exchange(plan, prices),
        optimizer_s=tuple(count * _OPTIMIZER_BYTES / stream for count in parameters),
    )


def settled(plan: MeasuredPlan, end_s: tuple[float, ...], after: Finish) -> float:
    """Return the iteration: stages meet pairwise for the tied embeddings, and all for the gradient norm."""
    reduced = [end + own for end, own in zip(end_s, after.gradient_reduction_s, strict=True)]
    if len(plan.stages) > 1:
        exchanged = max(reduced[0], reduced[-1]) + after.embedding_exchange_s
        reduced[0] = reduced[-1] = exchanged
    return max(reduced) + max(after.optimizer_s)


def _parameters(plan: MeasuredPlan, prices: OperatorPrices, stage: int) -> float:
    placed = plan.stages[stage]
    return sum(prices.row(plan, operator).weight_bytes for operator in placed) / _FP16


def _across_replicas(
    plan: MeasuredPlan, prices: OperatorPrices, stage: int, parameters: float
) -> float:
    dp = plan.stages[stage][0].dp
    if dp == 1:
        return 0.0
    price = prices.collectives.lookup(
        CommEvent(
            collective="all_reduce",
            bytes=round(parameters * _FP16),
            group_size=dp,
            per_node=dp,
            level=0,
        )
    )
    return price.seconds if price else 0.0


def _embedding_exchange(plan: MeasuredPlan, prices: OperatorPrices) -> float:
    """Return the all-reduce of the tied table's gradient between first and last stage.

    Between nodes there is no all-reduce in the tables: over two ranks it moves the buffer once in each direction,
    which the node's link passes one after the other for all tensor-parallel ranks (see exchange_seconds).
    """
    if len(plan.stages) == 1:
        return 0.0
    head = next((operator for operator in plan.stages[0] if operator.op == EMBEDDING), None)
    if head is None:
        raise InputError("must hold the embedding", key="stage 0", value=EMBEDDING)
    size = plan.vocab * plan.hidden * _FP16 // head.tp
    inter = plan.nodes > 1
    event = CommEvent(
        collective="send_recv" if inter else "all_reduce",
        bytes=size,
        group_size=2,
        per_node=1 if inter else 2,
        level=int(inter),
    )
    price = prices.collectives.lookup(event)
    seconds = price.seconds if price else 0.0
    return 2 * head.tp * seconds if inter else seconds
