"""The simulator: a longest path over the schedule's order and the data dependencies, transfers as edges.

``simulate`` walks that graph task by task and returns the timeline; ``iteration_ns`` gives only its length, by the
recurrences; ``critical_path`` gives the visits of one longest path of them. All are exact.
"""

from dataclasses import replace

from costmodel.recurrences import rank_ends
from costmodel.schedules import Task, rank_order
from costmodel.timeline import CriticalPath, PipelineWork, Span, Timeline
from costmodel.wave_paths import WavePath

_Key = tuple[str, int, int]


def iteration_ns(work: PipelineWork) -> int:
    """Return the nanoseconds from the first task to the end of the last rank's finish."""
    pairs = zip(rank_ends(work), work.finish_ns, strict=True)
    return max(end + finish for end, finish in pairs)


def critical_path(work: PipelineWork) -> CriticalPath:
    """Return the visits of one longest path of ``work``.

    For 1F1B and ZB-H1 it is walked back. Elsewhere each duration d becomes d * 2^n + 2^i, with i a field of its own for each kind of step: sums then carry
    the visits in their low bits, and maxima still compare times first. Ties go to the higher field.
    """
    if work.shape.schedule in ("1f1b", "zero_bubble"):
        return WavePath(work).path()
    fields = _Fields(work)
    coded = fields.code(work)
    return fields.decode(iteration_ns(coded))


class _Fields:
    """Bit fields in which the visits of a path are counted."""

    def __init__(self, work: PipelineWork) -> None:
        self.stages, self.ranks = len(work.forward_ns), work.shape.ranks
        # A boundary is crossed at most twice for each micro-batch and chunk.
        self.width = (2 * work.shape.microbatches * work.shape.chunks).bit_length()
        self.shift = self.width * (3 * self.stages + 2 * self.ranks)

    def _coded(self, values: tuple[int, ...], first: int) -> tuple[int, ...]:
        return tuple(
            (value << self.shift) + (1 << (self.width * (first + index)))
            for index, value in enumerate(values)
        )

    def code(self, work: PipelineWork) -> PipelineWork:
        """Return ``work`` with a visit counted in every duration."""
        stages = self.stages
        backward, weight = (
            self._coded(work.input_ns, stages),
            self._coded(work.weight_ns, 2 * stages),
        )
        if work.split:
            backward = tuple(one + other for one, other in zip(backward, weight, strict=True))
        return replace(
            work,
            forward_ns=self._coded(work.forward_ns, 0),
            backward_ns=backward,
            weight_ns=weight,
            transfer_ns=self._coded(work.transfer_ns, 3 * stages),
            finish_ns=self._coded(work.finish_ns, 3 * stages + self.ranks),
        )

    def decode(self, length: int) -> CriticalPath:
        """Return the visits counted in a coded length."""
        mask, fields = (1 << self.width) - 1, 3 * self.stages + 2 * self.ranks
        counts = tuple((length >> (self.width * index)) & mask for index in range(fields))
        stages, transfers = self.stages, 3 * self.stages + self.ranks
        return CriticalPath(
            forward=counts[:stages],
            backward=counts[stages : 2 * stages],
            weight=counts[2 * stages : 3 * stages],
            transfer=counts[3 * stages : transfers],
            rank=counts[transfers:].index(1),
        )


def simulate(work: PipelineWork) -> Timeline:
    """Execute ``work`` task by task.

    Raises:
        ValueError: The schedule waits for itself (no legal shape does).
    """
    run = _Execution(work)
    run.execute()
    spans = tuple(tuple(rank) for rank in run.spans)
    ends = [rank[-1].end_ns + work.finish_ns[at] for at, rank in enumerate(spans)]
    longest = max(ends)
    return Timeline(
        work=work, spans=spans, iteration_ns=longest, path=run.path(ends.index(longest))
    )


class _Execution:
    """Runs each rank as far as its data allow, until all ranks are done."""

    def __init__(self, work: PipelineWork) -> None:
        self.work, self.ranks, self.stages = work, work.shape.ranks, len(work.forward_ns)
        self.durations = {"F": work.forward_ns, "B": work.input_ns, "I": work.input_ns}
        self.durations["W"] = work.weight_ns
        self.spans: list[list[Span]] = [[] for _ in range(self.ranks)]
        self.done: dict[_Key, int] = {}
        self.waiting: dict[_Key, int] = {}

    def execute(self) -> None:
        """Fill ``spans``."""
        orders = [rank_order(self.work.shape, rank) for rank in range(self.ranks)]
        heads = [next(order) for order in orders]
        ready = list(range(self.ranks))
        while ready:
            rank = ready.pop()
            task: Task | None = heads[rank]
            while task is not None:
                needs = self._needs(rank, task)
                if needs is not None and needs not in self.done:
                    self.waiting[needs], heads[rank] = rank, task
                    break
                ready.extend(self._run(rank, task, needs))
                task = next(orders[rank], None)
        if len(self.done) != sum(map(len, self.spans)) or self.waiting:
            raise ValueError(f"the schedule waits for itself: {self.work.shape}")

    def _needs(self, rank: int, task: Task) -> _Key | None:
        """Return the task on another rank whose result ``task`` needs."""
        kind, chunk, microbatch = task
        if self.work.shape.schedule == "no_flush":
            return None
        stage = chunk * self.ranks + rank
        if kind == "F":
            return ("F", stage - 1, microbatch) if stage else None
        if kind == "W" or stage == self.stages - 1:
            return None
        return (kind, stage + 1, microbatch)

    def _hop(self, rank: int, task: Task) -> int:
        return self.work.transfer_ns[rank - 1 if task.kind == "F" else rank]

    def _run(self, rank: int, task: Task, needs: _Key | None) -> list[int]:
        """Append the span of ``task``; return the ranks that waited for it."""
        spans, (kind, chunk, microbatch) = self.spans[rank], task
        stage = chunk * self.ranks + rank
        start = spans[-1].end_ns if spans else 0
        if needs is not None:
            start = max(start, self.done[needs] + self._hop(rank, task))
        end = start + self.durations[kind][stage]
        spans.append(Span(kind, chunk, microbatch, start, end))
        key = (kind, stage, microbatch)
        self.done[key] = end
        waiter = self.waiting.pop(key, None)
        return [] if waiter is None else [waiter]

    def path(self, rank: int) -> CriticalPath:
        """Walk back from the last task of ``rank`` along tasks that end when the next can start."""
        finish = rank
        visits = {kind: [0] * self.stages for kind in self.durations}
        hops = [0] * self.ranks
        places = self._places()
        at = len(self.spans[rank]) - 1
        while at >= 0:
            span = self.spans[rank][at]
            visits[span.kind][span.chunk * self.ranks + rank] += 1
            needs = self._needs(rank, Task(*span[:3]))
            own = self.spans[rank][at - 1].end_ns if at else 0
            if needs is None or own == span.start_ns:
                at -= 1
                continue
            boundary = (rank - 1) % self.ranks if span.kind == "F" else rank
            hops[boundary] += 1
            rank, at = places[needs]
        backward = [one + other for one, other in zip(visits["B"], visits["I"], strict=True)]
        return CriticalPath(
            forward=tuple(visits["F"]),
            backward=tuple(backward),
            weight=tuple(visits["W"]),
            transfer=tuple(hops),
            rank=finish,
        )

    def _places(self) -> dict[_Key, tuple[int, int]]:
        return {
            (span.kind, span.chunk * self.ranks + rank, span.microbatch): (rank, at)
            for rank, spans in enumerate(self.spans)
            for at, span in enumerate(spans)
        }
