"""The search agrees with enumerating and simulating every placement of every strategy."""

import random
from dataclasses import replace

import numpy as np
import pytest

from costmodel.simulator import iteration_ns
from planner.coefficients import coefficients, limit_kib
from planner.columns import Columns
from planner.engine import EngineResult, search
from planner.even_bounds import even_cuts
from tests.planner.synthetic import brute_force, with_recomputation
from tests.planner.toy_pricer import GPT3, ToyModel, ToyPricer, toy_space


def random_model(rng: random.Random) -> ToyModel:
    """Return a small model, dense or with experts, on slow or fast links."""
    layers = rng.randint(2, 5)
    dense = rng.randint(0, layers)
    mixed = rng.random() < 0.5
    return ToyModel(
        layers=tuple(int(mixed and at >= dense) for at in range(layers)),
        hidden=4096,
        sequence=2048,
        vocab=rng.choice((1000, 50000)),
        dense=2e8,
        active=1.5e8,
        experts=rng.choice((3e8, 2e9)),
        network=rng.choice((1e9, 2e10)),
    )


def random_scenario(rng: random.Random) -> tuple[ToyModel, Columns, float]:
    """Return a model, a few strategies for it and a memory limit that is often tight."""
    model = random_model(rng)
    columns = toy_space(
        model,
        rng.choice((2, 4, 8)),
        rng.choice((4, 8, 16)),
        schedules=("1f1b", "gpipe", "zero_bubble", "interleaved"),
        recomputes=("none", "full") if rng.random() < 0.2 else ("none",),
    )
    chosen = rng.sample(range(len(columns)), min(len(columns), 7))
    limit = rng.choice((4e9, 6e9, 8e9, 12e9, 80e9))
    return model, columns.take(np.array(chosen)), limit


def best_times(model: ToyModel, columns: Columns, limit: float) -> list[int]:
    """Return the fastest iteration of each strategy that fits, by enumeration."""
    times: list[int] = []
    for row in range(len(columns)):
        given = coefficients(ToyPricer(model).cost(columns.strategy(row)), limit)
        if given.shape.chunks == 1:
            best = brute_force(given)
        else:
            stages = given.shape.ranks * given.shape.chunks
            placed = [
                with_recomputation(given, cuts)
                for cuts in even_cuts(len(model.layers), stages, True)
            ]
            works = [given.work(item) for item in placed if item is not None]
            best = min(map(iteration_ns, works), default=None)
        if best is not None:
            times.append(best)
    return sorted(times)


@pytest.mark.parametrize("seed", range(10))
def test_the_search_finds_and_proves_the_best_plans_of_random_scenarios(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(32):
        model, columns, limit = random_scenario(rng)
        top = rng.choice((1, 3))
        result = search(columns, ToyPricer(model), memory_limit_bytes=limit, top=top, tolerance=0.0)
        times = best_times(model, columns, limit)
        assert [plan.iteration_ns for plan in result.ranked] == times[:top]
        assert result.proved
        if times:
            assert result.lower_bound_ns == times[0]
        for plan in result.ranked:
            assert plan.peak_kib <= limit_kib(limit)
            assert iteration_ns(plan.coefficients.work(plan.arrangement)) == plan.iteration_ns


def small_gpt() -> tuple[ToyModel, Columns]:
    model = replace(GPT3, layers=(0,) * 14, memory=40e9)
    return model, toy_space(model, 32, 32, schedules=("1f1b", "gpipe", "interleaved"))


def run(limit: float, **options: float) -> EngineResult:
    model, columns = small_gpt()
    tolerance = options.get("tolerance", 0.0)
    return search(
        columns,
        ToyPricer(model),
        memory_limit_bytes=limit,
        top=int(options.get("top", 5)),
        tolerance=tolerance,
        time_limit_s=options.get("time_limit_s"),
        uneven=bool(options.get("uneven", True)),
    )


def test_equal_input_gives_equal_results() -> None:
    first, second = run(40e9), run(40e9)
    assert first == second


def test_a_tolerance_leaves_a_gap_no_larger_than_itself() -> None:
    exact, rough = run(40e9), run(40e9, tolerance=0.02)
    assert rough.lower_bound_ns <= exact.lower_bound_ns == exact.ranked[0].iteration_ns
    assert rough.ranked[0].iteration_ns * (1 - 0.02) <= rough.lower_bound_ns + 1


def test_more_memory_never_slows_the_best_plan() -> None:
    times = [run(limit, top=1).ranked[0].iteration_ns for limit in (24e9, 30e9, 40e9, 80e9)]
    assert times == sorted(times, reverse=True)


def test_nothing_fits_names_the_strategy_that_lacks_least() -> None:
    result = run(4e9)
    assert result.ranked == ()
    assert result.rejected_by_memory == result.strategies
    assert result.nearest is not None
    assert result.nearest.over_bytes > 0
    fits = run(4e9 + result.nearest.over_bytes)
    assert fits.ranked


def test_an_expired_time_limit_gives_an_honest_bound() -> None:
    result, exact = run(40e9, time_limit_s=0.0), run(40e9)
    assert not result.proved
    assert result.lower_bound_ns <= exact.ranked[0].iteration_ns


def test_equal_stages_only_leaves_out_uneven_placements() -> None:
    for plan in run(40e9, uneven=False, top=20).ranked:
        counts = plan.placement.layer_counts()
        assert len(set(counts[1:-1])) <= 1


def test_no_strategies_is_an_answer() -> None:
    model, columns = small_gpt()
    nothing = columns.take(np.zeros(len(columns), dtype=np.bool_))
    result = search(nothing, ToyPricer(model), memory_limit_bytes=1e9)
    assert result == EngineResult()
