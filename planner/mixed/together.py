"""Closed-form bounds of what the device groups can do together, for many strategies at once.

Stage s on group g takes t_s >= r_g y_s + e, with y_s its layers at the smallest prices of all groups, r_g >= 1 how much
slower g is at least, and e what every stage takes. All stages hold all layers: sum y_s = Y. Let c_g ranks stand on group g,
and K = sum c_g / r_g, largest where the fastest slots are taken first. Then with finish D, an iteration takes at least

    every schedule   Y'/K' + m v e + e', the same with m t_s + D_s in the place of t_s
    1F1B             m Y / sum (1 - 1/m)^s / r_s + m e + D_0, fastest ranks first, if that is at least r Y
    1F1B, m > p      (m + p - 1)(Y/K + e) + 2 (p-1) c + D_0, if that is at least 2 r Y
    GPipe            the same if it is at least r Y, for r of the slowest group

Each weighs rows of planner.rows, l_s to stage s, so that the coefficient of every t_s becomes k / r_s. The second takes
P_s + m t_s: m l_s = k / r_s - (the weights behind s). The third takes S + R_s + (m - w_s) t_s: l_s (m - p + s) =
k / r_s - 1 - (the weights before s), which for GPipe, with S + (m - 1) t_s, is k / r_s - 1. Weights must not be negative and
sum to one, which gives k; the weights of others sum to at most one, which gives the conditions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from costmodel.strategy import SCHEDULES
from planner.coefficients import Ints
from planner.columns import IntColumn
from planner.priced_rows import Floats, LinearColumns, TimeRows

_WAVE, _GPIPE = SCHEDULES.index("1f1b"), SCHEDULES.index("gpipe")


class _Fastest(NamedTuple):
    """K, the same with rank s counted (1 - 1/m)^s times, and r of the slowest group with a slot."""

    speed: Floats
    fading: Floats
    slowest: Floats


def together(
    least: TimeRows,
    by_group: Sequence[TimeRows],
    finish: Sequence[Sequence[LinearColumns]],
    slots: Ints,
) -> IntColumn:
    """Return a lower bound of the iteration in nanoseconds for each row; 0 where no group can hold a rank.

    Args:
        least: The smallest prices over the groups, with their finish where it is priced.
        by_group: Prices of each group.
        finish: Alternatives of each group; empty where they are not priced.
        slots: How many ranks each group can hold, by group and row.
    """
    return _Together(least, by_group, slots).bounds(finish)


class _Together:
    """Arrays over rows; groups on the first axis."""

    def __init__(self, least: TimeRows, by_group: Sequence[TimeRows], slots: Ints) -> None:
        self.least, self.slots = least, slots
        self.again = least.recompute_all[:, None]
        self.totals = np.bincount(least.kinds, minlength=least.forward.layer.shape[1])
        self.m, self.p = least.microbatches.astype(np.float64), least.ranks.astype(np.float64)
        self.pace = [self._layer(item.forward) + self._layer(item.backward) for item in by_group]
        self.layer = self._layer(least.forward) + self._layer(least.backward)
        self.fixed = least.forward.fixed + least.backward.fixed

    def _layer(self, linear: LinearColumns) -> Floats:
        return np.asarray(linear.layer + np.where(self.again, linear.recomputed, 0))

    def bounds(self, finish: Sequence[Sequence[LinearColumns]]) -> IntColumn:
        """Return the larger bound of each row."""
        best = self._shared(
            [self.m[:, None] * pace for pace in self.pace],
            self.m[:, None] * self.layer,
            self.m * self.least.chunks * self.fixed,
        )
        after: Floats = np.zeros_like(best)
        for ways, low in zip(zip(*finish, strict=True), self.least.finish, strict=False):
            costs = [
                self.m[:, None] * pace + self._layer(way)
                for pace, way in zip(self.pace, ways, strict=True)
            ]
            smallest = self.m[:, None] * self.layer + self._layer(low)
            fixed = self.m * self.least.chunks * self.fixed + low.fixed
            best = np.maximum(best, self._shared(costs, smallest, fixed))
            after = np.maximum(after, low.fixed + low.first + self._layer(low).min(axis=1))
        best = np.maximum(best, self._weighted(after))
        held = self.slots.any(axis=0)
        return np.asarray(np.where(held, np.floor(best * (1 - 1e-12)) - 1, 0), dtype=np.int64)

    def _shared(self, costs: Sequence[Floats], smallest: Floats, fixed: Floats) -> Floats:
        """Return the time in which ranks of these costs of a layer, by kind, together hold all layers."""
        speed = self._fastest(costs, smallest).speed
        return np.asarray(smallest @ self.totals / speed + fixed)

    def _fastest(self, costs: Sequence[Floats], smallest: Floats) -> _Fastest:
        """Take the fastest slots first."""
        safe = np.maximum(smallest, 1e-9)
        slower = np.stack([(cost / safe).min(axis=1) for cost in costs])
        slower = np.where(self.slots > 0, np.maximum(slower, 1e-9), np.inf)
        place, speed, fading = (np.zeros_like(self.p) for _ in range(3))
        keep = 1 - 1 / self.m
        for group in np.argsort(slower, axis=0, kind="stable"):
            rate = np.take_along_axis(slower, group[None], axis=0)[0]
            slots = np.take_along_axis(self.slots, group[None], axis=0)[0]
            after = np.minimum(self.p, place + slots)
            speed += (after - place) / rate
            fading += self.m * (keep**place - keep**after) / rate
            place = after
        slowest = np.where(np.isfinite(slower), slower, 0).max(axis=0)
        return _Fastest(np.maximum(speed, 1e-9), np.maximum(fading, 1e-9), slowest)

    def _weighted(self, after: Floats) -> Floats:
        """Return the largest of the weighted rows that hold."""
        fast, schedule = self._fastest(self.pace, self.layer), self.least.schedule
        whole, steps = self.layer @ self.totals, self.m + self.p - 1
        chain = self.m / fast.fading
        bound = np.where(
            (schedule == _WAVE) & (chain >= fast.slowest),
            chain * whole + self.m * self.fixed + after,
            0,
        )
        often = np.where(schedule == _GPIPE, 1, 2)
        holds = ((schedule == _WAVE) & (self.m > self.p)) | (schedule == _GPIPE)
        holds &= (steps / fast.speed >= often * fast.slowest) & (self.p > 1) & (self.m > 1)
        textbook = steps * (whole / fast.speed + self.fixed) + after
        return np.maximum(bound, np.where(holds, textbook + 2 * (self.p - 1) * self.least.hop, 0))
