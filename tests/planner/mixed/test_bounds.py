"""No closed-form bound over several device groups exceeds what simulating every placement and assignment finds."""

import random

import numpy as np
import pytest

from planner.bounds import time_bounds
from planner.coefficients import limit_kib
from planner.mixed.relaxed import RelaxedRows
from tests.planner.mixed.toys import brute_force, random_mixed


@pytest.mark.parametrize("seed", range(3))
def test_bounds_stay_below_the_best_simulated_iteration(seed: int) -> None:
    rng = random.Random(1000 + seed)
    for _ in range(7):
        scenario = random_mixed(rng)
        rows = RelaxedRows(scenario.prices, scenario.columns)
        remembered = rows.remembered(limit_kib(scenario.limit_bytes))
        every = np.arange(len(scenario.columns))
        part = rows.time(every)
        part = part.at(every, rows.finish(every))
        bounds = [
            remembered,
            rows.even_floors(every, uneven=True),
            rows.bounds(every, part, uneven=True),
            time_bounds(rows.floor),
            time_bounds(part),
        ]
        for row in every.tolist():
            given = scenario.prices.coefficients(
                scenario.columns.strategy(row), scenario.limit_bytes
            )
            best = brute_force(given) if any(given.slots) else None
            if best is not None:
                assert max(int(bound[row]) for bound in bounds) <= best
