"""What an assignment of pipeline ranks to device groups must keep: the smallest instance that does, and one that does not."""

from dataclasses import replace

import pytest

from costmodel.errors import InputError
from costmodel.strategy import Strategy
from planner.check import broken_rules, check_plan
from planner.columns import columns_of
from planner.mixed.cluster import broken_groups, default_groups, limits_bytes, subset_sizes
from planner.plans import Plan
from planner.rules import facts_of
from planner.scenario_search import open_session
from planner.search import plan
from planner.simulation import simulate_strategy
from planner.strategy_text import parse_placement
from tests.builders import make_mixed_scenario

SCENARIO = make_mixed_scenario()
PIPELINE = Strategy(pp=4, tp=2, microbatches=16)


def named(groups: tuple[int, ...], strategy: Strategy = PIPELINE) -> set[str]:
    """Return the rules that an assignment of the strategy's ranks breaks."""
    placement = parse_placement("2/1/1/2", PIPELINE, 6)
    assert placement is not None
    found = broken_groups(replace(placement, device_groups=groups), strategy, SCENARIO.cluster)
    return {rule for rule, _ in found}


def best() -> Plan:
    """Return the best plan whose four ranks of two GPUs run on both kinds."""
    return plan(make_mixed_scenario(pp=[4], tp=[2]), top=1, tolerance=0.0).plans[0]


@pytest.mark.parametrize("groups", [(0, 0, 1, 1), (1, 0, 1, 0)])
def test_two_ranks_of_two_gpus_fit_each_group_of_four(groups: tuple[int, ...]) -> None:
    assert named(groups) == set()


@pytest.mark.parametrize("groups", [(0, 0, 0, 1), (1, 1, 1, 0)])
def test_three_ranks_of_two_gpus_do_not_fit_a_group_of_four(groups: tuple[int, ...]) -> None:
    assert named(groups) == {"group_capacity"}


@pytest.mark.parametrize("groups", [(), (0, 1), (0, 0, 1, 2)])
def test_every_rank_names_a_group_of_the_cluster(groups: tuple[int, ...]) -> None:
    assert named(groups) == {"device_groups"}


def test_only_a_strategy_that_no_group_can_hold_is_spread_over_all() -> None:
    assert named((), Strategy(dp=8)) == set()
    assert named((), Strategy(dp=4)) == {"device_groups"}


@pytest.mark.parametrize(
    ("strategy", "legal"),
    [
        (Strategy(pp=2, tp=4, microbatches=16), True),
        (Strategy(dp=8, microbatches=2), True),
        (replace(PIPELINE, placement_order="tp-cp-ep-pp-dp"), False),
    ],
)
def test_pipelines_stand_outermost_where_groups_differ(strategy: Strategy, legal: bool) -> None:
    broken = {item.rule for item in broken_rules(columns_of((strategy,)), facts_of(SCENARIO))}
    assert ("group_capacity" not in broken) == legal


def test_groups_of_three_and_five_gpus_hold_fewer_ranks_than_eight_gpus() -> None:
    groups = SCENARIO.cluster.groups
    uneven = replace(groups[0], gpus=3), replace(groups[1], gpus=5)
    scenario = replace(SCENARIO, cluster=replace(SCENARIO.cluster, groups=uneven))
    rules = broken_rules(columns_of((PIPELINE,)), facts_of(scenario))
    assert [item.rule for item in rules] == ["group_capacity"]
    assert "pp 3" in rules[0].text
    assert default_groups(scenario.cluster, PIPELINE) == ()


def test_groups_are_filled_in_their_order_by_default() -> None:
    assert default_groups(SCENARIO.cluster, PIPELINE) == (0, 0, 1, 1)


def test_a_plan_may_use_all_gpus_of_any_choice_of_groups() -> None:
    assert subset_sizes(SCENARIO.cluster) == (4, 8)
    assert SCENARIO.gpu_counts == (4, 8)


def test_each_group_has_its_own_memory_limit_below_that_of_the_scenario() -> None:
    devices = [group.device for group in SCENARIO.cluster.groups]
    assert limits_bytes(SCENARIO, (0, 1)) == tuple(device.usable_bytes for device in devices)
    small = replace(SCENARIO, memory_limit_bytes=10e9)
    assert limits_bytes(small, (0, 1)) == (10e9, 10e9)


def test_a_valid_plan_is_invalid_with_other_groups_or_less_memory() -> None:
    found, session = best(), open_session(SCENARIO)
    groups = found.placement.device_groups
    cost = session.cost(found.strategy, groups)
    assert check_plan(found, cost, SCENARIO) == ()
    moved = replace(found, placement=replace(found.placement, device_groups=(0, 0, 0, 1)))
    assert [item.rule for item in check_plan(moved, cost, SCENARIO)] == ["group_capacity"]
    fullest = max(stage.memory_bytes for stage in found.stages)
    tight = replace(SCENARIO, memory_limit_bytes=fullest - 1)
    assert {item.rule for item in check_plan(found, cost, tight)} == {"memory"}
    exchanged = tuple(1 - group for group in groups)
    slower = session.cost(found.strategy, exchanged)
    placed = replace(found, placement=replace(found.placement, device_groups=exchanged))
    assert [item.rule for item in check_plan(placed, slower, SCENARIO)] == ["iteration"]


def test_a_typed_placement_names_groups_by_index_or_device() -> None:
    text = "2@dgx/1/1/2"
    with pytest.raises(InputError, match="device group"):
        parse_placement(text, PIPELINE, 6, SCENARIO.cluster)
    typed = parse_placement(
        "2@1/1@a100-sxm-80gb/1@0/2:1@v100-sxm2-32gb", PIPELINE, 6, SCENARIO.cluster
    )
    assert typed is not None
    assert typed.device_groups == (1, 0, 0, 1)
    assert [chunk.recomputed for chunk in typed.chunks] == [0, 0, 0, 1]


def test_chunks_of_a_rank_share_its_group() -> None:
    strategy = Strategy(pp=2, vpp=2, schedule="interleaved", microbatches=16)
    typed = parse_placement("1@1/2@0/1/2", strategy, 6, SCENARIO.cluster)
    assert typed is not None
    assert typed.device_groups == (1, 0)
    with pytest.raises(InputError, match="all chunks"):
        parse_placement("1@1/2@0/1@0/2", strategy, 6, SCENARIO.cluster)


def test_simulating_the_best_plan_gives_its_time_and_other_groups_are_slower() -> None:
    found = best()
    fields = ("tp", "pp", "micro_batch", "microbatches", "zero", "schedule")
    strategy = ",".join(f"{name}={getattr(found.strategy, name)}" for name in fields)
    strategy += f",sequence_parallel={found.strategy.sequence_parallel}"
    groups = found.placement.device_groups
    chunks = found.placement.chunks

    def simulated(assigned: tuple[int, ...]) -> Plan:
        parts = zip(chunks, assigned, strict=True)
        text = "/".join(f"{chunk.layers}:{chunk.recomputed}@{group}" for chunk, group in parts)
        result = simulate_strategy(SCENARIO, strategy, text).plan
        assert result is not None
        return result

    again = simulated(groups)
    assert again.iteration_s == found.iteration_s
    assert again.placement == found.placement
    assert again.mfu == found.mfu
    assert simulated(tuple(1 - group for group in groups)).iteration_s > found.iteration_s
    assert (
        simulate_strategy(SCENARIO, strategy, "2@0/1@0/1@0/2@1").violations[0].rule
        == "group_capacity"
    )
