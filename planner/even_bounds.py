"""Lower bounds of even placements, for many strategies with equally many ranks and chunks at once.

With the cuts given, what each rank does is known. For an interleaved schedule (and, with one chunk, 1F1B) a rank
starts after the forwards of the first chunks before it, does all its work, and its last backward travels back:

    sum_{j<r} f_j + m busy_r + sum_{j<r} b_j + 2 r c + D_0    and    sum_{j<r} f_j + m busy_r + r c + D_r

with f_j, b_j the first chunk of rank j. Recomputation is left out unless every layer recomputes.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from costmodel.strategy import SCHEDULES, Schedule
from planner.even_cuts import balanced_cuts, equal_cuts
from planner.priced_rows import Floats, LinearColumns, TimeRows

_APPLICABLE: tuple[Schedule, ...] = ("1f1b", "interleaved")


def applies_to(schedule: Schedule) -> bool:
    """Return whether the bounds hold for ``schedule``: its backwards start before the last forward."""
    return schedule in _APPLICABLE


@lru_cache(maxsize=1024)
def even_cuts(layers: int, stages: int, uneven: bool) -> tuple[tuple[int, ...], ...]:
    """Return the cuts that interleaving, or a framework with equal stages, chooses from."""
    return balanced_cuts(layers, stages) if uneven else equal_cuts(layers, stages)


@lru_cache(maxsize=1024)
def _held(kinds: tuple[int, ...], stages: int, uneven: bool) -> Floats:
    """Return layers by placement, virtual stage and kind."""
    counts = np.zeros((len(kinds) + 1, max(kinds) + 1))
    counts[np.arange(1, len(kinds) + 1), np.array(kinds)] = 1
    counts = counts.cumsum(axis=0)
    cuts = np.array(even_cuts(len(kinds), stages, uneven), dtype=np.int64).reshape(-1, stages + 1)
    return np.asarray(counts[cuts[:, 1:]] - counts[cuts[:, :-1]])


def even_bounds(rows: TimeRows, *, uneven: bool) -> Floats:
    """Return a lower bound by row and placement; all rows have the same ranks and chunks."""
    return _Even(rows, uneven).bounds()


class _Even:
    """Arrays over (row, placement, rank)."""

    def __init__(self, rows: TimeRows, uneven: bool) -> None:
        self.rows, self.ranks = rows, int(rows.ranks[0])
        self.chunks = int(rows.chunks[0])
        self.held = _held(rows.kinds, self.ranks * self.chunks, uneven)
        self.by_rank = self.held.reshape(-1, self.chunks, self.ranks, self.held.shape[2]).sum(
            axis=1
        )
        self.hop = rows.hop[:, None, None] * np.arange(self.ranks)

    def bounds(self) -> Floats:
        """Return the largest row of each placement."""
        forward, backward = self.rows.forward, self.rows.backward
        m = self.rows.microbatches[:, None, None]
        busy = m * (self._busy(forward) + self._busy(backward))
        there = self._before(forward) + self.hop
        back = self._before(backward) + self.hop
        best = np.zeros(busy.shape[:2])
        for finish in self.rows.finish or (None,):
            after = 0.0 if finish is None else self._of(finish, self.by_rank)
            first = 0.0 if finish is None else np.asarray(after)[:, :, :1]
            worst = np.maximum(there + busy + back + first, there + busy + after)
            best = np.maximum(best, worst.max(axis=2))
        return best

    def _of(self, linear: LinearColumns, held: Floats) -> Floats:
        """Return a function of what each rank holds (its fixed part once)."""
        again = np.where(self.rows.recompute_all[:, None], linear.recomputed, 0)
        value = np.einsum("prk,nk->npr", held, linear.layer + again)
        value += linear.fixed[:, None, None]
        value[:, :, 0] += linear.first[:, None]
        value[:, :, -1] += linear.last[:, None]
        return np.asarray(value)

    def _busy(self, linear: LinearColumns) -> Floats:
        extra = (self.chunks - 1) * linear.fixed[:, None, None]
        return self._of(linear, self.by_rank) + extra

    def _before(self, linear: LinearColumns) -> Floats:
        """Return the sum over the first chunks of the ranks before each rank."""
        first = self._of(linear, self.held[:, : self.ranks])
        if self.chunks > 1:
            first[:, :, -1] -= linear.last[:, None]
        return np.asarray(first.cumsum(axis=2) - first)


def grouped_even_bounds(rows: TimeRows, *, uneven: bool) -> NDArray[np.int64]:
    """Return for each row the least bound over its even placements; 0 where the bound does not apply."""
    best = np.zeros(len(rows.ranks), dtype=np.int64)
    applies = np.isin(rows.schedule, [SCHEDULES.index(name) for name in _APPLICABLE])
    applies &= rows.ranks * rows.chunks <= len(rows.kinds)
    if uneven:
        applies &= rows.chunks > 1
    codes = rows.ranks * (1 + rows.chunks.max(initial=0)) + rows.chunks
    for code in np.unique(codes[applies]):
        chosen = np.flatnonzero(applies & (codes == code))
        part = rows.at(chosen, tuple(item.at(chosen) for item in rows.finish))
        bounds = even_bounds(part, uneven=uneven)
        if bounds.shape[1]:
            best[chosen] = np.floor(bounds.min(axis=1) * (1 - 1e-12)) - 1
    return best
