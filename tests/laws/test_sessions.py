"""Searches that share what was proven answer as fresh ones do."""

from dataclasses import replace

import pytest

from planner.scenario_search import open_session
from planner.search import plan
from planner.whatif_search import memory_sweep
from tests.builders import make_scenario
from tests.laws.test_brute_force import random_scenario


@pytest.mark.parametrize("number", range(0, 60, 3))
def test_falling_limits_in_one_session_give_the_plans_of_fresh_searches(number: int) -> None:
    scenario = random_scenario(number)
    session = open_session(scenario)
    for share in (1.6, 1.3, 1.0, 0.9, 0.8, 0.75, 0.7):
        limited = replace(scenario, memory_limit_bytes=share * scenario.memory_limit_bytes)
        shared = plan(limited, top=3, tolerance=0.0, session=session, explain=False)
        fresh = plan(limited, top=3, tolerance=0.0, explain=False)
        assert [p.iteration_s for p in shared.plans] == [p.iteration_s for p in fresh.plans]
        assert shared.lower_bound_s == fresh.lower_bound_s


def test_more_memory_than_before_starts_over() -> None:
    scenario = make_scenario(layers=4, gpus=4)
    session = open_session(scenario)
    tight = replace(scenario, memory_limit_bytes=4 * 2**30)
    plan(tight, top=1, session=session, explain=False)
    again = plan(scenario, top=5, tolerance=0.0, session=session)
    assert [p.iteration_s for p in again.plans] == [
        p.iteration_s for p in plan(scenario, top=5, tolerance=0.0).plans
    ]


def test_a_sweep_finds_the_best_plan_of_every_limit() -> None:
    scenario = make_scenario(layers=4, gpus=4, search={"micro_batch": [1, 2]})
    steps = memory_sweep(scenario)
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        limits = [step.memory_bytes, after.memory_bytes - 1024 if after else 2 * step.memory_bytes]
        for limit in limits:
            limited = replace(scenario, memory_limit_bytes=limit)
            best = plan(limited, top=1, tolerance=0.0).plans[0]
            assert best.iteration_s == step.plan.iteration_s
