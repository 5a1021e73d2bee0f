"""The search over several device groups agrees with simulating every placement on every assignment of ranks to groups."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from costmodel.simulator import iteration_ns
from planner.coefficients import coefficients
from planner.engine import EngineResult
from planner.mixed.even import placements
from planner.mixed.prices import Group, GroupPrices
from planner.mixed.search import search_mixed
from tests.planner import synthetic
from tests.planner.mixed.toys import MixedScenario, brute_force, random_mixed, with_recomputation


def best_times(scenario: MixedScenario) -> list[int]:
    """Return the fastest iteration of each strategy that fits, by enumeration."""
    times: list[int] = []
    for row in range(len(scenario.columns)):
        strategy = scenario.columns.strategy(row)
        given = scenario.prices.coefficients(strategy, scenario.limit_bytes)
        if any(given.slots):
            best = brute_force(given)
        else:
            rest = scenario.prices.groups[scenario.prices.slowest].pricer
            least = min(group.limit_bytes(scenario.limit_bytes) for group in scenario.prices.groups)
            best = synthetic.brute_force(coefficients(rest.cost(strategy), least))
        if best is not None:
            times.append(best)
    return sorted(times)


def test_memory_that_one_group_is_said_to_lack_makes_a_plan_exist() -> None:
    rng, lifted = random.Random(7), 0
    for _ in range(40):
        scenario = random_mixed(rng)
        tight = [replace(group, usable_bytes=4.2e9) for group in scenario.prices.groups]
        nearest = found(scenario, tight).nearest
        if nearest is not None and nearest.group is not None:
            tight[nearest.group] = replace(
                tight[nearest.group], usable_bytes=float(nearest.demand_bytes)
            )
            assert found(scenario, tight).ranked
            lifted += 1
    assert lifted


def found(scenario: MixedScenario, groups: Sequence[Group]) -> EngineResult:
    """Return the best plan with other groups."""
    prices = GroupPrices(groups, scenario.prices.slowest)
    return search_mixed(scenario.columns, prices, memory_limit_bytes=scenario.limit_bytes)


@pytest.mark.parametrize("seed", range(4))
def test_frameworks_that_split_evenly_choose_among_equal_stages_on_blocks_of_groups(
    seed: int,
) -> None:
    rng = random.Random(50 + seed)
    for _ in range(6):
        scenario = random_mixed(rng)
        result = search_mixed(
            scenario.columns,
            scenario.prices,
            memory_limit_bytes=scenario.limit_bytes,
            top=1,
            tolerance=0.0,
            uneven=False,
        )
        best = min(even_times(scenario), default=None)
        held = [plan for plan in result.ranked if plan.placement.device_groups]
        if held:
            assert held[0].iteration_ns == best
        assert bool(result.ranked) >= (best is not None)


def even_times(scenario: MixedScenario) -> list[int]:
    """Return the iterations of all even placements of strategies that a group can hold."""
    times = []
    for row in range(len(scenario.columns)):
        strategy = scenario.columns.strategy(row)
        given = scenario.prices.coefficients(strategy, scenario.limit_bytes)
        for chosen in placements(given, uneven=False):
            arrangement = with_recomputation(given, chosen)
            if arrangement is not None:
                times.append(iteration_ns(given.work(arrangement, chosen.groups)))
    return times


@pytest.mark.parametrize("seed", range(8))
def test_the_search_finds_and_proves_the_best_plans_on_random_mixed_clusters(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        scenario = random_mixed(rng)
        top = rng.choice((1, 3))
        result = search_mixed(
            scenario.columns,
            scenario.prices,
            memory_limit_bytes=scenario.limit_bytes,
            top=top,
            tolerance=0.0,
        )
        times = best_times(scenario)
        assert [plan.iteration_ns for plan in result.ranked] == times[:top]
        assert result.proved
        assert not times or result.lower_bound_ns == times[0]
