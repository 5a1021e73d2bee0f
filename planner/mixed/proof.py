"""Exact proof of one strategy on several device groups, over all cuts and all assignments of its ranks.

What the rows leave below the cutoff is enumerated and simulated, smallest bound first; every critical path bounds all
that is left. Where too much is left, the solver finds the next placement to simulate. Either way the bound rises to the
simulation itself.
"""

import math
import time

import numpy as np

from costmodel.simulator import critical_path
from costmodel.timeline import CriticalPath
from planner.candidate import Tier
from planner.local_search import Incumbent, gather_paths
from planner.mixed.candidate import MixedCandidate, refine
from planner.mixed.coefficients import Assignment
from planner.mixed.enumeration import Placements, enumerate_assignments
from planner.mixed.rows import MixedRows
from planner.mixed.tables import mixed_tables
from planner.mixed.values import GroupValues
from planner.stage_tables import NEVER

_BUNDLE = 24
"""Neighbours of a solver placement whose paths are added, as in planner.proof."""
_PATHS = 240
"""Rows kept for a solve; beyond that only the tightest at the incumbent."""
_FIRST_SLICE_S, _BUDGET_S = 0.1, 2.0
"""Deterministic seconds of the first solve, and of all solves of a strategy where a gap is tolerated."""


def prove_mixed(
    candidate: MixedCandidate, tolerance: float, worst_ns: float, deadline: float
) -> bool:
    """Raise the lower bound of ``candidate`` towards its goal, improving its placement on the way.

    The first call enumerates, where few placements are left; the next one solves.

    Args:
        candidate: A candidate with a simulated placement and free cuts.
        tolerance: Relative gap that counts as proved.
        worst_ns: Time of the K-th best plan of the search; bounds above it are of no interest.
        deadline: Monotonic seconds at which to stop.

    Returns:
        Whether the goal was reached; the lower bound is valid either way.
    """
    if candidate.shared is None:
        raise ValueError("a proof starts from a strategy with free cuts")
    proof = _Proof(candidate, candidate.shared, tolerance, worst_ns, deadline)
    if candidate.lower_ns >= proof.goal():
        return True
    if candidate.tier is not Tier.OPEN:
        return proof.by_solver()
    candidate.tier = Tier.REFINED
    table = proof.enumerated()
    if table is None:
        return candidate.lower_ns >= proof.goal()
    return proof.by_enumeration(*table)


class _Proof:
    """State of one proof."""

    def __init__(
        self,
        candidate: MixedCandidate,
        values: GroupValues,
        tolerance: float,
        worst_ns: float,
        deadline: float,
    ) -> None:
        self.candidate, self.values = candidate, values
        self.tolerance, self.worst_ns, self.deadline = tolerance, worst_ns, deadline

    def cutoff(self) -> int:
        """Return the time that a placement must beat to matter."""
        own = self.candidate.time_ns
        best = min(math.inf if own is None else own, self.worst_ns)
        return int(NEVER) if math.isinf(best) else int(best)

    def goal(self) -> int:
        """Return the bound that counts as proved."""
        return math.ceil(self.cutoff() * (1 - self.tolerance))

    def _raise(self, lower_ns: int) -> None:
        self.candidate.lower_ns = max(self.candidate.lower_ns, lower_ns)

    def enumerated(self) -> tuple[Placements, int] | None:
        """Return all placements below the cutoff, or else below the goal, with that time; None if too many."""
        for cutoff in dict.fromkeys((self.cutoff(), self.goal())):
            try:
                tables = mixed_tables(self.candidate.mixed, cutoff)
            except OverflowError:
                return None
            rows = None if tables is None else MixedRows(self.candidate.mixed, tables)
            if rows is None or rows.bound >= cutoff:
                self._raise(cutoff)
                return None
            self._raise(rows.bound)
            found = enumerate_assignments(rows, cutoff)
            if found is not None:
                return found, cutoff
        return None

    def by_enumeration(self, table: Placements, limit: int) -> bool:
        """Simulate the placement with the smallest bound until all reach the goal."""
        for path in reversed(list(self.candidate.paths)):
            table.raise_bounds(path)
            table.keep_below(min(limit, self.cutoff()))
        while len(table) and self.candidate.lower_ns < self.goal():
            if time.monotonic() > self.deadline:
                return False
            index = int(np.argmin(table.bound))
            self._raise(min(limit, int(table.bound[index])))
            if self.candidate.lower_ns >= self.goal():
                break
            table.raise_bounds(self._simulate(table.at(index)))
            table.keep_below(min(limit, self.cutoff()))
        if not len(table):
            self._raise(min(limit, self.cutoff()))
        return True

    def _simulate(self, chosen: Assignment) -> CriticalPath:
        """Simulate a placement, keep it if it is the best, and return its critical path."""
        work = self.values.work(chosen)
        if work is None:
            raise ValueError("a placement of the proof does not fit")
        self.candidate.simulated += 1
        path = critical_path(work)
        self.candidate.paths.setdefault(path)
        self.candidate.take(chosen, path.length_ns(work))
        return path

    def by_solver(self) -> bool:
        """Let the solver find the placement with the smallest rows until there is none below the goal."""
        # Only searches that need the solver pay for loading it.
        from planner.solver.mixed_model import solve_assignment
        from planner.solver.model import Effort

        candidate = self.candidate
        slice_s, left = _FIRST_SLICE_S, _BUDGET_S if self.tolerance else math.inf
        while candidate.lower_ns < self.goal():
            wall = self.deadline - time.monotonic()
            if wall <= 0 or left <= 0:
                return False
            outcome = solve_assignment(
                candidate.mixed,
                self._rows(),
                cutoff_ns=self.goal(),
                hint=self._hint(),
                effort=Effort(min(slice_s, left), wall),
            )
            candidate.solved += 1
            left -= max(outcome.effort, 1e-3)
            self._raise(outcome.bound_ns)
            if outcome.chosen is None:
                slice_s *= 2
            else:
                self._learn(outcome.chosen)
        return True

    def _hint(self) -> Assignment | None:
        known = self.candidate.incumbent
        return None if known is None else Assignment(known.cuts, self.candidate.groups)

    def _rows(self) -> list[CriticalPath]:
        """Return the paths for the next solve: the newest, and the longest at the best placement."""
        paths = list(self.candidate.paths)
        limit = _PATHS + _BUNDLE * self.candidate.solved // 4
        hint = self._hint()
        work = None if hint is None else self.values.work(hint)
        if len(paths) <= limit or work is None:
            return paths
        older, newest = paths[:-_BUNDLE], paths[-_BUNDLE:]
        lengths = {path: path.length_ns(work) for path in older}
        return sorted(older, key=lambda path: -lengths[path])[: limit - _BUNDLE] + newest

    def _learn(self, chosen: Assignment) -> None:
        """Simulate a placement of the solver and its neighbours; keep their paths and the best of them."""
        before = self.candidate.time_ns
        self._simulate(chosen)
        values = self.values.on(chosen.groups)
        known = Incumbent(cuts=chosen.cuts, time_ns=0, paths=self.candidate.paths)
        gather_paths(values, known, chosen.cuts, _BUNDLE)
        if self.candidate.time_ns != before:
            refine(self.candidate)
