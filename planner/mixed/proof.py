"""Exact proof of one strategy on several device groups, over all cuts and all assignments of its ranks.

What the rows leave below the cutoff is enumerated and simulated, smallest bound first; every critical path bounds all
that is left. Where too much is left, the solver finds the next placement to simulate. Either way the bound rises to the
simulation itself.
"""

import math
import time

from costmodel.simulator import critical_path
from costmodel.timeline import CriticalPath
from planner.candidate import Tier
from planner.local_search import Incumbent, gather_paths
from planner.mixed.candidate import MixedCandidate, refine
from planner.mixed.coefficients import Assignment
from planner.mixed.enumeration import Placements, enumerate_assignments
from planner.mixed.rows import MixedRows
from planner.mixed.tables import mixed_tables
from planner.proof_state import BUNDLE, ProofState

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
    proof = _Proof(candidate, tolerance, worst_ns, deadline)
    if candidate.lower_ns >= proof.goal():
        return True
    if candidate.tier is not Tier.OPEN:
        return proof.by_solver()
    candidate.tier = Tier.REFINED
    table = proof.enumerated()
    if table is None:
        return candidate.lower_ns >= proof.goal()
    return proof.by_enumeration(*table)


class _Proof(ProofState[Assignment]):
    """State of one proof."""

    def __init__(
        self, candidate: MixedCandidate, tolerance: float, worst_ns: float, deadline: float
    ) -> None:
        super().__init__(candidate, tolerance, worst_ns, deadline)
        if candidate.shared is None:
            raise ValueError("a proof starts from a strategy with free cuts")
        self.candidate, self.values = candidate, candidate.shared

    def enumerated(self) -> tuple[Placements, int] | None:
        """Return all placements below the cutoff, or else below the goal, with that time; None if too many."""
        for cutoff in dict.fromkeys((self.cutoff(), self.goal())):
            try:
                tables = mixed_tables(self.candidate.mixed, cutoff)
            except OverflowError:
                return None
            rows = None if tables is None else MixedRows(self.candidate.mixed, tables)
            if rows is None or rows.bound >= cutoff:
                self.raise_to(cutoff)
                return None
            self.raise_to(rows.bound)
            found = enumerate_assignments(rows, cutoff)
            if found is not None:
                return found, cutoff
        return None

    def simulate(self, chosen: Assignment) -> CriticalPath:
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
            known = candidate.incumbent
            hint = None if known is None else Assignment(known.cuts, candidate.groups)
            outcome = solve_assignment(
                candidate.mixed,
                self.rows(None if hint is None else self.values.work(hint)),
                cutoff_ns=self.goal(),
                hint=hint,
                effort=Effort(min(slice_s, left), wall),
            )
            candidate.solved += 1
            left -= max(outcome.effort, 1e-3)
            self.raise_to(outcome.bound_ns)
            if outcome.chosen is None:
                slice_s *= 2
            else:
                self._learn(outcome.chosen)
        return True

    def _learn(self, chosen: Assignment) -> None:
        """Simulate a placement of the solver and its neighbours; keep their paths and the best of them."""
        before = self.candidate.time_ns
        self.simulate(chosen)
        values = self.values.on(chosen.groups)
        known = Incumbent(cuts=chosen.cuts, time_ns=0, paths=self.candidate.paths)
        gather_paths(values, known, chosen.cuts, BUNDLE)
        if self.candidate.time_ns != before:
            refine(self.candidate)
