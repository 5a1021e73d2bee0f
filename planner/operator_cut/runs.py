"""Runs of recomputed operators within a layer, and the fronts of what several of them save at what cost.

A run saves the activations of all of it but the last, costs the forward of all of it and holds, while it is recomputed, what it saves.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from planner.operator_cut.definition import LAYER, Floats, Operators

SIZE = len(LAYER)
ROUNDING_MIB = 1e-6
_LEAST_GAIN_S = 1e-15
Run = tuple[int, int]
"""First and last operator of a run within its layer."""
Piece = tuple[int, int]
"""Operators of a layer that a stage holds: first and end (exclusive)."""
_Point = tuple[float, float, tuple[Run, ...]]


class Runs:
    """All runs of one layer of a set of operators.

    A run that ends with its layer grows by that last operator if the next layer's first is recomputed too. It is counted
    without it (a bound, exact wherever that does not happen), or with it where ``strict`` (always enough memory).
    """

    def __init__(self, operators: Operators, *, strict: bool) -> None:
        forward, kept = operators.forward[1 : 1 + SIZE], operators.kept[1 : 1 + SIZE]
        pairs = [(x, y) for x in range(SIZE) for y in range(x + 1, SIZE)]
        self.saved = {(x, y): float(kept[x:y].sum()) for x, y in pairs}
        self.cost = {(x, y): float(forward[x : y + 1].sum()) for x, y in pairs}
        growth = float(kept[-1]) if strict else 0.0
        self.held = {r: s + (growth if r[1] == SIZE - 1 else 0.0) for r, s in self.saved.items()}
        self._fronts: dict[tuple[Piece, float], Front] = {}
        self._ends: dict[tuple[Piece, Piece, float], Floats] = {}
        self._layers: dict[float, list[Floats]] = {}

    @cached_property
    def paying(self) -> tuple[Run, ...]:
        """Runs that save something."""
        return tuple(run for run, saved in self.saved.items() if saved > 0)

    @cached_property
    def caps(self) -> tuple[float, ...]:
        """Distinct sizes of runs, rising."""
        return tuple(sorted({round(self.held[run], 6) for run in self.paying}))

    def front(self, piece: Piece, cap: float) -> "Front":
        """Return the choices of a piece with runs of at most ``cap``."""
        key = (piece, cap)
        if key not in self._fronts:
            self._fronts[key] = self._front(*piece, cap)
        return self._fronts[key]

    def _front(self, low: int, high: int, cap: float) -> "Front":
        """Extend the choices operator by operator; one operator stays between two runs, or they were one."""
        upto: list[list[_Point]] = [[(0.0, 0.0, ())]]
        for end in range(low + 1, high + 2):
            points = list(upto[-1])
            for run in ((start, end - 2) for start in range(low, end - 2)):
                saved, cost = self.saved[run], self.cost[run]
                if saved > 0 and self.held[run] <= cap + ROUNDING_MIB:
                    before = upto[run[0] - low]
                    points += [(s + saved, c + cost, (*runs, run)) for s, c, runs in before]
            upto.append(_pareto(points))
        return Front(upto[-1])

    def ends(self, left: Piece, right: Piece, cap: float) -> Floats:
        """Return the front (saved, cost) of two pieces together."""
        key = (left, right, cap)
        if key not in self._ends:
            pair = (self.front(piece, cap).points for piece in (left, right))
            self._ends[key] = summed(*pair)
        return self._ends[key]

    def layers(self, number: int, cap: float) -> Floats:
        """Return the front (saved, cost) of ``number`` whole layers together."""
        sums = self._layers.setdefault(cap, [np.zeros((1, 2))])
        while len(sums) <= number:
            sums.append(summed(sums[-1], self.front((0, SIZE), cap).points))
        return sums[number]


class Front:
    """Choices of one piece: (saved, cost) rising in both, and the runs behind each."""

    __slots__ = ("points", "runs")

    def __init__(self, points: Sequence[_Point]) -> None:
        self.points = np.array([point[:2] for point in points])
        self.runs = [point[2] for point in points]


def _pareto(points: list[_Point]) -> list[_Point]:
    """Keep points that no other beats in both saved (more) and cost (less)."""
    kept: list[_Point] = []
    least = math.inf
    for point in sorted(points, key=lambda p: (-p[0], p[1])):
        if point[1] < least - _LEAST_GAIN_S:
            kept.append(point)
            least = point[1]
    return kept[::-1]


def summed(left: Floats, right: Floats) -> Floats:
    """Return the front of all sums of a point of each."""
    points = (left[:, None, :] + right[None, :, :]).reshape(-1, 2)
    points = points[np.lexsort((points[:, 1], -points[:, 0]))]
    least = np.minimum.accumulate(points[:, 1])
    kept = np.ones(len(points), dtype=bool)
    kept[1:] = points[1:, 1] < least[:-1] - _LEAST_GAIN_S
    return points[kept][::-1]
