"""The proof by the solver alone ends where the proof by enumeration ends."""

import random

import pytest

from planner.engine import EngineResult
from planner.mixed import candidate, enumeration, tables
from planner.mixed.search import search_mixed
from tests.planner.mixed.toys import MixedScenario, random_mixed


@pytest.mark.parametrize("seed", [3, 6, 7])
def test_searches_that_may_not_enumerate_find_and_prove_the_same_plans(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, solved = random.Random(200 + seed), 0
    for _ in range(4):
        scenario = random_mixed(rng)
        usual = searched(scenario)
        with monkeypatch.context() as patched:
            patched.setattr(enumeration, "MOST_PLACEMENTS", 0)
            patched.setattr(candidate, "_NEIGHBOURS", 0)
            patched.setattr(candidate, "_SWAPS", 0)
            found = searched(scenario)
        assert [plan.iteration_ns for plan in found.ranked] == [
            plan.iteration_ns for plan in usual.ranked
        ]
        assert usual.proved
        assert found.proved
        solved += found.solved
    assert solved


@pytest.mark.parametrize("seed", [3, 6])
def test_a_search_whose_tables_would_be_too_large_falls_back_to_the_solver(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(200 + seed)
    for _ in range(2):
        scenario = random_mixed(rng)
        usual = searched(scenario)
        with monkeypatch.context() as patched:
            patched.setattr(tables, "MOST_ENTRIES", 0)
            found = searched(scenario)
        times = [plan.iteration_ns for plan in usual.ranked]
        assert [plan.iteration_ns for plan in found.ranked] == times


def searched(scenario: MixedScenario) -> EngineResult:
    """Return the three best plans, proved exactly."""
    return search_mixed(
        scenario.columns,
        scenario.prices,
        memory_limit_bytes=scenario.limit_bytes,
        top=3,
        tolerance=0.0,
    )
