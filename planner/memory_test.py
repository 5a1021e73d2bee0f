"""Which strategies cannot fit whatever their placement: necessary conditions, for many strategies at once.

For every moment and rank, with the micro-batches in flight that the schedule keeps there, and every layer
recomputing where that saves memory: a stage must hold one layer, and all stages together the whole model.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.strategy import SCHEDULES
from planner.priced_rows import Floats, LinearColumns, MemoryColumns, TimeRows

_GPIPE, _WAVE, _INTERLEAVED, _ZERO_BUBBLE, _NO_FLUSH = map(SCHEDULES.index, SCHEDULES)


class Verdict(NamedTuple):
    """For each row, whether it may fit, and about how many KiB a rank lacks where it cannot."""

    may_fit: NDArray[np.bool_]
    shortage_kib: Floats


def memory_verdict(rows: TimeRows, memory: tuple[MemoryColumns, ...], limit_kib: int) -> Verdict:
    """Judge rows that all their moments are given for."""
    may_fit = np.ones(len(rows.ranks), dtype=np.bool_)
    shortage = np.zeros(len(rows.ranks))
    for ranks in np.unique(rows.ranks):
        chosen = np.flatnonzero(rows.ranks == ranks)
        part = _Part(rows.at(chosen, ()), limit_kib)
        for moment in memory:
            lack = part.lack(moment.at(chosen))
            may_fit[chosen] &= lack <= 0
            shortage[chosen] = np.maximum(shortage[chosen], lack)
    return Verdict(may_fit, shortage)


class _Part:
    """Rows with equally many ranks: arrays over (row, rank) and (row, rank, kind)."""

    def __init__(self, rows: TimeRows, limit_kib: int) -> None:
        self.rows, self.limit = rows, float(limit_kib)
        self.ranks = int(rows.ranks[0])
        self.chunks = rows.chunks.astype(np.float64)[:, None]
        self.totals = np.bincount(rows.kinds, minlength=rows.forward.layer.shape[1])
        self.interleaved = (rows.schedule == _INTERLEAVED)[:, None]
        self.flight = self._in_flight()

    def _in_flight(self) -> Floats:
        """Return micro-batch chunks in flight at the peak, as costmodel.schedules.in_flight sums them."""
        rank = np.arange(self.ranks, dtype=np.float64)[None, :]
        m, p = self.rows.microbatches.astype(np.float64)[:, None], float(self.ranks)
        schedule = self.rows.schedule[:, None]
        ahead = 2 * (p - 1 - rank) + (self.chunks - 1) * p + 1
        flight = np.where(schedule == _WAVE, np.minimum(m, p - rank), m + 0 * rank)
        flight = np.where(schedule == _ZERO_BUBBLE, np.minimum(m, p), flight)
        flight = np.where(schedule == _NO_FLUSH, p - rank, flight)
        return np.where(self.interleaved, np.minimum(m * self.chunks, ahead), flight)

    def lack(self, moment: MemoryColumns) -> Floats:
        """Return the KiB that a rank lacks at least; not positive where nothing is proved to lack."""
        room = self._room(moment)
        kept, flight = self._cheapest(moment.kept), self._cheapest(moment.flight)
        cost = kept[:, None, :] + self.flight[:, :, None] * flight[:, None, :]
        one = (cost.min(axis=2) - room).max(axis=1)
        whole = self._whole(cost, room)
        interleaved = self._interleaved(kept, flight, room)
        return np.where(self.interleaved[:, 0], interleaved, np.maximum(one, whole))

    def _room(self, moment: MemoryColumns) -> Floats:
        """Return the KiB that layers may take, by row and rank."""
        kept, flight = moment.kept, moment.flight
        room = self.limit - kept.fixed[:, None] - self.flight * flight.fixed[:, None]
        # Only one chunk holds the embedding or the head: interleaving keeps at least one micro-batch of it.
        often = np.where(self.interleaved, 1.0, self.flight)
        room[:, 0] -= kept.first + often[:, 0] * flight.first
        room[:, -1] -= kept.last + often[:, -1] * flight.last
        return room

    def _cheapest(self, linear: LinearColumns) -> Floats:
        again = linear.layer + linear.recomputed
        cheaper = np.minimum(again, linear.layer)
        return np.where(self.rows.recompute_all[:, None], again, cheaper)

    def _whole(self, cost: Floats, room: Floats) -> Floats:
        """Return what the mean rank lacks to hold all layers.

        With any weights u_k of the kinds, rank s holds at most room_s max_k(u_k / cost_ks) of the total
        sum_k u_k N_k; u_k is the mean cost here. With one kind whole layers are counted.
        """
        weight = cost.mean(axis=1)
        total = weight @ self.totals
        if len(self.totals) == 1:
            held = (np.floor(room / cost[:, :, 0]) * weight).sum(axis=1)
        else:
            held = (room * (weight[:, None, :] / cost).max(axis=2)).sum(axis=1)
        return np.asarray((total - held) / self.ranks)

    def _interleaved(self, kept: Floats, flight: Floats, room: Floats) -> Floats:
        """Return what a rank lacks when each chunk holds only as many layers as the smallest one."""
        smallest = np.floor(len(self.rows.kinds) / (self.ranks * self.chunks))
        layers = self.chunks * kept.min(axis=1)[:, None] + self.flight * flight.min(axis=1)[:, None]
        return np.asarray((smallest * layers - room).max(axis=1))
