"""The bound over cut positions never exceeds what the best placement simulates to."""

import random

import numpy as np
import pytest

from costmodel.simulator import iteration_ns
from costmodel.strategy import Schedule
from planner.placement_dp import placement_bound, smallest_maximum
from planner.rows import rows_below
from planner.stage_tables import stage_tables
from planner.stage_values import StageValues
from planner.windows import Budgets
from tests.planner.synthetic import all_cuts, brute_force, random_coefficients, tightened

ONE_CHUNK: tuple[Schedule, ...] = ("1f1b", "gpipe", "zero_bubble", "no_flush")


@pytest.mark.parametrize("schedule", ONE_CHUNK)
def test_the_bound_holds_for_every_placement_and_its_own_placement_fits(
    schedule: Schedule,
) -> None:
    rng = random.Random(5)
    gaps = []
    for _ in range(120):
        ranks = rng.randint(1, 4)
        given = random_coefficients(
            rng, schedule, ranks=ranks, layers=rng.randint(ranks, 7), kinds=rng.randint(1, 3)
        )
        if rng.random() < 0.6:
            given = tightened(rng, given)
        best = brute_force(given)
        found = placement_bound(given)
        assert (found is None) == (best is None)
        if found is not None and best is not None:
            assert found.bound_ns <= best
            assert given.fits(found.arrangement)
            assert iteration_ns(given.work(found.arrangement)) >= best
            gaps.append(1 - found.bound_ns / best)
            below = placement_bound(given, best)
            assert below is None or below.bound_ns < best
            within = placement_bound(given, best + 1)
            assert within is not None
            assert within.bound_ns <= best
    assert sum(gaps) / len(gaps) < 0.05


@pytest.mark.parametrize("schedule", ONE_CHUNK)
def test_the_bound_holds_on_longer_pipelines(schedule: Schedule) -> None:
    rng = random.Random(6)
    for _ in range(60):
        ranks = rng.randint(2, 12)
        given = random_coefficients(
            rng,
            schedule,
            ranks=ranks,
            layers=rng.randint(ranks, 3 * ranks),
            kinds=rng.randint(1, 2),
        )
        found = placement_bound(given)
        assert found is not None
        values = StageValues(given)
        layers = len(given.layer_kinds)
        for _ in range(40):
            inner = sorted(rng.sample(range(1, layers), ranks - 1))
            work = values.work((0, *inner, layers))
            assert work is not None
            assert found.bound_ns <= iteration_ns(work)


@pytest.mark.parametrize("schedule", ONE_CHUNK)
def test_no_placement_below_a_cutoff_is_dropped(schedule: Schedule) -> None:
    rng = random.Random(7)
    for _ in range(30):
        ranks = rng.randint(2, 10)
        layers = rng.randint(ranks, 4 * ranks)
        given = random_coefficients(
            rng,
            schedule,
            ranks=ranks,
            layers=layers,
            kinds=rng.randint(1, 2),
            microbatches=rng.choice((None, 2 * ranks, 9 * ranks)),
        )
        if rng.random() < 0.5:
            given = tightened(rng, given)
        values = StageValues(given)
        for _ in range(8):
            cuts = (0, *sorted(rng.sample(range(1, layers), ranks - 1)), layers)
            work = values.work(cuts)
            if work is None:
                continue
            cutoff = iteration_ns(work) + 1
            windows = Budgets(given).narrow(float(cutoff))
            assert windows is not None
            rows = rows_below(given, stage_tables(given, windows), cutoff)
            assert rows is not None
            at = np.array(cuts) - rows.tables.windows.low
            assert rows.tables.legal[np.arange(ranks), at[:-1], at[1:]].all()
            found = smallest_maximum(rows, most_levels=8)
            assert found is not None
            assert found[0] < cutoff


def test_stage_values_and_placements_price_the_same_work() -> None:
    rng = random.Random(8)
    for _ in range(50):
        given = tightened(rng, random_coefficients(rng, "1f1b", ranks=3, layers=6, kinds=2))
        values = StageValues(given)
        for cuts in all_cuts(6, 3):
            work = values.work(cuts)
            if work is not None:
                assert given.fits(values.arrangement(cuts))
                assert work == given.work(values.arrangement(cuts))
