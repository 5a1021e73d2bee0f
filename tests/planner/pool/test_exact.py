"""Schedules and bounds against exhaustive search on small pools."""

import pytest

from planner.plans import SearchStatus
from planner.pool.bound import energy_bound, weighted_bound
from planner.pool.check import violations
from planner.pool.heuristic import schedule
from planner.pool.instance import build_instance, value_of
from planner.pool.model import BatchMode, FrontPoint, Job, Objective, Pool
from planner.pool.share import share
from planner.pool.solver import solve
from planner.pool.solver_bound import is_refuted, makespan_bound
from planner.pool.solver_weighted import weighted_lp_bound
from tests.planner.pool.builders import (
    best_by_enumeration,
    make_group,
    make_instance,
    make_job,
    random_instance,
)

SEEDS = range(4)


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", SEEDS)
def test_the_solver_finds_the_best_schedule_of_small_pools(seed: int, objective: Objective) -> None:
    instance = random_instance(seed, objective)
    best = best_by_enumeration(instance)
    answer = solve(instance, schedule(instance), 0, 0.0, 30.0)
    if best is None:
        assert answer.blocks is None
        assert answer.infeasible
        return
    assert answer.blocks is not None
    assert not violations(instance, answer.blocks)
    assert value_of(instance, answer.blocks) == best == answer.bound


@pytest.mark.parametrize("seed", SEEDS)
def test_no_bound_exceeds_the_best_schedule(seed: int) -> None:
    makespan = random_instance(seed, Objective.MAKESPAN)
    best = best_by_enumeration(makespan)
    assert best is not None
    assert energy_bound(makespan) <= makespan_bound(makespan, best).value <= best
    assert not is_refuted(makespan, best)
    weighted = random_instance(seed, Objective.WEIGHTED_COMPLETION)
    least = best_by_enumeration(weighted)
    assert least is not None
    assert weighted_bound(weighted) <= weighted_lp_bound(weighted, 10) <= least


@pytest.mark.parametrize(("restart", "expected"), [(0.0, 6), (1.0, 7), (9.0, 8)])
def test_a_model_is_resized_exactly_if_that_pays_for_the_restart(
    restart: float, expected: int
) -> None:
    """Narrow for one half while the other model runs, wide for the other half."""
    long = make_job("long", (1, 8.0), (2, 4.0), checkpoints=(0.375,), restart_h=restart)
    short = make_job("short", (1, 3.0))
    instance = make_instance(long, short, nodes=2)
    answer = solve(instance, schedule(instance), 0, 0.0, 30.0)
    assert answer.blocks is not None
    assert not violations(instance, answer.blocks)
    assert value_of(instance, answer.blocks) == answer.bound == expected
    assert best_by_enumeration(instance) == expected


def test_two_long_models_cannot_share_a_node_and_the_rows_see_it() -> None:
    """Three jobs of 6 of 10 ticks on two nodes: the energy bound says 9, the truth is 12."""
    instance = make_instance(*(make_job(name, (1, 6.0)) for name in "abc"), nodes=2)
    assert energy_bound(instance) == 9
    assert makespan_bound(instance, instance.horizon).value == 12


def test_equal_jobs_close_with_their_order_fixed() -> None:
    jobs = [make_job(f"{kind}{i}", (1, 5.0), (2, 3.0)) for kind in "ab" for i in range(4)]
    instance = make_instance(*jobs)
    answer = solve(instance, schedule(instance), energy_bound(instance), 0.0, 30.0)
    assert answer.blocks is not None
    assert value_of(instance, answer.blocks) == answer.bound


def test_the_cheapest_schedule_uses_spot_only_where_the_deadline_allows() -> None:
    front = (
        FrontPoint(group="h100", gpus=1, iteration_s=1.0, hours=4.0, cost=8.0),
        FrontPoint(group="h100", gpus=1, iteration_s=1.0, hours=6.0, cost=3.0, spot=True),
    )
    jobs = [Job(name=n, front=front, deadline_h=d) for n, d in (("urgent", 5.0), ("idle", 9.0))]
    pool = Pool(
        mode=BatchMode.SHARE,
        groups=(make_group(),),
        requests=(),
        objective=Objective.COST,
        tick_h=1,
    )
    result = share(pool, jobs)
    assert {segment.job: segment.spot for segment in result.segments} == {
        "urgent": False,
        "idle": True,
    }
    assert result.cost == result.value == 11.0


def test_deadlines_that_cannot_all_be_met_have_no_cheapest_schedule() -> None:
    jobs = [make_job(name, (4, 2.0), deadline_h=2.0) for name in "ab"]
    groups = (make_group(),)
    tight = Pool(
        mode=BatchMode.SHARE, groups=groups, requests=(), objective=Objective.COST, tick_h=1
    )
    result = share(tight, jobs)
    assert result.status is SearchStatus.INFEASIBLE
    assert "deadlines" in result.reasons[0]


def test_the_heavier_deadline_is_met_first() -> None:
    jobs = [
        make_job("light", (4, 2.0), deadline_h=2.0),
        make_job("heavy", (4, 2.0), deadline_h=2.0, priority=5),
    ]
    instance = build_instance([make_group()], jobs, Objective.DEADLINES, 1.0)
    answer = solve(instance, schedule(instance), 0, 0.0, 30.0)
    assert answer.blocks is not None
    assert value_of(instance, answer.blocks) == answer.bound == 1
