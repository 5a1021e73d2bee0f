"""The placement model over several device groups agrees with simulating every placement and assignment."""

import random

import pytest

from costmodel.simulator import critical_path
from costmodel.timeline import CriticalPath
from planner.mixed.coefficients import MixedCoefficients
from planner.mixed.values import GroupValues
from planner.solver.mixed_model import solve_assignment
from planner.solver.model import Effort
from tests.planner.mixed.toys import brute_force, random_mixed


def solved(given: MixedCoefficients) -> int | None:
    """Return the fastest iteration: solve, simulate, add the critical path, until nothing better is left."""
    values, paths, best = GroupValues(given), dict[CriticalPath, None](), 1 << 45
    while True:
        outcome = solve_assignment(given, paths, cutoff_ns=best, effort=Effort(60.0))
        if outcome.chosen is None:
            return best if best < 1 << 45 else None
        work = values.work(outcome.chosen)
        assert work is not None
        path = critical_path(work)
        assert outcome.bound_ns <= path.length_ns(work)
        paths[path], best = None, min(best, path.length_ns(work))


@pytest.mark.parametrize("seed", range(4))
def test_solving_and_simulating_in_turn_ends_at_the_best_of_all_assignments(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        scenario = random_mixed(rng)
        for row in range(min(3, len(scenario.columns))):
            strategy = scenario.columns.strategy(row)
            given = scenario.prices.coefficients(strategy, scenario.limit_bytes)
            if any(given.slots) and given.shape.chunks == 1:
                assert solved(given) == brute_force(given)
