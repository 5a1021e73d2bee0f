"""Prices on several device groups: each rank's own group, and what lies between groups."""

import random
from dataclasses import replace

import pytest

from costmodel.simulator import iteration_ns
from costmodel.strategy import Strategy
from planner.check import ROUNDING, float_work
from planner.mixed.prices import Group, GroupPrices
from planner.scenario_search import open_session
from planner.search import plan
from tests.builders import make_mixed_scenario
from tests.planner.mixed.toys import ExposedPricer, all_arrangements, all_groups, random_mixed
from tests.planner.toy_pricer import ToyModel

MODEL = ToyModel(layers=(0,) * 4, hidden=4096, sequence=2048, vocab=1000, dense=2e8)
STRATEGY = Strategy(pp=4, microbatches=8)


def two_groups(far_s: float, other_s: float, near: int = 1) -> GroupPrices:
    """Return two groups of four GPUs that differ in the seconds of their farthest boundary only."""
    pricers = [ExposedPricer(MODEL, seconds, near) for seconds in (far_s, other_s)]
    return GroupPrices(
        [Group(pricer=p, gpus=4, usable_bytes=80e9, inner_gpus=near) for p in pricers], 0
    )


@pytest.mark.parametrize("seed", range(3))
def test_integer_work_is_that_of_the_prices_of_each_rank(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(4):
        scenario = random_mixed(rng)
        for row in range(len(scenario.columns)):
            strategy = scenario.columns.strategy(row)
            given = scenario.prices.coefficients(strategy, scenario.limit_bytes)
            assigned = list(all_groups(given))
            if strategy.vpp > 1 or not assigned:
                continue
            groups = rng.choice(assigned)
            arrangement = rng.choice(list(all_arrangements(given)))
            cost = scenario.prices.cost(strategy, groups)
            exact = iteration_ns(float_work(cost, arrangement.placement(groups)))
            assert iteration_ns(given.work(arrangement, groups)) == pytest.approx(
                exact, rel=ROUNDING
            )


def test_a_boundary_between_groups_takes_the_slower_of_both_outermost_links() -> None:
    joints = two_groups(1e-3, 5e-2).joints(STRATEGY)
    slower = two_groups(5e-2, 5e-2).joints(STRATEGY)
    assert joints.crossing_s == slower.crossing_s
    assert joints.crossing_s[0][1] == joints.crossing_s[1][0] > joints.crossing_s[0][0] == 0


def test_only_the_group_with_the_faster_link_waits_longer_for_the_other() -> None:
    joints = two_groups(1e-3, 5e-2).joints(STRATEGY)
    assert joints.wait_s[0][1] == pytest.approx((5e-2 - 1e-3) / 2)
    assert joints.wait_s[1][0] == 0


def test_a_tied_embedding_is_reduced_over_the_network_only_where_its_ends_are_on_different_groups() -> (
    None
):
    given = two_groups(1e-3, 5e-2).coefficients(STRATEGY, 80e9)
    assert given.ends_ns((0, 1, 1, 0)) == (0, 0)
    first, last = given.ends_ns((0, 1, 1, 1))
    assert first == pytest.approx(3 * (5e-2 - 1e-3) * 1e9)
    assert last == 0


def test_ranks_of_a_group_fill_its_nodes_in_pipeline_order() -> None:
    given = two_groups(1e-2, 1e-2, near=2).coefficients(STRATEGY, 80e9)
    near, far = given.by_group[0].transfer_ns[:2]
    assert near < far
    assert given.transfers_ns((0, 0, 1, 1))[:3] == (near, given.crossing_ns[0][1], near)
    assert given.transfers_ns((1, 0, 0, 1))[1] == near
    assert given.transfers_ns((0, 0, 0, 0))[:3] == (near, far, near)


def test_a_plan_on_one_group_alone_costs_what_it_costs_without_the_others() -> None:
    scenario = make_mixed_scenario(pp=[2, 4], dp=[1])
    cluster = scenario.cluster
    alone = replace(scenario, cluster=replace(cluster, groups=cluster.groups[:1]), gpu_counts=(4,))
    session = open_session(scenario)
    best = plan(alone, top=1, tolerance=0.0).plans[0]
    groups = (0,) * best.strategy.pp
    cost = session.cost(best.strategy, groups)
    time_ns = iteration_ns(float_work(cost, replace(best.placement, device_groups=groups)))
    assert time_ns / 1e9 + cost.fixed_s == pytest.approx(best.iteration_s, rel=ROUNDING)
