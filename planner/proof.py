"""Exact proof of one strategy: simulate what the rows still allow, add the critical paths met, until nothing is left.

Where few placements are left within the cutoff they are enumerated; otherwise the solver finds the next one to
simulate. Either way the bound rises to the simulation itself, since every critical path bounds every placement.
"""

import math
import time

import numpy as np

from costmodel.timeline import CriticalPath
from planner.candidate import Candidate, Tier
from planner.enumeration import Enumerated, enumerate_placements
from planner.local_search import Incumbent, gather_paths, improve
from planner.placement_dp import smallest_maximum
from planner.proof_state import BUNDLE, ProofState
from planner.rows import Rows, rows_below
from planner.stage_tables import stage_tables
from planner.windows import Budgets

_FEWEST, _TASKS = 4, 1_000_000
"""At least so many neighbours, but no more than make so many tasks (about half a second)."""
_FAR = 4
"""How many times the gap the bound of a solve may be off before the next one is not tried."""
_HARD = 1_000_000
"""Stages times ranges left below the goal from which neither enumeration nor the solver ended a proof (128 stages)."""
_FIRST_SLICE_S, _BUDGET_S = 0.05, 0.4
"""Deterministic seconds of the first solve, and of all solves of a strategy where a gap is tolerated."""
_MANY_RANGES = 3_000_000
"""Ranges of layers from which enumeration is not tried."""
_LEVELS = 12
"""Levels of the finish in the bound."""


def prove(
    candidate: Candidate,
    tolerance: float,
    worst_ns: float,
    deadline: float,
    first_ns: float = math.inf,
) -> bool:
    """Raise the lower bound of ``candidate`` towards its goal, improving its placement on the way.

    The first call only refines the bound, which is cheap; the next one proves.

    Args:
        candidate: A candidate with its stage values and a placement.
        tolerance: Relative gap that counts as proved.
        worst_ns: Time of the K-th best plan of the search; bounds above it are of no interest.
        deadline: Monotonic seconds at which to stop.
        first_ns: Time of the best plan of the search; where a gap is tolerated, a strategy that cannot beat it is not
            worth the solver.

    Returns:
        Whether the goal was reached; the lower bound is valid either way.
    """
    proof = _Proof(candidate, tolerance, worst_ns, deadline)
    if candidate.lower_ns >= proof.goal():
        return True
    if candidate.tier is Tier.OPEN:
        candidate.tier = Tier.REFINED
        return proof.refine_bound()
    if candidate.hard:
        return False
    table = proof.enumerated()
    if table is not None:
        return proof.by_enumeration(table, table.cutoff_ns)
    if tolerance and first_ns <= candidate.lower_ns < proof.goal():
        return False
    return proof.by_solver()


