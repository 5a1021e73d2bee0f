"""Weights, profiles, tidying, nodes, handwork and the answer, each by itself."""

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.errors import InputError
from planner.plans import SearchStatus
from planner.pool.baseline import equal_split, first_come_first_served
from planner.pool.bound import dual_feasible, rows_within
from planner.pool.check import violations
from planner.pool.compact import compact
from planner.pool.cutting import Prices
from planner.pool.heuristic import Profile, schedule
from planner.pool.instance import Instance, Mode, build_instance, completion, runs_of
from planner.pool.model import BatchMode, Objective, Pool
from planner.pool.nodes import assign_nodes
from planner.pool.share import ShareResult, share
from planner.pool.solver_cutting import refuting_prices
from tests.planner.pool.builders import make_group, make_instance, make_job, random_instance


@given(
    st.integers(5, 200),
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_weights_of_what_fits_into_one_bin_sum_to_at_most_one(
    bin_size: int, shares: list[float], rng: random.Random
) -> None:
    sizes = sorted({max(1, round(share * bin_size)) for share in shares})
    content: list[int] = []
    while sum(content) <= bin_size:
        content.append(rng.choice(sizes))
    content.pop()
    for weights in dual_feasible(sizes, bin_size):
        assert sum(weights.of[size] for size in content) <= weights.scale


@pytest.mark.parametrize("seed", range(10))
def test_every_row_holds_for_schedules_within_their_makespan(seed: int) -> None:
    instance = random_instance(seed, Objective.MAKESPAN, jobs=7)
    blocks = schedule(instance)
    assert blocks is not None
    end = max(block.end for block in blocks)
    for group, capacity in enumerate(instance.capacities):
        used = [block.mode for block in blocks if block.mode.group == group]
        length = end - instance.windows[group][0]
        for row in rows_within(used, capacity, length):
            assert sum(row.weight(mode) for mode in used) <= row.limit


def test_a_profile_finds_the_first_gap_that_is_long_and_wide_enough() -> None:
    profile = Profile(times=[0], free=[4], end=100)
    profile.reserve(3, 0, 10)
    profile.reserve(4, 12, 20)
    assert profile.earliest(1, 10, 0) == 0
    assert profile.earliest(2, 2, 0) == 10
    assert profile.earliest(2, 3, 0) == 20
    assert profile.earliest(4, 80, 5) == 20
    assert profile.earliest(4, 81, 5) is None


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(4))
def test_tidying_moves_nothing_later(seed: int, objective: Objective) -> None:
    instance = random_instance(seed, objective, jobs=6)
    blocks = schedule(instance)
    if blocks is None:
        return
    gap = 3
    loose = [replace(b, start=b.start + gap, end=b.end + gap) for b in blocks]
    roomy = replace(
        instance,
        horizon=instance.horizon + gap,
        windows=tuple((first, end + gap) for first, end in instance.windows),
    )
    tidy = compact(roomy, loose)
    assert not violations(roomy, tidy)
    works = len(instance.works)
    pairs = zip(completion(tidy, works), completion(blocks, works), strict=True)
    assert all(tidied <= before for tidied, before in pairs)


@pytest.mark.parametrize("seed", range(4))
def test_no_node_serves_two_models_at_once(seed: int) -> None:
    instance = random_instance(seed, Objective.MAKESPAN, jobs=8)
    blocks = schedule(instance)
    assert blocks is not None
    runs = runs_of(blocks)
    ranges = assign_nodes(instance, runs)
    for (a, own), (b, other) in itertools.combinations(zip(runs, ranges, strict=True), 2):
        apart = a[-1].end <= b[0].start or b[-1].end <= a[0].start
        if a[0].mode.group == b[0].mode.group and not apart:
            assert not _nodes(own) & _nodes(other)
    for run, own in zip(runs, ranges, strict=True):
        assert len(_nodes(own)) == run[0].mode.nodes
        assert max(_nodes(own)) < instance.capacities[run[0].mode.group]


def _nodes(ranges: tuple[tuple[int, int], ...]) -> set[int]:
    return {node for first, end in ranges for node in range(first, end)}


def test_first_come_first_served_takes_what_ends_soonest_and_never_overtakes() -> None:
    instance = make_instance(
        make_job("a", (1, 8.0), (2, 4.0)), make_job("b", (4, 2.0)), make_job("c", (1, 1.0))
    )
    blocks = first_come_first_served(instance)
    assert blocks is not None
    assert [(b.mode.nodes, b.start, b.end) for b in blocks] == [(2, 0, 4), (4, 4, 6), (1, 6, 7)]


def test_equal_split_gives_each_model_its_slice_and_queues_where_slices_are_few() -> None:
    two = make_instance(make_job("a", (1, 8.0), (2, 4.0)), make_job("b", (1, 6.0), (4, 2.0)))
    blocks = equal_split(two)
    assert blocks is not None
    assert [(b.mode.nodes, b.start, b.end) for b in blocks] == [(2, 0, 4), (1, 0, 6)]
    wide = make_instance(make_job("a", (3, 4.0)), make_job("b", (1, 6.0)))
    queued = equal_split(wide)
    assert queued is not None
    assert [(b.start, b.end) for b in queued] == [(0, 4), (4, 10)]


@pytest.mark.parametrize("seed", range(4))
def test_schedules_made_by_hand_keep_the_rules(seed: int) -> None:
    instance = random_instance(seed, Objective.MAKESPAN, jobs=8)
    for rule in (equal_split, first_come_first_served):
        blocks = rule(instance)
        assert blocks is not None
        assert not violations(instance, blocks)


