"""What the simulator takes and gives: work in integer nanoseconds, and the timeline that follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from costmodel.schedules import Shape, TaskKind, check_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineWork:
    """One iteration of a pipeline, in integer nanoseconds.

    Virtual stage ``v`` runs on rank ``v % ranks`` as its chunk ``v // ranks``.

    Attributes:
        shape: Schedule, ranks, chunks a rank, micro-batches.
        forward_ns, backward_ns: One micro-batch on each virtual stage.
        weight_ns: The part of ``backward_ns`` that computes weight gradients; only schedules that split
            the backward look at it.
        transfer_ns: From rank r to rank r + 1, the last one from the last rank to the first; either way.
        finish_ns: What each rank does after its last task.
    """

    shape: Shape
    forward_ns: tuple[int, ...]
    backward_ns: tuple[int, ...]
    weight_ns: tuple[int, ...]
    transfer_ns: tuple[int, ...]
    finish_ns: tuple[int, ...]

    def __post_init__(self) -> None:
        check_shape(self.shape)
        ranks, stages = self.shape.ranks, self.shape.ranks * self.shape.chunks
        lengths = [len(self.forward_ns), len(self.backward_ns), len(self.weight_ns)]
        if lengths != [stages] * 3 or [len(self.transfer_ns), len(self.finish_ns)] != [ranks] * 2:
            raise ValueError(f"work does not match {ranks} ranks and {stages} virtual stages")

    @property
    def split(self) -> bool:
        """Whether the backward is two tasks."""
        return self.shape.schedule == "zero_bubble"

    @property
    def input_ns(self) -> tuple[int, ...]:
        """Nanoseconds of the backward task that the previous stage waits for (B, or I where split)."""
        if not self.split:
            return self.backward_ns
        pairs = zip(self.backward_ns, self.weight_ns, strict=True)
        return tuple(whole - weight for whole, weight in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """How often a longest path visits what: a linear lower bound of the iteration of every placement.

    The iteration is the maximum over all paths through the schedule, so the counts of any one path, applied
    to the stage times of another placement, never exceed that placement's iteration.

    Attributes:
        forward, backward, weight: Visits by virtual stage (``backward`` counts B, or I where split).
        transfer: Visits by boundary.
        rank: On which rank the path ends.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    weight: tuple[int, ...]
    transfer: tuple[int, ...]
    rank: int

    def length_ns(self, work: PipelineWork) -> int:
        """Return the length of this path when the pipeline does ``work``."""
        weight = work.weight_ns if work.split else (0,) * len(self.weight)
        return (
            _dot(self.forward, work.forward_ns)
            + _dot(self.backward, work.input_ns)
            + _dot(self.weight, weight)
            + _dot(self.transfer, work.transfer_ns)
            + work.finish_ns[self.rank]
        )


class Span(NamedTuple):
    """One executed task of a rank."""

    kind: TaskKind
    chunk: int
    microbatch: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A simulated iteration.

    Attributes:
        work: What was simulated.
        spans: The tasks of each rank in order.
        iteration_ns: End of the last rank's finish.
        path: One longest path.
    """

    work: PipelineWork
    spans: tuple[tuple[Span, ...], ...]
    iteration_ns: int
    path: CriticalPath

    def busy_ns(self, rank: int) -> int:
        """Return how long ``rank`` executes tasks."""
        return sum(span.end_ns - span.start_ns for span in self.spans[rank])

    def end_ns(self, rank: int) -> int:
        """Return when ``rank`` ends its last task, before its finish."""
        return self.spans[rank][-1].end_ns

    def bubble_ns(self, rank: int) -> int:
        """Return how long ``rank`` waits, up to the end of the iteration."""
        return self.iteration_ns - self.busy_ns(rank) - self.work.finish_ns[rank]

    def in_flight(self, rank: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Return (nanosecond, kept micro-batches by chunk) after each task of ``rank`` that changes it.

        Activations are kept from the start of the forward to the end of the last backward task.
        """
        shape, steps = self.work.shape, []
        # Without flush the micro-batches of the iteration before are still under way at the start.
        carried = shape.ranks - 1 - rank if shape.schedule == "no_flush" else 0
        kept = [carried] + [0] * (shape.chunks - 1)
        for span in self.spans[rank]:
            if span.kind == "I":
                continue
            kept[span.chunk] += 1 if span.kind == "F" else -1
            moment = span.start_ns if span.kind == "F" else span.end_ns
            steps.append((moment, tuple(kept)))
        return tuple(steps)

    def peak_in_flight(self, rank: int) -> int:
        """Return the most micro-batch chunks that ``rank`` keeps at once."""
        return max(sum(kept) for _, kept in self.in_flight(rank))


def _dot(counts: Sequence[int], values: Sequence[int]) -> int:
    return sum(count * value for count, value in zip(counts, values, strict=True))
