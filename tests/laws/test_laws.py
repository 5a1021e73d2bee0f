"""Laws that every answer obeys, over generated scenarios."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.answer_json import result_to_json
from planner.check import check_plan
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.search import plan
from tests.builders import make_scenario

few = settings(max_examples=12, deadline=None, derandomize=True)
layers = st.sampled_from([2, 3, 4, 6])
gpus = st.sampled_from([1, 2, 4, 8])
frameworks = st.sampled_from(["megatron", "torchtitan", "nanotron"])


def best_s(scenario: Scenario) -> float:
    result = plan(scenario, top=1, tolerance=0.0)
    return result.plans[0].iteration_s if result.plans else float("inf")


@few
@given(layers, gpus, frameworks)
def test_every_printed_plan_passes_the_checker(count: int, ranks: int, framework: str) -> None:
    scenario = make_scenario(layers=count, gpus=ranks, framework=framework)
    pricer = make_pricer(scenario)
    for item in plan(scenario, top=5).plans:
        assert check_plan(item, pricer.cost(item.strategy), scenario) == ()


@few
@given(layers, gpus, frameworks)
def test_the_bound_never_exceeds_the_plans_and_they_are_in_order(
    count: int, ranks: int, framework: str
) -> None:
    result = plan(make_scenario(layers=count, gpus=ranks, framework=framework), top=5)
    times = [item.iteration_s for item in result.plans]
    assert times == sorted(times)
    assert result.lower_bound_s <= times[0]
    assert 0 <= result.gap <= 1e-3


@few
@given(layers, gpus, st.sampled_from(["3GiB", "4GiB", "6GiB", "12GiB"]))
def test_more_memory_never_hurts(count: int, ranks: int, memory: str) -> None:
    tight = make_scenario(layers=count, gpus=ranks, memory=memory)
    assert best_s(replace(tight, memory_limit_bytes=2 * tight.memory_limit_bytes)) <= best_s(tight)


@few
@given(layers, gpus)
def test_more_bandwidth_never_hurts(count: int, ranks: int) -> None:
    slow = make_scenario(layers=count, gpus=ranks)
    group = slow.cluster.groups[0]
    levels = tuple(
        replace(level, bandwidth_bytes_per_s=2 * level.bandwidth_bytes_per_s)
        for level in group.levels
    )
    fast = replace(slow, cluster=replace(slow.cluster, groups=(replace(group, levels=levels),)))
    assert best_s(fast) <= best_s(slow)


@few
@given(layers, gpus)
def test_twice_the_layers_are_never_faster(count: int, ranks: int) -> None:
    assert best_s(make_scenario(layers=2 * count, gpus=ranks)) >= best_s(
        make_scenario(layers=count, gpus=ranks)
    )


def answer(scenario: Scenario) -> str:
    data = result_to_json(plan(scenario), scenario)
    del data["search"]["seconds"]
    return json.dumps(data)


@pytest.mark.parametrize("framework", ["megatron", "torchtitan"])
def test_same_input_gives_the_same_answer_byte_for_byte(framework: str) -> None:
    scenario = make_scenario(layers=6, gpus=8, framework=framework)
    assert answer(scenario) == answer(scenario)
