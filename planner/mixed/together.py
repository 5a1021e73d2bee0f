"""Closed-form bounds of what the device groups can do together, for many strategies at once.

Stage s on group g takes t_s >= r_g y_s + e, with y_s its layers at the smallest prices of all groups, r_g >= 1 how much
slower g is at least, and e what every stage takes. All stages hold all layers: sum y_s = Y. Let c_g ranks stand on group g,
and K = sum c_g / r_g, largest where the fastest slots are taken first. Then with finish D, an iteration takes at least

    every schedule   Y'/K' + m v e + e', the same with m t_s + D_s in the place of t_s
    1F1B, m > p      (m + p - 1)(Y/K + e) + 2 (p-1) c + D_0, if (m + p - 1) y/K >= 2 r y for the slowest group; also GPipe

The second: the rows S + R_s + (m - w_s) t_s of planner.rows with weights l_s that make the coefficient of every t_s
equal to k / r_s, k = (m + p - 1)/K. Then l_s (m - p + s) = k / r_s - 1 - (the weights before s), which is not negative if
k / r_s >= 2, whatever the order of the groups. For GPipe S + (m-1) t_s and k / r_s >= 1 suffice.
"""

from collections.abc import Sequence

import numpy as np

from costmodel.strategy import SCHEDULES
from planner.coefficients import Ints
from planner.columns import IntColumn
from planner.priced_rows import Floats, LinearColumns, TimeRows

_TEXTBOOK = [SCHEDULES.index(name) for name in ("1f1b", "gpipe")]


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
        best = np.maximum(best, self._textbook(after))
        held = self.slots.any(axis=0)
        return np.asarray(np.where(held, np.floor(best * (1 - 1e-12)) - 1, 0), dtype=np.int64)

    def _shared(self, costs: Sequence[Floats], smallest: Floats, fixed: Floats) -> Floats:
        """Return the time in which ranks of these costs of a layer, by kind, together hold all layers."""
        speed, _ = self._speed(costs, smallest)
        return np.asarray(smallest @ self.totals / speed + fixed)

    def _speed(self, costs: Sequence[Floats], smallest: Floats) -> tuple[Floats, Floats]:
        """Return K, and how much slower than the smallest prices the slowest group with a slot is."""
        safe = np.maximum(smallest, 1e-9)
        slower = np.stack([(cost / safe).min(axis=1) for cost in costs])
        slower = np.where(self.slots > 0, np.maximum(slower, 1e-9), np.inf)
        left, speed = self.p.copy(), np.zeros_like(self.p)
        for group in np.argsort(slower, axis=0, kind="stable"):
            rate = np.take_along_axis(slower, group[None], axis=0)[0]
            taken = np.minimum(left, np.take_along_axis(self.slots, group[None], axis=0)[0])
            left, speed = left - taken, speed + taken / rate
        worst = np.where(np.isfinite(slower), slower, 0).max(axis=0)
        return np.maximum(speed, 1e-9), worst

    def _textbook(self, after: Floats) -> Floats:
        speed, worst = self._speed(self.pace, self.layer)
        steps = self.m + self.p - 1
        fits = np.isin(self.least.schedule, _TEXTBOOK) & (self.m > self.p) & (self.p > 1)
        fits &= steps / speed >= 2 * worst
        bound = steps * (self.layer @ self.totals / speed + self.fixed) + after
        return np.where(fits, bound + 2 * (self.p - 1) * self.least.hop, 0)
