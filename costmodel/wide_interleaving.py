"""The interleaved recurrence of costmodel.recurrences for many ranks: each tick is a few operations on arrays."""

import numpy as np
from numpy.typing import NDArray

from costmodel.schedules import interleaved_lead
from costmodel.timeline import PipelineWork

Ints = NDArray[np.int64]

_WIDE = 24
"""Ranks from which arrays are faster than lists; both take about 4 us a tick there (measured with p = 16 and 32)."""
_MOST = 1 << 62


def is_wide(work: PipelineWork) -> bool:
    """Return whether arrays of 64-bit integers are the faster way to simulate ``work``, and hold its times."""
    each = (
        sum(work.forward_ns) + sum(work.backward_ns) + 2 * work.shape.chunks * sum(work.transfer_ns)
    )
    return work.shape.ranks >= _WIDE and work.shape.microbatches * each < _MOST


class WideInterleaved:
    """Interleaved 1F1B as a synchronous system; at each tick every rank does a forward, then a backward."""

    def __init__(self, work: PipelineWork) -> None:
        self.ranks, self.chunks = work.shape.ranks, work.shape.chunks
        self.period = self.ranks * self.chunks
        self.total = work.shape.microbatches * self.chunks
        self.hops = np.array(work.transfer_ns[:-1], dtype=np.int64)
        self.wrap = work.transfer_ns[-1]
        self.start = 1 - self.ranks - (self.chunks - 1) * self.ranks
        rank = np.arange(self.ranks)
        by_rank = (self.chunks, self.ranks)
        backward = np.array(work.backward_ns, dtype=np.int64).reshape(by_rank)[::-1]
        forward = np.array(work.forward_ns, dtype=np.int64).reshape(by_rank)
        self.forward = self._rows(forward, -self.start - rank)
        self.backward = self._rows(backward, rank - self.ranks + 1)
        self.end, self.arrived, self.returned = np.zeros((3, self.ranks), dtype=np.int64)

    def _rows(self, values: Ints, lead: Ints) -> Ints:
        """Return durations by tick of a period and rank; rank r does its task t + lead[r] at tick t."""
        ticks = np.arange(self.period)[:, None]
        chunk = (ticks + lead) % self.period // self.ranks
        return np.asarray(values[chunk, np.arange(self.ranks)])

    def ends(self) -> list[int]:
        """Return for each rank when its last task ends."""
        first = self.ranks - 1
        stop = self.total - interleaved_lead(self.ranks, self.chunks, 0) + first
        seen: list[Ints] = []
        tick, last = self.start, self.total + self.ranks - 1
        while tick < last:
            if first <= tick and tick + self.period <= stop and not (tick - first) % self.period:
                tick += self._jump(seen, (stop - tick) // self.period)
            self._tick(tick)
            tick += 1
        ends: list[int] = self.end.tolist()
        return ends

    def _jump(self, seen: list[Ints], left: int) -> int:
        """Return how many ticks to skip of ``left`` whole periods: all but the last if the state repeated."""
        state = np.concatenate([self.end, self.arrived, self.returned])
        seen.append(state)
        if len(seen) < 2 or left < 2:
            return 0
        shift = int(state[0] - seen[-2][0])
        # An entry of zero means "nothing to wait for" and stays zero.
        if not np.array_equal(state, np.where(seen[-2], seen[-2] + shift, 0)):
            return 0
        for part in (self.end, self.arrived, self.returned):
            part[part != 0] += (left - 1) * shift
        return (left - 1) * self.period

    def _tick(self, tick: int) -> None:
        ranks, number = self.ranks, tick - self.start
        low, high = max(0, number - self.total + 1), min(ranks, number + 1)
        if low < high:
            self._forward(tick, low, high)
        low, high = max(0, ranks - 1 - tick), min(ranks, ranks - 1 - tick + self.total)
        if low < high:
            self._backward(tick, low, high)

    def _forward(self, tick: int, low: int, high: int) -> None:
        """Do the forwards of ranks ``low`` to before ``high`` and pass their results on."""
        end, data = self.end[low:high], self.arrived
        np.maximum(end, data[low:high], out=end)
        end += self.forward[tick % self.period, low:high]
        above = min(high, self.ranks - 1)
        np.add(self.end[low:above], self.hops[low:above], out=data[low + 1 : above + 1])
        wraps = (tick + 1 - self.start) % self.period >= self.ranks
        data[0] = self.end[-1] + self.wrap if wraps else 0

    def _backward(self, tick: int, low: int, high: int) -> None:
        """Do the backwards of ranks ``low`` to before ``high`` and pass their results back."""
        end, data = self.end[low:high], self.returned
        np.maximum(end, data[low:high], out=end)
        end += self.backward[tick % self.period, low:high]
        above = max(low, 1)
        np.add(
            self.end[above:high], self.hops[above - 1 : high - 1], out=data[above - 1 : high - 1]
        )
        wraps = (tick + 1) % self.period >= self.ranks
        data[-1] = self.end[0] + self.wrap if wraps else 0
