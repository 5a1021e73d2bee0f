"""The cheapest recomputation of a stage that frees enough memory: exact, by Pareto fronts.

A run of recomputed operators saves the activations of all of it but the last and costs their forward. Runs pay within a layer only (an
activation before a first norm is kept in any case), layers are equal, and the working set is the largest run. So for every cap on a
run's size the choices of a layer are a front of (saved, cost), that of n layers their n-fold sum, and a stage needs the cheapest point of
its own sum that saves what is needed plus the cap.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.operator_cut.definition import LAYER, Floats, Operators

_TOLERANCE = 1e-9
_SIZE = len(LAYER)
Run = tuple[int, int]
"""First and last operator of a run within its layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A recomputation: its cost, the cap on its runs and what it has to save for each micro-batch."""

    cost_s: float
    cap: float
    target: float


class Recomputation:
    """Chooses recomputation for stages of one set of operators.

    A run that ends with its layer grows by that last operator if the next layer's first is recomputed too. It is counted
    without it (a bound, exact wherever that does not happen), or with it where ``strict`` (always enough memory).
    """

    def __init__(self, operators: Operators, *, strict: bool = False) -> None:
        self.strict = strict
        self.forward, self.kept = operators.forward[1 : 1 + _SIZE], operators.kept[1 : 1 + _SIZE]
        self._last = operators.count - 2
        self._fronts: dict[tuple[int, int, float], _Front] = {}
        self._sums: dict[tuple[object, ...], Floats] = {}

    @cached_property
    def caps(self) -> tuple[float, ...]:
        """Distinct sizes of runs, rising."""
        sizes = {round(self.held(run), 6) for run in self._runs(0, _SIZE)}
        return tuple(sorted(size for size in sizes if size > 0))

    @cached_property
    def _caps(self) -> Floats:
        return np.array(self.caps)

    @cached_property
    def _ratios(self) -> Floats:
        """Smallest cost per saved MiB of the runs that each cap admits."""
        runs = [run for run in self._runs(0, _SIZE) if self.saved(run) > 0]
        ratio = {run: self.cost(run) / self.saved(run) for run in runs}
        return np.array(
            [
                min((ratio[r] for r in runs if self.held(r) <= cap + 1e-6), default=math.inf)
                for cap in self.caps
            ]
        )

    def saved(self, run: Run) -> float:
        """Return the MiB a run saves for each micro-batch."""
        return float(self.kept[run[0] : run[1]].sum())

    def held(self, run: Run) -> float:
        """Return the MiB a run holds while it is recomputed."""
        grows = self.strict and run[1] == _SIZE - 1
        return self.saved(run) + (float(self.kept[-1]) if grows else 0.0)

    def cost(self, run: Run) -> float:
        """Return the seconds of a run's forward."""
        return float(self.forward[run[0] : run[1] + 1].sum())

    @staticmethod
    def _runs(low: int, high: int) -> Iterable[Run]:
        return ((x, y) for x in range(low, high) for y in range(x + 1, high))

    @cached_property
    def _hull(self) -> Floats:
        """Lower convex hull of what one whole layer can save and at what cost."""
        hull: list[Floats] = []
        for point in self.front(0, _SIZE, math.inf).points:
            while len(hull) > 1 and _turns_down(hull[-2], hull[-1], point):
                hull.pop()
            hull.append(point)
        return np.array(hull)

    def bounds(self, first: int, end: int, excess_mib: float, in_flight: int) -> Floats:
        """Return, by cap, seconds that freeing ``excess_mib`` costs a stage at least.

        Partial layers count as whole ones and layers share the saving evenly: a convex cost is least then.
        """
        if excess_mib <= 0:
            return np.zeros(1)
        partial, whole = self.shape(first, end)
        layers = max(whole + len(partial), 1)
        target = (excess_mib + self._caps) / in_flight
        saved, cost = self._hull[:, 0], self._hull[:, 1]
        shared = np.interp(target / layers, saved, cost, right=math.inf) * layers
        bounds: Floats = np.maximum(shared, target * self._ratios)
        return bounds

    def cheapest(
        self, first: int, end: int, excess_mib: float, in_flight: int, limit_s: float = math.inf
    ) -> Choice | None:
        """Return the cheapest choice that frees a stage's ``excess_mib``, None if none costs less than ``limit_s``."""
        if excess_mib <= 0:
            return Choice(cost_s=0.0, cap=0.0, target=0.0) if limit_s > 0 else None
        shape, bounds = self.shape(first, end), self.bounds(first, end, excess_mib, in_flight)
        best, least_s = None, limit_s
        for number in np.argsort(bounds):
            if bounds[number] >= least_s:
                break
            cap = self.caps[number]
            target = (excess_mib + cap) / in_flight
            cost = self._least(shape, cap, target)
            if cost is not None and cost < least_s:
                best, least_s = Choice(cost_s=cost, cap=cap, target=target), cost
        return best

    def shape(self, first: int, end: int) -> tuple[tuple[Run, ...], int]:
        """Return the partial layers of a stage (as ranges of operators) and its number of whole layers."""
        low, high = max(first, 1) - 1, min(end, self._last) - 1
        if high <= low:
            return (), 0
        (layer, start), (last, stop) = divmod(low, _SIZE), divmod(high, _SIZE)
        if layer == last:
            return ((start, stop),), 0
        partial = [(start, _SIZE)] if start else []
        partial += [(0, stop)] if stop else []
        return tuple(partial), last - layer - bool(start)

    def _least(self, shape: tuple[tuple[Run, ...], int], cap: float, target: float) -> float | None:
        partial, whole = shape
        ends, middle = self._ends(partial, cap), self._layers(whole, cap)
        at = np.searchsorted(middle[:, 0], target - ends[:, 0] - _TOLERANCE)
        enough = at < len(middle)
        if not enough.any():
            return None
        return float((ends[enough, 1] + middle[at[enough], 1]).min())

    def _ends(self, partial: tuple[Run, ...], cap: float) -> Floats:
        key = (partial, cap)
        if key not in self._sums:
            total = np.zeros((1, 2))
            for low, high in partial:
                total = _sum(total, self.front(low, high, cap).points)
            self._sums[key] = total
        return self._sums[key]

    def _layers(self, number: int, cap: float) -> Floats:
        key = (number, cap)
        if key not in self._sums:
            self._sums[key] = (
                _sum(self._layers(number - 1, cap), self.front(0, _SIZE, cap).points)
                if number
                else np.zeros((1, 2))
            )
        return self._sums[key]

    def front(self, low: int, high: int, cap: float) -> "_Front":
        """Return the choices of operators ``low`` to ``high`` of a layer with runs of at most ``cap``."""
        key = (low, high, cap)
        if key not in self._fronts:
            self._fronts[key] = self._front(low, high, cap)
        return self._fronts[key]

    def _front(self, low: int, high: int, cap: float) -> "_Front":
        """Extend the choices operator by operator; one operator stays between two runs, or they were one."""
        upto: list[list[_Point]] = [[(0.0, 0.0, ())]]
        for end in range(low + 1, high + 2):
            points = list(upto[-1])
            for start in range(low, end - 2):
                run = (start, end - 2)
                saved, cost = self.saved(run), self.cost(run)
                if saved > 0 and self.held(run) <= cap + 1e-6:
                    before = upto[start - low]
                    points += [(s + saved, c + cost, (*runs, run)) for s, c, runs in before]
            upto.append(_pareto(points))
        return _Front(upto[-1])

    def flags(self, first: int, end: int, choice: Choice) -> tuple[bool, ...]:
        """Return which operators of a stage are recomputed under ``choice``."""
        recomputed = [False] * (end - first)
        if choice.cost_s == 0:
            return tuple(recomputed)
        partial, whole = self.shape(first, end)
        pieces = [(low, high) for low, high in partial if low] + [(0, _SIZE)] * whole
        pieces += [(low, high) for low, high in partial if not low]
        chosen = self._pick(pieces, choice)
        position = max(first, 1) - first
        for (low, high), runs in zip(pieces, chosen, strict=True):
            for start, stop in runs:
                for operator in range(start, stop + 1):
                    recomputed[position + operator - low] = True
            position += high - low
        return tuple(recomputed)

    def _pick(self, pieces: list[Run], choice: Choice) -> list[tuple[Run, ...]]:
        """Return the runs of each piece that reach the choice's target at its cost, from the last piece backwards."""
        fronts = [self.front(low, high, choice.cap) for low, high in pieces]
        sums = [np.zeros((1, 2))]
        for front in fronts:
            sums.append(_sum(sums[-1], front.points))
        target, picked = choice.target, []
        for front, before in zip(reversed(fronts), reversed(sums[:-1]), strict=True):
            at = np.searchsorted(before[:, 0], target - front.points[:, 0] - _TOLERANCE)
            cost = np.array(
                [
                    before[a, 1] + c if a < len(before) else math.inf
                    for a, c in zip(at, front.points[:, 1], strict=True)
                ]
            )
            best = int(cost.argmin())
            picked.append(front.runs[best])
            target -= front.points[best, 0]
        return picked[::-1]


