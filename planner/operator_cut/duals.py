"""Lower bounds on the cost of recomputation, for many stages at once: Lagrangian duals of the choice of runs.

At a price of a saved MiB every piece of a layer chooses its runs for itself: it takes those whose saving at that price exceeds their
cost. What saving a target costs is at least the target at that price less what the pieces gain, at every price (weak duality).
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.operator_cut.definition import Floats
from planner.operator_cut.runs import ROUNDING_MIB, SIZE, Run, Runs

_BETWEEN = 3  # prices from one corner of the hull to the next


class Pieces:
    """The layers that stages hold, as arrays: the first, the last (its end) and the number of whole ones between."""

    __slots__ = ("left", "left_end", "right_end", "whole")

    def __init__(self, first: NDArray[np.intp], end: NDArray[np.intp], operators: int) -> None:
        low, high = np.maximum(first, 1) - 1, np.minimum(end, operators - 2) - 1
        layer, self.left = np.divmod(low, SIZE)
        last, stop = np.divmod(np.maximum(high, low), SIZE)
        within = layer == last
        self.left_end = np.where(within, stop, SIZE)
        self.right_end = np.where(within, 0, stop)
        self.whole = np.maximum(last - layer - 1, 0)


class Duals:
    """Bounds for one set of operators."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self.caps = np.array(runs.caps)

    @cached_property
    def prices_s(self) -> Floats:
        """Seconds for a saved MiB: slopes of a layer's own convex hull, with some between, and the best of each cap."""
        hull = _hull(self._runs.front((0, SIZE), np.inf).points)
        corners = np.diff(hull[:, 1]) / np.diff(hull[:, 0])
        fine = np.interp(np.arange(0, len(corners), 1 / _BETWEEN), np.arange(len(corners)), corners)
        return np.unique(np.concatenate([fine, self._ratios]))

    @cached_property
    def _ratios(self) -> Floats:
        """Smallest cost per saved MiB of the runs that each cap admits."""
        runs = self._runs
        ratio = np.array([runs.cost[run] / runs.saved[run] for run in runs.paying])
        held = np.array([runs.held[run] for run in runs.paying])
        admitted = held <= self.caps[:, None] + ROUNDING_MIB
        return np.unique(np.where(admitted, ratio, np.inf).min(axis=1))

    @cached_property
    def _gains(self) -> Floats:
        """What a piece gains, by its first operator, its end, the cap on its runs and the price."""
        prices = self.prices_s
        return self._most(
            {
                run: prices * self._runs.saved[run] - self._runs.cost[run]
                for run in self._runs.paying
            }
        )

    @cached_property
    def _savings(self) -> Floats:
        """What a piece saves at most, by its first operator, its end and the cap on its runs."""
        return self._most({run: np.array([self._runs.saved[run]]) for run in self._runs.paying})[
            ..., 0
        ]

    def _most(self, gains: Mapping[Run, Floats]) -> Floats:
        """Return the most that disjoint runs of a piece gain: extended operator by operator, as the fronts are."""
        upto = np.zeros((SIZE + 1, SIZE + 2, len(self.caps), len(next(iter(gains.values())))))
        for end in range(1, SIZE + 2):
            upto[:, end] = upto[:, end - 1]
            for run in (run for run in gains if run[1] == end - 2):
                caps = slice(
                    int(np.searchsorted(self.caps, self._runs.held[run] - ROUNDING_MIB)), None
                )
                rows = slice(0, run[0] + 1)
                grown = upto[rows, run[0], caps] + gains[run]
                np.maximum(upto[rows, end, caps], grown, out=upto[rows, end, caps])
        return upto

    def least(self, pieces: Pieces, excess_mib: Floats, in_flight: int) -> Floats:
        """Return seconds that freeing ``excess_mib`` costs stages at least: one row a stage, one column a cap.

        Infinite where all runs that the cap admits do not free it.
        """
        target = (excess_mib[:, None] + self.caps) / in_flight
        gain, saved = (_together(table, pieces) for table in (self._gains, self._savings))
        cost = (target[:, :, None] * self.prices_s - gain).max(axis=2)
        return np.where(saved < target - ROUNDING_MIB, np.inf, cost)


def _together(table: Floats, pieces: Pieces) -> Floats:
    """Return the sums over the pieces of stages of what a table holds for each (first operator, end)."""
    whole = pieces.whole.reshape(-1, *[1] * (table.ndim - 2))
    both = table[pieces.left, pieces.left_end + 1] + table[0, pieces.right_end + 1]
    return np.asarray(both + whole * table[0, SIZE + 1])


def _hull(points: Floats) -> Floats:
    """Return the lower convex hull of a front."""
    hull: list[Floats] = []
    for point in points:
        while len(hull) > 1 and _turns_down(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return np.array(hull)


def _turns_down(one: Floats, two: Floats, three: Floats) -> bool:
    """Whether ``two`` lies on or above the line from ``one`` to ``three``."""
    left, right = two - one, three - one
    return bool(left[1] * right[0] >= right[1] * left[0])
