"""What the proofs of a strategy share, on one kind of GPU or on several: the goal, the bound that rises to it, and paths.

Every critical path bounds every placement, so the bound of those that are left rises to the simulation itself.
"""

import math
import time
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

import numpy as np

from costmodel.timeline import CriticalPath, PipelineWork
from planner.candidate import Candidate
from planner.coefficients import Ints
from planner.stage_tables import NEVER

BUNDLE = 24
"""Neighbours of a solver placement whose paths are added; fewer mean more solves."""
_PATHS = 240
"""Rows kept for a solve; beyond that only the tightest at the incumbent."""

Placed = TypeVar("Placed")
LeftOver = TypeVar("LeftOver", covariant=True)


class Left(Protocol[LeftOver]):
    """Placements that are left below a cutoff, each with a lower bound in nanoseconds."""

    bound: Ints

    def __len__(self) -> int: ...

    def at(self, index: int) -> LeftOver:
        """Return one placement."""

    def raise_bounds(self, path: CriticalPath) -> None:
        """Raise every bound to the length of a path."""

    def keep_below(self, goal_ns: int) -> None:
        """Drop the placements whose bound reaches the goal."""


class ProofState(ABC, Generic[Placed]):
    """State of one proof.

    Args:
        candidate: Whose lower bound rises.
        tolerance: Relative gap that counts as proved.
        worst_ns: Time of the K-th best plan of the search; bounds above it are of no interest.
        deadline: Monotonic seconds at which to stop.
    """

    def __init__(
        self, candidate: Candidate, tolerance: float, worst_ns: float, deadline: float
    ) -> None:
        self._bounded = candidate
        self.tolerance, self.worst_ns, self.deadline = tolerance, worst_ns, deadline

    def cutoff(self) -> int:
        """Return the time that a placement must beat to matter."""
        own = self._bounded.time_ns
        best = min(math.inf if own is None else own, self.worst_ns)
        return int(NEVER) if math.isinf(best) else int(best)

    def goal(self) -> int:
        """Return the bound that counts as proved."""
        return math.ceil(self.cutoff() * (1 - self.tolerance))

    def raise_to(self, lower_ns: int) -> None:
        """Raise the lower bound."""
        self._bounded.lower_ns = max(self._bounded.lower_ns, lower_ns)

    @abstractmethod
    def simulate(self, chosen: Placed) -> CriticalPath:
        """Simulate a placement, keep it if it is the best, and return its critical path."""

    def by_enumeration(self, left: Left[Placed], limit: int) -> bool:
        """Simulate the placement with the smallest bound until all reach the goal; ``limit`` bounds those not in ``left``."""
        for path in reversed(list(self._bounded.paths)):
            left.raise_bounds(path)
            left.keep_below(min(limit, self.cutoff()))
        while len(left) and self._bounded.lower_ns < self.goal():
            if time.monotonic() > self.deadline:
                return False
            index = int(np.argmin(left.bound))
            self.raise_to(min(limit, int(left.bound[index])))
            if self._bounded.lower_ns >= self.goal():
                break
            left.raise_bounds(self.simulate(left.at(index)))
            left.keep_below(min(limit, self.cutoff()))
        if not len(left):
            self.raise_to(min(limit, self.cutoff()))
        return True

    def rows(self, best: PipelineWork | None) -> list[CriticalPath]:
        """Return the paths for the next solve: the newest, and the longest at the best placement.

        The limit grows with every solve, so that no path is dropped for ever.
        """
        paths = list(self._bounded.paths)
        limit = _PATHS + BUNDLE * self._bounded.solved // 4
        if len(paths) <= limit or best is None:
            return paths
        older, newest = paths[:-BUNDLE], paths[-BUNDLE:]
        lengths = {path: path.length_ns(best) for path in older}
        return sorted(older, key=lambda path: -lengths[path])[: limit - BUNDLE] + newest
