"""Closed-form lower bounds of the iteration, for many strategies at once.

No placement of a strategy simulates faster than its bound. With S the time of one micro-batch through all stages
(forward and backward), t_s its part on stage s, c the fastest hop, m micro-batches, p ranks, D_s the finish of rank s:

    every schedule   (m S + sum D) / p: some rank has the mean work
                     m ceil(L/p) t + D(ceil(L/p)): some rank has as many layers (one kind of layer)
                     m t_0 + D_0, with one layer on the first stage
    1F1B, m > p      (m + p - 1)/p S + 2 (p-1) c ceil(m/p) + D_0: mean of the idle rows over the stages
                     S + (m-1)/(p-1) (S - t_0) + D_0: the same for stages 1 to p - 1, when t_0 and D_0 are small
    1F1B, m <= p     S / (1 - (1 - 1/m)^p) + D_0
    GPipe            as 1F1B with m > p, the hops paid once
    interleaved      (m v + p - 1) q + m h + 2 (p-1) c + D_0 with q the smallest chunk, h the head
    ZB-H1            S' + (m-1) t'_{p-1} + 2 (p-1) c + D_0, with S', t' without weight gradients
    1F1B, GPipe      S + (m-1) t_{p-1} + 2 (p-1) c + D_0, with one layer on the last stage

Recomputation is left out (it only adds) unless every layer recomputes.
"""

import numpy as np
from numpy.typing import NDArray

from costmodel.strategy import SCHEDULES
from planner.priced_rows import Floats, LinearColumns, TimeRows

_GPIPE, _WAVE, _INTERLEAVED, _ZERO_BUBBLE, _NO_FLUSH = map(SCHEDULES.index, SCHEDULES)


def time_bounds(rows: TimeRows) -> NDArray[np.int64]:
    """Return a lower bound of the iteration in nanoseconds for each row."""
    bounds = _Bounds(rows)
    best = bounds.without_finish()
    for finish in rows.finish:
        best = np.maximum(best, bounds.with_finish(finish))
    # Float arithmetic is good to 2^-53; one part in 10^12 and a nanosecond cover a few hundred operations.
    return np.asarray(np.floor(best * (1 - 1e-12)) - 1, dtype=np.int64)