def test_each_broken_rule_is_named() -> None:
    instance = make_instance(make_job("a", (3, 4.0)), make_job("b", (2, 4.0)))
    blocks = schedule(instance)
    assert blocks is not None
    first, second = sorted(blocks, key=lambda block: block.work)
    together = replace(second, start=first.start, end=first.end)
    assert "5 nodes" in violations(instance, [first, together])[0]
    assert "exactly once" in violations(instance, [first])[0]
    short = replace(second, end=second.end - 1)
    assert "instead of 4" in violations(instance, [first, short])[0]
    early = replace(second, start=-4, end=0)
    assert "outside the hours" in violations(instance, [first, early])[0]
    foreign = replace(second, mode=replace(second.mode, nodes=1))
    assert "not on its front" in violations(instance, [first, foreign])[0]


def test_a_resize_without_restart_is_named() -> None:
    job = make_job("a", (1, 8.0), (2, 4.0), checkpoints=(0.5,), restart_h=2.0)
    instance = make_instance(job)
    narrow, wide = instance.works[0].pieces[0][0], instance.works[0].pieces[1][1]
    from planner.pool.instance import Block

    blocks = [
        Block(work=0, piece=0, mode=narrow, start=0, end=4),
        Block(work=0, piece=1, mode=wide, start=4, end=6),
    ]
    assert "must pay the restart" in violations(instance, blocks)[0]


def test_hours_round_up_to_ticks_and_gpus_to_nodes() -> None:
    group = replace(make_group(), gpus=16, gpus_per_node=8)
    job = make_job("a", (9, 1.1))
    instance = build_instance([group], [job], Objective.MAKESPAN, 0.5)
    mode: Mode = instance.works[0].pieces[0][0]
    assert (mode.nodes, mode.ticks) == (2, 3)


def test_a_model_wider_than_every_group_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"models\.big: must fit"):
        make_instance(make_job("big", (5, 1.0)))


def _shared(objective: Objective = Objective.MAKESPAN, jobs: int = 5) -> ShareResult:
    made = [
        make_job(f"job {i}", (1, 3.0 + i), (2, 2.0 + i / 2), deadline_h=4.0) for i in range(jobs)
    ]
    pool = Pool(
        mode=BatchMode.SHARE, groups=(make_group(),), requests=(), objective=objective, tick_h=0.25
    )
    return share(pool, made)


@pytest.mark.parametrize("objective", list(Objective)[:3])
def test_the_same_pool_gives_the_same_answer_with_its_certificate(objective: Objective) -> None:
    first, second = _shared(objective), _shared(objective)
    assert first == second
    assert first.bound <= first.value
    assert first.gap == pytest.approx(
        (first.value - first.bound) / first.value if first.value else 0.0
    )
    assert first.status is (SearchStatus.OPTIMAL if first.gap <= 0.01 else SearchStatus.FEASIBLE)


def test_the_gain_over_handwork_is_what_the_objective_saves() -> None:
    result = _shared()
    assert result.value == result.makespan_h == max(job.end_h for job in result.jobs)
    for item in result.comparisons:
        assert item.value is not None
        assert item.gain == pytest.approx((item.value - result.value) / item.value)
        assert item.gain is not None
        assert item.gain >= 0


def test_a_window_too_short_for_all_says_so() -> None:
    jobs = [make_job(name, (4, 3.0)) for name in "ab"]
    groups = (make_group(until_h=5.0),)
    pool = Pool(mode=BatchMode.SHARE, groups=groups, requests=(), tick_h=1.0)
    result = share(pool, jobs)
    assert result.status is SearchStatus.INFEASIBLE
    assert "hours" in result.reasons[0]


def test_adding_nodes_never_makes_the_best_schedule_longer() -> None:
    def best(nodes: int) -> float:
        jobs = [make_job(f"job {i}", (1, 3.0 + i), (2, 2.0 + i / 2)) for i in range(4)]
        pool = Pool(
            mode=BatchMode.SHARE,
            groups=(make_group(nodes=nodes),),
            requests=(),
            gap=0.0,
            tick_h=0.5,
        )
        return share(pool, jobs).value

    values = [best(nodes) for nodes in range(2, 7)]
    assert values == sorted(values, reverse=True)


def test_instances_are_values() -> None:
    built: list[Instance] = [make_instance(make_job("a", (1, 2.0))) for _ in range(2)]
    assert built[0] == built[1]


@given(
    st.integers(20, 3000),
    st.dictionaries(st.floats(0.01, 1.0), st.integers(0, 50), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
def test_any_prices_give_weights_that_sum_to_at_most_one_in_a_bin(
    bin_size: int, priced: dict[float, int], rng: random.Random
) -> None:
    prices = {max(1, round(share * bin_size)): price for share, price in priced.items()}
    sizes = sorted(set(prices) | {max(1, bin_size // 3)})
    content: list[int] = []
    while sum(content) <= bin_size:
        content.append(rng.choice(sizes))
    content.pop()
    weights = Prices(of=prices).weights(sizes, bin_size)
    assert sum(weights.of[size] for size in content) <= weights.scale


def test_pieces_that_cannot_be_cut_from_the_nodes_are_refuted_by_their_prices() -> None:
    """Five pieces of 6 and five of 5 from five bins of 11 fit; a sixth long piece does not."""
    assert refuting_prices({6: 5, 5: 5}, nodes=5, ticks=11) is None
    prices = refuting_prices({6: 6, 5: 5}, nodes=5, ticks=11)
    assert prices is not None
    weights = prices.weights([5, 6], 11)
    assert 6 * weights.of[6] + 5 * weights.of[5] > 5 * weights.scale