class _Proof(ProofState[tuple[int, ...]]):
    """State of one proof."""

    def __init__(
        self, candidate: Candidate, tolerance: float, worst_ns: float, deadline: float
    ) -> None:
        super().__init__(candidate, tolerance, worst_ns, deadline)
        if candidate.values is None or candidate.incumbent is None:
            raise ValueError("a proof starts from a simulated placement with free cuts")
        self.candidate, self.values = candidate, candidate.values
        self.incumbent: Incumbent = candidate.incumbent

    def refine_bound(self) -> bool:
        """Look for placements below the goal; bound them with levels of the finish and try the one that attains it."""
        goal, rows = self.goal(), self._rows_below(self.goal())
        found = None if rows is None else smallest_maximum(rows, most_levels=_LEVELS)
        self.raise_to(goal if found is None else min(goal, found[0]))
        if rows is not None and found is not None and self.candidate.lower_ns < goal:
            left = rows.stages * int(np.count_nonzero(rows.tables.legal))
            self.candidate.hard = self.tolerance > 0 and left > _HARD
            (self.simulate if self.candidate.hard else self._learn)(tuple(found[1]))
        return self.candidate.lower_ns >= self.goal()

    def _rows_below(self, cutoff_ns: int, most_ranges: float = math.inf) -> Rows | None:
        """Return the rows of what may be below a cutoff; None if that is nothing, or too much."""
        windows = Budgets(self.candidate.given).narrow(float(cutoff_ns))
        if windows is None:
            self.raise_to(cutoff_ns)
        if windows is None or windows.ranges > most_ranges:
            return None
        rows = rows_below(
            self.candidate.given, stage_tables(self.candidate.given, windows), cutoff_ns
        )
        if rows is None:
            self.raise_to(cutoff_ns)
        return rows

    def enumerated(self) -> Enumerated | None:
        """Return all placements below the cutoff, or else below the goal; None if there are too many."""
        for cutoff in dict.fromkeys((self.cutoff(), self.goal())):
            rows = self._rows_below(cutoff, _MANY_RANGES)
            found = None if rows is None else enumerate_placements(rows, cutoff)
            if found is not None or self.candidate.lower_ns >= cutoff:
                return found
        return None

    def simulate(self, chosen: tuple[int, ...]) -> CriticalPath:
        """Simulate a placement, keep it if it is the best, and return its critical path."""
        work = self.values.work(chosen)
        if work is None:
            raise ValueError("a placement of the proof does not fit")
        path = self.incumbent.learn(work)
        self.candidate.simulated += 1
        time_ns = path.length_ns(work)
        if time_ns < self.incumbent.time_ns:
            self.incumbent.cuts, self.incumbent.time_ns = chosen, time_ns
        return path

    def by_solver(self) -> bool:
        """Let the solver find the placement with the smallest rows until there is none below the goal."""
        # Only searches that need the solver pay for loading it.
        from planner.solver.model import Effort, solve_placement

        candidate, incumbent = self.candidate, self.incumbent
        slice_s, left = _FIRST_SLICE_S, _BUDGET_S if self.tolerance else math.inf
        while candidate.lower_ns < self.goal():
            wall = self.deadline - time.monotonic()
            if wall <= 0 or left <= 0:
                return False
            outcome = solve_placement(
                candidate.given,
                self.rows(self.values.work(incumbent.cuts)),
                cutoff_ns=self.goal(),
                hint=incumbent.cuts,
                effort=Effort(min(slice_s, left), wall),
            )
            candidate.solved += 1
            left -= max(outcome.effort, 1e-3)
            self.raise_to(outcome.bound_ns)
            if outcome.cuts is None:
                slice_s *= 2
            else:
                self._learn(outcome.cuts)
            if self.tolerance and self._hopeless(outcome.bound_ns):
                return candidate.lower_ns >= self.goal()
        return True

    def _hopeless(self, bound_ns: int) -> bool:
        """Return whether a solve proved far less than what is known without it."""
        return self.goal() - bound_ns > _FAR * (self.goal() - self.candidate.lower_ns)

    def _bundle(self) -> int:
        """Return how many neighbours are worth simulating: fewer where each takes long."""
        shape = self.candidate.given.shape
        return max(_FEWEST, min(BUNDLE, _TASKS // (shape.ranks * shape.microbatches)))

    def _learn(self, cuts: tuple[int, ...]) -> None:
        """Simulate a placement of the solver and its neighbours; keep their paths and the best of them."""
        self.simulate(cuts)
        work, values = self.values.work(cuts), self.values
        if work is None:
            return
        before, bundle = values.simulated, self._bundle()
        gather_paths(values, self.incumbent, cuts, bundle)
        start = Incumbent(cuts=cuts, time_ns=values.simulate(work), paths=self.incumbent.paths)
        improve(values, start, simulations=bundle, goal_ns=self.candidate.lower_ns)
        self.candidate.simulated += values.simulated - before
        if start.time_ns < self.incumbent.time_ns:
            self.incumbent.cuts, self.incumbent.time_ns = start.cuts, start.time_ns
