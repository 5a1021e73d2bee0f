"""The cheapest recomputation of a stage that frees enough memory: exact, by Pareto fronts.

A run of recomputed operators saves the activations of all of it but the last and costs their forward. Runs pay within a layer only (an
activation before a first norm is kept in any case), layers are equal, and the working set is the largest run. So for every cap on a
run's size the choices of a layer are a front of (saved, cost), that of n layers their n-fold sum, and a stage needs the cheapest point of
its own sum that saves what is needed plus the cap.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.operator_cut.definition import Floats, Operators
from planner.operator_cut.duals import Duals, Pieces
from planner.operator_cut.runs import SIZE, Piece, Run, Runs, summed

_TOLERANCE_MIB = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A recomputation: its cost, the cap on its runs and what it has to save for each micro-batch."""

    cost_s: float
    cap: float
    target: float


_NOTHING = Choice(cost_s=0.0, cap=0.0, target=0.0)


class Recomputation:
    """Chooses recomputation for stages of one set of operators; ``strict`` as in Runs."""

    def __init__(self, operators: Operators, *, strict: bool = False) -> None:
        self.runs = Runs(operators, strict=strict)
        self._duals = Duals(self.runs)
        self._operators = operators.count

    def bounds(
        self, first: NDArray[np.intp], end: NDArray[np.intp], excess_mib: Floats, in_flight: int
    ) -> Floats:
        """Return seconds that freeing ``excess_mib`` costs stages at least: one row a stage, one column a cap."""
        pieces = Pieces(first, end, self._operators)
        return self._duals.least(pieces, excess_mib, in_flight)

    def cheapest(
        self, first: int, end: int, excess_mib: float, in_flight: int, limit_s: float = math.inf
    ) -> Choice | None:
        """Return the cheapest choice that frees a stage's ``excess_mib``, None if none costs less than ``limit_s``."""
        if excess_mib <= 0:
            return _NOTHING if limit_s > 0 else None
        bounds = self.bounds(np.array([first]), np.array([end]), np.array([excess_mib]), in_flight)
        return self.cheapest_within(bounds[0], first, end, excess_mib, in_flight, limit_s)

    def cheapest_within(
        self,
        bounds: Floats,
        first: int,
        end: int,
        excess_mib: float,
        in_flight: int,
        limit_s: float,
    ) -> Choice | None:
        """Return what ``cheapest`` does for a positive excess, from the stage's row of bounds."""
        pieces = Pieces(np.array([first]), np.array([end]), self._operators)
        left, right = (int(pieces.left[0]), int(pieces.left_end[0])), (0, int(pieces.right_end[0]))
        best, least_s = None, limit_s
        for number in np.argsort(bounds):
            if bounds[number] >= least_s:
                break
            cap = self.runs.caps[number]
            target = (excess_mib + cap) / in_flight
            cost = self._least(left, right, int(pieces.whole[0]), cap, target)
            if cost is not None and cost < least_s:
                best, least_s = Choice(cost_s=cost, cap=cap, target=target), cost
        return best

    def _least(
        self, left: Piece, right: Piece, whole: int, cap: float, target: float
    ) -> float | None:
        ends, middle = self.runs.ends(left, right, cap), self.runs.layers(whole, cap)
        at = np.searchsorted(middle[:, 0], target - ends[:, 0] - _TOLERANCE_MIB)
        enough = at < len(middle)
        if not enough.any():
            return None
        return float((ends[enough, 1] + middle[at[enough], 1]).min())

    def flags(self, first: int, end: int, choice: Choice) -> tuple[bool, ...]:
        """Return which operators of a stage are recomputed under ``choice``."""
        recomputed = [False] * (end - first)
        if choice.cost_s == 0:
            return tuple(recomputed)
        pieces = list(self._pieces(first, end))
        position = max(first, 1) - first
        for (low, high), runs in zip(pieces, self._pick(pieces, choice), strict=True):
            for start, stop in runs:
                for operator in range(start, stop + 1):
                    recomputed[position + operator - low] = True
            position += high - low
        return tuple(recomputed)

    def _pieces(self, first: int, end: int) -> Iterator[Piece]:
        """Yield the pieces of layers of a stage in order."""
        pieces = Pieces(np.array([first]), np.array([end]), self._operators)
        yield int(pieces.left[0]), int(pieces.left_end[0])
        yield from [(0, SIZE)] * int(pieces.whole[0])
        yield 0, int(pieces.right_end[0])

    def _pick(self, pieces: list[Piece], choice: Choice) -> list[tuple[Run, ...]]:
        """Return the runs of each piece that reach the choice's target at its cost, from the last piece backwards."""
        fronts = [self.runs.front(piece, choice.cap) for piece in pieces]
        sums = [np.zeros((1, 2))]
        for front in fronts:
            sums.append(summed(sums[-1], front.points))
        target, picked = choice.target, []
        for front, before in zip(reversed(fronts), reversed(sums[:-1]), strict=True):
            at = np.searchsorted(before[:, 0], target - front.points[:, 0] - _TOLERANCE_MIB)
            enough = at < len(before)
            spent = np.append(before[:, 1], math.inf)[at]
            cost = np.where(enough, spent + front.points[:, 1], math.inf)
            best = int(cost.argmin())
            picked.append(front.runs[best])
            target -= front.points[best, 0]
        return picked[::-1]
