"""Objectives beside time, against searches one can compare by hand."""

from dataclasses import replace

import pytest

from costmodel.errors import InputError
from planner.objectives import Effort, gpu_seconds, pareto, plan_for
from planner.plans import SearchStatus
from planner.search import plan
from planner.whatif_answers import answer_largest
from tests.builders import make_scenario

EXACT = Effort(top=3, tolerance=0.0)


def test_cheapest_uses_the_number_of_gpus_with_the_least_gpu_seconds() -> None:
    scenario = replace(make_scenario(layers=4, gpus=8), gpu_counts=(1, 2, 4, 8))
    answer = plan_for(scenario, "cost", EXACT)
    each = [plan(replace(scenario, gpu_counts=(n,)), top=1).plans[0] for n in (1, 2, 4, 8)]
    assert gpu_seconds(answer.plans[0]) == pytest.approx(min(map(gpu_seconds, each)), rel=1e-3)
    assert answer.status is SearchStatus.OPTIMAL


def test_fewest_gpus_meet_the_deadline_and_one_size_less_does_not() -> None:
    scenario = replace(make_scenario(layers=4, gpus=8, tokens=1e9), gpu_counts=(1, 2, 4, 8))
    slow = plan(replace(scenario, gpu_counts=(2,)), top=1).plans[0]
    days = 1e9 / slow.tokens_per_s / 86400
    answer = plan_for(scenario, "gpus", EXACT, deadline_days=days)
    assert answer.plans[0].strategy.gpus == 2
    assert plan_for(scenario, "gpus", EXACT, deadline_days=days / 100).plans == ()


def test_fewest_gpus_need_a_deadline() -> None:
    with pytest.raises(InputError, match="deadline"):
        plan_for(make_scenario(), "gpus", EXACT)


def test_least_memory_is_a_threshold_below_which_nothing_fits() -> None:
    scenario = make_scenario(layers=4, gpus=4)
    answer = plan_for(scenario, "memory", EXACT)
    demand = answer.plans[0].demand_bytes
    assert plan(replace(scenario, memory_limit_bytes=demand), top=1).plans
    assert not plan(replace(scenario, memory_limit_bytes=demand - 1024), top=1).plans


def test_a_pareto_front_holds_no_beaten_plan() -> None:
    plans = plan(make_scenario(layers=4, gpus=4), top=20).plans
    front = pareto(plans, lambda p: p.iteration_s, lambda p: p.peak_memory_bytes)
    assert front[0].iteration_s == min(p.iteration_s for p in plans)
    for item in front:
        assert not any(
            p.iteration_s < item.iteration_s and p.peak_memory_bytes < item.peak_memory_bytes
            for p in plans
        )


def test_the_deepest_model_fits_and_one_layer_more_does_not() -> None:
    scenario = make_scenario(layers=2, gpus=1, memory="8GiB")
    answer = answer_largest(scenario, "layers")
    deepest = answer.data["layers"]
    assert plan(make_scenario(layers=deepest, gpus=1, memory="8GiB"), top=1).plans
    assert not plan(make_scenario(layers=deepest + 1, gpus=1, memory="8GiB"), top=1).plans


def test_without_tables_every_price_is_a_formula() -> None:
    shares = plan(make_scenario(gpus=2), top=1).plans[0].price_shares
    assert shares == {"measured": 0.0, "interpolated": 0.0, "analytic": 1.0}
