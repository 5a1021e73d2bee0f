"""Pipeline schedules as data: which rank does what in which order, and what it then keeps in memory.

A schedule is, for each rank, an ordered list of tasks; everything else (times, memory over time, critical
path) follows from that order and the data dependencies. Sources: GPipe, arXiv 1811.06965; 1F1B, PipeDream-Flush
(arXiv 2006.09503); interleaved 1F1B, Megatron-LM (arXiv 2104.04473, section 2.2); ZB-H1, arXiv 2401.10241, section 2;
no_flush, PipeDream (SOSP 2019, section 3.2): iterations follow each other without a gap, so that of one iteration each
rank does its tasks as fast as it can; what it waits for was sent while it worked on micro-batches of the one before.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from costmodel.strategy import Schedule

TaskKind = Literal["F", "B", "I", "W"]


class Task(NamedTuple):
    """One task of a rank.

    Attributes:
        kind: F forward, B backward, or its two halves I (gradient of the input) and W (of the weights).
        chunk: Which of the rank's chunks.
        microbatch: Which micro-batch.
    """

    kind: TaskKind
    chunk: int
    microbatch: int


class Shape(NamedTuple):
    """What fixes the order of tasks: schedule, pipeline ranks, chunks a rank, micro-batches."""

    schedule: Schedule
    ranks: int
    chunks: int
    microbatches: int


def check_shape(shape: Shape) -> None:
    """Raise ValueError where the order of tasks is not defined.

    Interleaving follows Megatron's order, which groups micro-batches by the number of ranks and needs at
    least two chunks a rank; the other schedules have one.
    """
    if min(shape.ranks, shape.chunks, shape.microbatches) < 1:
        raise ValueError(f"a schedule needs ranks, chunks and micro-batches, got {shape}")
    if (shape.schedule == "interleaved") != (shape.chunks > 1):
        raise ValueError(f"only interleaving has several chunks a rank, got {shape}")
    if shape.schedule == "interleaved" and shape.microbatches % shape.ranks:
        raise ValueError(f"interleaving needs micro-batches in multiples of the ranks, got {shape}")


def warmup(shape: Shape, rank: int) -> int:
    """Return how many forwards ``rank`` does before its first backward."""
    total = shape.microbatches * shape.chunks
    if shape.schedule == "gpipe":
        return total
    if shape.schedule == "interleaved":
        return min(total, interleaved_lead(shape.ranks, shape.chunks, rank) + 1)
    if shape.schedule == "no_flush":
        return 1
    return min(total, shape.ranks - rank)


def interleaved_lead(ranks: int, chunks: int, rank: int) -> int:
    """Return by how many tasks the forwards of ``rank`` run ahead of its backwards (Megatron-LM)."""
    return 2 * (ranks - 1 - rank) + (chunks - 1) * ranks


def rank_order(shape: Shape, rank: int) -> Iterator[Task]:
    """Yield the tasks of ``rank`` in the order in which it executes them."""
    total, lead = shape.microbatches * shape.chunks, warmup(shape, rank)
    split = shape.schedule == "zero_bubble"
    for number in range(lead):
        yield _task("F", shape, number)
    for number in range(total):
        yield _task("I" if split else "B", shape, number)
        if split and number >= rank:
            yield _task("W", shape, number - rank)
        if number + lead < total:
            yield _task("F", shape, number + lead)
    if split:
        yield from (_task("W", shape, number) for number in range(max(0, total - rank), total))


def _task(kind: TaskKind, shape: Shape, number: int) -> Task:
    group = shape.ranks if shape.chunks > 1 else 1
    round_, inside = divmod(number, group * shape.chunks)
    chunk, offset = divmod(inside, group)
    if kind != "F":
        chunk = shape.chunks - 1 - chunk
    return Task(kind, chunk, round_ * group + offset)


@lru_cache(maxsize=4096)
def in_flight(shape: Shape) -> tuple[tuple[int, ...], ...]:
    """Return for each rank, by chunk, the micro-batches whose activations it keeps at its peak.

    The peak is the first moment with the most activations: the end of the warm-up. Postponed weight
    gradients still need the activations of their micro-batch, which is why ZB-H1 keeps as many on every
    rank as 1F1B does on the first (arXiv 2401.10241, section 2.3). Without flush the warm-up lies in iterations
    before, so that few micro-batches an iteration do not lower it (PipeDream's NOAM, SOSP 2019, section 3.2).
    """
    return tuple(_rank_in_flight(shape, rank) for rank in range(shape.ranks))


def _rank_in_flight(shape: Shape, rank: int) -> tuple[int, ...]:
    if shape.schedule == "zero_bubble":
        return (min(shape.microbatches, shape.ranks),)
    if shape.schedule == "no_flush":
        return (shape.ranks - rank,)
    group = shape.ranks if shape.chunks > 1 else 1
    rounds, rest = divmod(warmup(shape, rank), group * shape.chunks)
    return tuple(
        rounds * group + min(group, max(0, rest - chunk * group)) for chunk in range(shape.chunks)
    )
