"""The proof agrees with enumeration and simulation of every placement."""

import random

import pytest

from costmodel.simulator import iteration_ns
from costmodel.strategy import Schedule
from planner import proof
from planner.best_placement import best_placement
from planner.even_bounds import even_cuts
from tests.planner.synthetic import brute_force, random_coefficients, tightened, with_recomputation

ONE_CHUNK: tuple[Schedule, ...] = ("1f1b", "gpipe", "zero_bubble", "no_flush")


@pytest.mark.parametrize("schedule", ONE_CHUNK)
def test_the_proved_placement_is_the_best_of_all(schedule: Schedule) -> None:
    rng = random.Random(31)
    for _ in range(110):
        ranks = rng.randint(1, 4)
        given = random_coefficients(
            rng, schedule, ranks=ranks, layers=rng.randint(ranks, 7), kinds=rng.randint(1, 3)
        )
        if rng.random() < 0.6:
            given = tightened(rng, given)
        found, best = best_placement(given), brute_force(given)
        assert (found.iteration_ns if found else None) == best
        if found is not None:
            assert found.lower_bound_ns == best
            assert given.fits(found.arrangement)
            assert iteration_ns(given.work(found.arrangement)) == best


@pytest.mark.parametrize("schedule", ONE_CHUNK)
def test_the_solver_alone_proves_the_same(
    schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(32)
    monkeypatch.setattr(proof._Proof, "enumerated", lambda _: None)
    for _ in range(50):
        ranks = rng.randint(1, 4)
        given = random_coefficients(
            rng, schedule, ranks=ranks, layers=rng.randint(ranks, 7), kinds=rng.randint(1, 3)
        )
        if rng.random() < 0.6:
            given = tightened(rng, given)
        found, best = best_placement(given), brute_force(given)
        assert (found and (found.iteration_ns, found.lower_bound_ns)) == (best and (best, best))


def test_interleaved_strategies_take_the_best_balanced_placement() -> None:
    rng = random.Random(33)
    for _ in range(60):
        ranks, chunks = rng.randint(2, 3), rng.randint(2, 3)
        layers = ranks * chunks + rng.randint(0, 8)
        given = random_coefficients(
            rng, "interleaved", ranks=ranks, chunks=chunks, layers=layers, kinds=rng.randint(1, 2)
        )
        if rng.random() < 0.5:
            given = tightened(rng, given)
        placed = [with_recomputation(given, c) for c in even_cuts(layers, ranks * chunks, True)]
        times = [iteration_ns(given.work(item)) for item in placed if item is not None]
        found = best_placement(given)
        assert (found.iteration_ns if found else None) == min(times, default=None)


def test_demands_of_all_ranks_at_once_are_those_of_each() -> None:
    rng = random.Random(35)
    for chunks in (1, 2, 3):
        schedule: Schedule = "interleaved" if chunks > 1 else "1f1b"
        given = random_coefficients(
            rng, schedule, ranks=3, chunks=chunks, layers=3 * chunks + 4, kinds=2
        )
        given = tightened(rng, given)
        for cuts in even_cuts(3 * chunks + 4, 3 * chunks, True):
            arrangement = with_recomputation(given, cuts)
            if arrangement is not None:
                each = [given.demand_kib(rank, arrangement)[0] for rank in range(3)]
                assert given.demands_kib(arrangement).max(axis=0).tolist() == each


def test_the_same_strategy_is_placed_the_same_way_twice() -> None:
    given = random_coefficients(random.Random(5), "1f1b", ranks=5, layers=17, kinds=2)
    assert best_placement(given) == best_placement(given)