class _Bounds:
    """All rows of the bounds, each an array over the strategies."""

    def __init__(self, rows: TimeRows) -> None:
        self.rows = rows
        self.p, self.v = rows.ranks.astype(np.float64), rows.chunks.astype(np.float64)
        self.m = rows.microbatches.astype(np.float64)
        self.totals = np.bincount(rows.kinds, minlength=rows.forward.layer.shape[1]).astype(
            np.float64
        )
        self.layers = len(rows.kinds)
        forward, backward = self._layer(rows.forward), self._layer(rows.backward)
        self.forward_layer, self.layer = forward, forward + backward
        self.fixed = rows.forward.fixed + rows.backward.fixed
        self.first = rows.forward.first + rows.backward.first
        self.last = rows.forward.last + rows.backward.last
        stages = self.p * self.v
        self.whole = self.layer @ self.totals + stages * self.fixed + self.first + self.last
        self.hops: Floats = np.where(self._is(_NO_FLUSH), 0, (self.p - 1) * rows.hop)
        self.smallest = self.layer[:, rows.kinds[0]]
        self.more = self.m - 1
        self.others = np.maximum(self.p - 1, 1)

    def _layer(self, linear: LinearColumns) -> Floats:
        again = np.where(self.rows.recompute_all[:, None], linear.recomputed, 0)
        return np.asarray(linear.layer + again)

    def _is(self, schedule: int) -> NDArray[np.bool_]:
        return np.asarray(self.rows.schedule == schedule)

    def without_finish(self) -> Floats:
        """Return the bounds with nothing after the last backward."""
        nothing = np.zeros_like(self.p)
        none = np.zeros_like(self.layer)
        return self.with_finish(LinearColumns(nothing, nothing, nothing, none, none))

    def with_finish(self, finish: LinearColumns) -> Floats:
        """Return the bounds when every rank pays this alternative."""
        layer = self._layer(finish)
        first = finish.fixed + finish.first + np.where(self.p == 1, finish.last, 0)
        least = first + layer[:, self.rows.kinds[0]]
        total = layer @ self.totals + self.p * finish.fixed + finish.first + finish.last
        bound = np.maximum(self._mean(total), self._first_stage(least))
        if len(self.totals) == 1:
            bound = np.maximum(bound, self._largest(finish.fixed, layer[:, 0]))
        ratio = (layer / np.maximum(self.layer, 1)).min(axis=1)
        textbook = np.maximum(self._textbook(first, ratio, layer), self._last_stage(least))
        wave = np.where(
            self.m > self.p, textbook, np.maximum(self._short(least), self._last_stage(least))
        )
        bound = np.where(self._is(_WAVE), np.maximum(bound, wave), bound)
        bound = np.where(self._is(_GPIPE), np.maximum(bound, textbook), bound)
        if (zero_bubble := self._is(_ZERO_BUBBLE)).any():
            bound = np.where(zero_bubble, np.maximum(bound, self._split(least)), bound)
        chunks = np.maximum(self._chunks(least), self._mean_chunk(total, least))
        return np.where(self._is(_INTERLEAVED), np.maximum(bound, chunks), bound)

    def _mean(self, total_finish: Floats) -> Floats:
        """Some rank has the mean of work and finish, and starts after the first hops before it."""
        return (self.m * self.whole + total_finish) / self.p + self.hops / 2

    def _first_stage(self, finish: Floats) -> Floats:
        return self.m * (self.v * self.fixed + self.first + self.smallest) + finish

    def _largest(self, finish_fixed: Floats, finish_layer: Floats) -> Floats:
        """Some rank holds at least ceil(layers / p) layers."""
        most = np.ceil(self.layers / self.p)
        busy = self.m * (most * self.layer[:, 0] + self.v * self.fixed)
        return busy + finish_fixed + most * finish_layer

    def _last_stage(self, finish: Floats) -> Floats:
        stage = self.fixed + self.last + self.layer[:, self.rows.kinds[-1]]
        return self.whole + self.more * stage + 2 * self.hops + finish

    def _split(self, finish: Floats) -> Floats:
        """ZB-H1: to the last rank, its forwards and input gradients, and back without weight gradients."""
        weight = self._layer(self.rows.weight)
        weights = weight @ self.totals + self.p * self.rows.weight.fixed
        weights += self.rows.weight.first + self.rows.weight.last
        kind = self.rows.kinds[-1]
        stage = self.fixed + self.last + self.layer[:, kind]
        stage = stage - self.rows.weight.fixed - self.rows.weight.last - weight[:, kind]
        return self.whole - weights + self.more * stage + 2 * self.hops + finish

    def _short(self, finish: Floats) -> Floats:
        """The 1F1B mean that holds for m <= p."""
        return self.whole / (1 - (1 - 1 / self.m) ** self.p) + finish

    def _textbook(self, finish_first: Floats, ratio: Floats, finish_layer: Floats) -> Floats:
        """Return the least of the textbook rows over the layer time x on the first stage.

        The finish grows by at least ``ratio`` for each nanosecond of x; the mean over all stages does not
        depend on x, that over the others falls with it: the least is at their crossing, or at one layer.
        """
        often = np.where(self._is(_WAVE), np.ceil(self.m / self.p), 1)
        mean = self.whole * (self.m + self.p - 1) / self.p + 2 * self.hops * often
        slope = self.more / self.others
        ends = self.fixed + self.first
        crossing = self.whole - (mean - self.whole - 2 * self.hops) / np.maximum(slope, 1e-9) - ends
        at_one = finish_first + finish_layer[:, self.rows.kinds[0]]
        least = np.full_like(mean, np.inf)
        for time, finish in ((self.smallest, at_one), (crossing, finish_first + ratio * crossing)):
            others = self.whole + slope * (self.whole - ends - time) + 2 * self.hops
            value = np.maximum(mean, others) + finish
            least = np.where(time >= self.smallest, np.minimum(least, value), least)
        return np.where(self.p > 1, least, mean + at_one)

    def _smallest_chunk(self, layer: Floats) -> Floats:
        return np.asarray(np.floor(self.layers / (self.p * self.v)) * layer.min(axis=1))

    def _chunks(self, finish: Floats) -> Floats:
        """The interleaved pipeline with every chunk as small as the smallest."""
        steps = self.m * self.v + self.p - 1
        chunk = self._smallest_chunk(self.layer) + self.fixed
        return steps * chunk + self.m * self.last + 2 * self.hops + finish

    def _mean_chunk(self, total_finish: Floats, finish: Floats) -> Floats:
        """Mean over ranks of: first chunks before it, its work, and back again or its own finish."""
        chunk = self._smallest_chunk(self.layer) + self.fixed
        forward = self._smallest_chunk(self.forward_layer) + self.rows.forward.fixed
        work = self.m * self.whole / self.p
        there = (self.p - 1) / 2 * forward + self.hops / 2
        back = (self.p - 1) / 2 * chunk + self.hops + finish
        return work + np.maximum(there + total_finish / self.p, back)
