"""Lower bounds of even placements, for many strategies with equally many ranks and chunks at once.

With the cuts given, what each rank does is known: the rows of planner.even_rows hold, with the fastest hop for all. Of
recomputation only what memory forces is counted, at the kind of layer that saves most and the one that costs least.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from costmodel.strategy import SCHEDULES, Schedule
from planner.even_cuts import balanced_cuts, equal_cuts
from planner.even_rows import even_rows, warmup_chunks
from planner.priced_rows import Floats, LinearColumns, MemoryColumns, TimeRows

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


def grouped_even_bounds(
    rows: TimeRows, memory: tuple[MemoryColumns, ...], limit_kib: int, *, uneven: bool
) -> NDArray[np.int64]:
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
        moments = tuple(moment.at(chosen) for moment in memory)
        bounds = even_bounds(part, moments, limit_kib, uneven=uneven)
        if bounds.shape[1]:
            best[chosen] = np.floor(bounds.min(axis=1) * (1 - 1e-12)) - 1
    return best


def even_bounds(
    rows: TimeRows, memory: tuple[MemoryColumns, ...], limit_kib: int, *, uneven: bool
) -> Floats:
    """Return a lower bound by row and placement; all rows have the same ranks and chunks."""
    return _Even(rows, uneven).bounds(memory, limit_kib)


class _Even:
    """Arrays over (row, placement, chunk, rank)."""

    def __init__(self, rows: TimeRows, uneven: bool) -> None:
        self.rows, self.ranks, self.chunks = rows, int(rows.ranks[0]), int(rows.chunks[0])
        held = _held(rows.kinds, self.ranks * self.chunks, uneven)
        self.held = held.reshape(len(held), self.chunks, self.ranks, held.shape[2])
        self.lead = warmup_chunks(self.chunks, self.ranks, rows.microbatches[:, None])

    def bounds(self, memory: tuple[MemoryColumns, ...], limit_kib: int) -> Floats:
        """Return the largest row of each placement."""
        rows = self.rows
        again = self._forced(memory, limit_kib)
        cheapest = rows.backward.recomputed.min(axis=1)
        backward = self._of(rows.backward, self.held) + again * cheapest[:, None, None, None]
        ways = [self._of(item, self.held.sum(axis=1, keepdims=True)) for item in rows.finish]
        nothing = np.zeros((*backward.shape[:2], self.ranks))
        return even_rows(
            self._of(rows.forward, self.held),
            backward,
            np.maximum.reduce([way[:, :, 0] for way in ways]) if ways else nothing,
            np.repeat(rows.hop[:, None, None], self.ranks, axis=2),
            rows.microbatches[:, None],
        )

    def _of(self, linear: LinearColumns, held: Floats) -> Floats:
        """Return a function of what each chunk holds."""
        again = np.where(self.rows.recompute_all[:, None], linear.recomputed, 0)
        value = np.einsum("pcrk,nk->npcr", held, linear.layer + again)
        value += linear.fixed[:, None, None, None]
        value[:, :, 0, 0] += linear.first[:, None]
        value[:, :, -1, -1] += linear.last[:, None]
        return np.asarray(value)

    def _forced(self, memory: tuple[MemoryColumns, ...], limit_kib: int) -> Floats:
        """Return how many layers of each chunk recompute at least, where not all do."""
        count = np.zeros((len(self.rows.ranks), len(self.held), self.ranks))
        for moment in memory:
            over = self._demand(moment) - limit_kib
            saved = self.lead * -moment.flight.recomputed.min(axis=1)[:, None, None]
            saved = (saved - moment.kept.recomputed.min(axis=1)[:, None, None]).sum(axis=1)
            # What is over is a whole number; a hair less than the quotient never counts a layer too many.
            needed = np.ceil(over / np.maximum(saved, 1)[:, None] - 1e-9)
            count = np.where(saved[:, None] > 0, np.maximum(count, needed), count)
        count = np.where(self.rows.recompute_all[:, None, None], 0, count)
        return np.asarray(np.minimum(count[:, :, None], self.held.sum(axis=3)))

    def _demand(self, moment: MemoryColumns) -> Floats:
        """Return the KiB of each rank when nothing recomputes."""
        kept, flight = moment.kept, moment.flight
        lead = self.lead[:, None]
        demand = np.einsum("pcrk,nk->npr", self.held, kept.layer) + kept.fixed[:, None, None]
        each = np.einsum("pcrk,nk->npcr", self.held, flight.layer)
        demand += (lead * (each + flight.fixed[:, None, None, None])).sum(axis=2)
        first, last = self.lead[:, 0, 0], self.lead[:, -1, -1]
        demand[:, :, 0] += (kept.first + first * flight.first)[:, None]
        demand[:, :, -1] += (kept.last + last * flight.last)[:, None]
        return np.asarray(demand)
