"""No closed-form bound exceeds the simulation of any placement."""

import itertools
import random

import numpy as np
import pytest

from costmodel.simulator import iteration_ns
from costmodel.strategy import SCHEDULES, Schedule
from planner.bounds import time_bounds
from planner.coefficients import Arrangement, Coefficients
from planner.priced_rows import LinearColumns, TimeRows
from tests.planner.synthetic import one_row, random_coefficients


def random_cuts(rng: random.Random, given: Coefficients) -> tuple[int, ...]:
    """Return any cuts; for interleaving, chunks that differ by at most one layer."""
    layers, stages = len(given.layer_kinds), given.shape.ranks * given.shape.chunks
    if given.shape.chunks == 1:
        return (0, *sorted(rng.sample(range(1, layers), stages - 1)), layers)
    small, more = divmod(layers, stages)
    larger = set(rng.sample(range(stages), more))
    sizes = [small + (stage in larger) for stage in range(stages)]
    return tuple(sum(sizes[:stage]) for stage in range(stages + 1))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bounds_never_exceed_the_simulation(schedule: Schedule) -> None:
    rng = random.Random(21)
    gaps = []
    for _ in range(700):
        ranks = rng.randint(1 + (schedule == "interleaved"), 10)
        chunks = rng.randint(2, 4) if schedule == "interleaved" else 1
        stages = ranks * chunks
        given = random_coefficients(
            rng,
            schedule,
            ranks=ranks,
            chunks=chunks,
            layers=rng.choice((stages, rng.randint(stages, 4 * stages))),
            kinds=rng.randint(1, 2),
            microbatches=rng.choice((None, 1, ranks, ranks + 1, 3 * ranks)),
        )
        bound = int(time_bounds(one_row(given))[0])
        times = []
        for _ in range(6):
            cuts = random_cuts(rng, given)
            sizes = [b - a for a, b in itertools.pairwise(cuts)]
            again = tuple(n if given.recompute_all else rng.randint(0, n) // 2 for n in sizes)
            times.append(iteration_ns(given.work(Arrangement(cuts, again))))
        assert bound <= min(times)
        gaps.append(1 - bound / min(times))
    assert sorted(gaps)[len(gaps) // 2] < 0.4


def test_the_bound_of_equal_stages_without_ends_is_exact() -> None:
    rng = random.Random(1)
    given = random_coefficients(rng, "1f1b", ranks=4, layers=8, microbatches=16)
    plain = LinearColumns.of([given.forward._replace(fixed=0, first=0, last=0, recomputed=(0,))])
    rows = one_row(given)
    rows = TimeRows(
        **{name: getattr(rows, name) for name in ("ranks", "chunks", "microbatches", "schedule")},
        recompute_all=np.array([False]),
        kinds=(0,) * 8,
        forward=plain,
        backward=plain,
        weight=plain,
        hop=np.array([0.0]),
    )
    micro_batch = 2 * 2 * given.forward.layer[0]
    assert int(time_bounds(rows)[0]) == pytest.approx((16 + 3) * micro_batch, abs=2)
