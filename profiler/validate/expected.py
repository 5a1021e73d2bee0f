"""Which collectives a job issues, predicted from its shapes alone: bytes and counts, to be compared call by call."""

from collections import Counter

import torch
import torch.distributed as dist

from costmodel.events import Collective, CommEvent
from profiler.validate.job import FP32, Job, ModelShape
from profiler.validate.launch import BUCKET_BYTES

_FIRST_BUCKET_BYTES = (
    1 << 20
)  # DistributedDataParallel's first bucket, so that reduction starts early


def collectives(job: Job, rank: int) -> Counter[CommEvent]:
    """Return what ``rank`` issues in one iteration; of transfers, what it sends."""
    if job.strategy.pp > 1:
        return _pipeline(job, rank)
    found = at_the_end(job)
    for part in in_passes(job):
        for event, count in part.items():
            found[event] += count * job.strategy.microbatches
    return found


def in_passes(job: Job) -> tuple[Counter[CommEvent], Counter[CommEvent]]:
    """Return what the ranks of a replica issue in the forward and the backward of one micro-batch."""
    strategy = job.strategy
    if strategy.tp > 1:
        return _tensor_parallel(job), _tensor_parallel(job)
    return _sharded(job) if strategy.dp > 1 and strategy.zero >= 2 else (Counter(), Counter())


def at_the_end(job: Job) -> Counter[CommEvent]:
    """Return what data-parallel ranks issue once an iteration."""
    strategy = job.strategy
    if strategy.dp == 1 or strategy.zero >= 2:
        return Counter()
    return _optimizer_sharded(job) if strategy.zero else _replicated(job)


def _event(collective: Collective, size: int, ranks: int) -> CommEvent:
    return CommEvent(collective=collective, bytes=size, group_size=ranks, per_node=ranks, level=0)


def activation_bytes(job: Job) -> int:
    """Return the bytes of one micro-batch's hidden states."""
    return FP32 * job.strategy.micro_batch * job.shape.sequence * job.shape.hidden


def _tensor_parallel(job: Job) -> Counter[CommEvent]:
    """Each block reduces twice forward (outputs of row cuts) and twice backward (inputs of column cuts)."""
    reduce = _event("all_reduce", activation_bytes(job), job.strategy.tp)
    return Counter({reduce: 2 * job.shape.layers})


def _pipeline(job: Job, rank: int) -> Counter[CommEvent]:
    """Each virtual stage but the last sends its output on, each but the first its input's gradient back."""
    send = _event("send_recv", activation_bytes(job), 2)
    last = len(job.layers) - 1
    sends = sum((stage < last) + (stage > 0) for stage in job.stages_of(rank))
    return Counter({send: sends * job.strategy.microbatches})


def _sharded(job: Job) -> tuple[Counter[CommEvent], Counter[CommEvent]]:
    """fully_shard gathers each group forward, again backward where it was freed, and reduces its gradients.

    Embedding and head are one group, freed between the passes as the blocks are.
    """
    strategy, shape = job.strategy, job.shape
    block = FP32 * shape.block_parameters
    root = FP32 * (shape.embedding_parameters + shape.head_parameters)
    forward: Counter[CommEvent] = Counter()
    backward: Counter[CommEvent] = Counter()
    for size, number in ((block, shape.layers), (root, 1)):
        gather = _event("all_gather", size, strategy.dp)
        forward[gather] += number
        if strategy.zero == 3:
            backward[gather] += number
        backward[_event("reduce_scatter", size, strategy.dp)] += number
    return forward, backward


def _optimizer_sharded(job: Job) -> Counter[CommEvent]:
    """ZeRO-1 reduces and scatters each module's gradients once an iteration and gathers its parameters once."""
    shape, ranks = job.shape, job.strategy.dp
    parts = (
        *[shape.block_parameters] * shape.layers,
        shape.embedding_parameters,
        shape.head_parameters,
    )
    found: Counter[CommEvent] = Counter()
    for elements in parts:
        padded = FP32 * ranks * -(-elements // ranks)
        found[_event("reduce_scatter", padded, ranks)] += 1
        found[_event("all_gather", padded, ranks)] += 1
    return found


def _replicated(job: Job) -> Counter[CommEvent]:
    """DistributedDataParallel reduces once per iteration, in buckets of the order gradients become ready in."""
    sizes = list(reversed(parameter_sizes(job.shape)))
    empty = [torch.empty(size, device="meta") for size in sizes]
    assign = getattr(dist, "_compute_bucket_assignment_by_size")  # noqa: B009 (untyped)
    buckets, _ = assign(empty, [_FIRST_BUCKET_BYTES, BUCKET_BYTES])
    return Counter(
        _event("all_reduce", FP32 * sum(sizes[i] for i in bucket), job.strategy.dp)
        for bucket in buckets
    )


def parameter_sizes(shape: ModelShape) -> list[int]:
    """Return the elements of each parameter in the order the forward uses them."""
    block = [
        shape.hidden,
        shape.hidden * shape.qkv_width,
        shape.hidden * shape.heads * shape.head_dim,
        shape.hidden,
        shape.hidden * shape.up_width,
        shape.hidden * shape.ffn,
    ]
    head = [shape.hidden, shape.vocab * shape.hidden]
    return [shape.embedding_parameters, *(block * shape.layers), *head]