_Point = tuple[float, float, tuple[Run, ...]]


class _Front:
    """Choices of one piece: (saved, cost) rising in both, and the runs behind each."""

    __slots__ = ("points", "runs")

    def __init__(self, points: list[_Point]) -> None:
        self.points = np.array([point[:2] for point in points])
        self.runs = [point[2] for point in points]


def _turns_down(one: Floats, two: Floats, three: Floats) -> bool:
    """Whether ``two`` lies on or above the line from ``one`` to ``three``."""
    left, right = two - one, three - one
    return bool(left[1] * right[0] >= right[1] * left[0])


def _pareto(points: list[_Point]) -> list[_Point]:
    """Keep points that no other beats in both saved (more) and cost (less)."""
    kept: list[_Point] = []
    least = math.inf
    for point in sorted(points, key=lambda p: (-p[0], p[1])):
        if point[1] < least - 1e-15:
            kept.append(point)
            least = point[1]
    return kept[::-1]


def _sum(left: Floats, right: Floats) -> Floats:
    """Return the front of all sums of a point of each."""
    points = (left[:, None, :] + right[None, :, :]).reshape(-1, 2)
    points = points[np.lexsort((points[:, 1], -points[:, 0]))]
    least = np.minimum.accumulate(points[:, 1])
    kept = np.ones(len(points), dtype=bool)
    kept[1:] = points[1:, 1] < least[:-1] - 1e-15
    return points[kept][::-1]
