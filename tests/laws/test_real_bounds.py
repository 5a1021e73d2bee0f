"""No bound exceeds the simulation of any plan of real scenarios: catalogue models on catalogue clusters.

``SHARDPLAN_LAW_PLANS=10000`` draws that many plans instead of the few that every run affords.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from costmodel import catalog
from costmodel.errors import InputError
from costmodel.simulator import iteration_ns
from costmodel.strategy import SCHEDULES, Strategy
from planner.bounds import time_bounds
from planner.candidate import Candidate
from planner.coefficients import Arrangement, Coefficients, coefficients, limit_kib
from planner.columns import columns_of
from planner.even_bounds import grouped_even_bounds
from planner.even_search import bound_even
from planner.local_search import moved
from planner.placement_dp import placement_bound
from planner.priced_rows import RowPricer
from planner.rows import rows_below
from planner.scenario import Scenario
from planner.scenario_file import scenario_from_mapping
from planner.scenario_pricer import make_pricer
from planner.space import enumerate_space
from planner.stage_tables import stage_tables
from planner.stage_values import StageValues
from planner.windows import Budgets
from tests.planner.test_bounds import random_cuts

PLANS = int(os.environ.get("SHARDPLAN_LAW_PLANS", "400"))
STRATEGIES, CUTS = 25, 4
ONE_CHUNK = tuple(name for name in SCHEDULES if name != "interleaved")


class Priced(NamedTuple):
    """A strategy with all that is said of it before any placement is looked at."""

    given: Coefficients
    closed_form_ns: int
    even_ns: int


def random_scenario(rng: random.Random) -> Scenario | None:
    """Return any model on any cluster; None where they do not go together."""
    content = {
        "model": rng.choice(catalog.names("models")),
        "cluster": {
            "name": rng.choice(catalog.names("clusters")),
            "gpus": rng.choice([8, 16, 32, 64, 128, 256, 512]),
        },
        "training": {
            "global_batch": rng.choice([64, 256, 1024, 3072]),
            "sequence": rng.choice([512, 2048]),
            "framework": rng.choice(["megatron", "torchtitan"]),
        },
    }
    try:
        return scenario_from_mapping(content)
    except InputError:
        return None


def random_strategies(rng: random.Random, scenario: Scenario) -> list[Strategy]:
    """Return legal strategies, those with one chunk under any schedule."""
    columns = enumerate_space(scenario).columns
    rows = rng.sample(range(len(columns)), min(STRATEGIES, len(columns)))
    drawn = [columns.strategy(row) for row in rows]
    return [
        item if item.vpp > 1 else replace(item, schedule=rng.choice(ONE_CHUNK)) for item in drawn
    ]


def priced(scenario: Scenario, strategies: list[Strategy]) -> Iterator[Priced]:
    """Yield the strategies with their closed-form bounds."""
    pricer, columns = make_pricer(scenario), columns_of(strategies)
    prices, rows = RowPricer(pricer, columns), np.arange(len(columns))
    part = prices.time(rows).at(rows, prices.finish(rows))
    closed = np.maximum(time_bounds(part), time_bounds(prices.floor))
    limit = limit_kib(scenario.memory_limit_bytes)
    even = grouped_even_bounds(part, prices.memory(rows), limit, uneven=True)
    for strategy, *bounds in zip(strategies, closed.tolist(), even.tolist(), strict=True):
        given = coefficients(pricer.cost(strategy), scenario.memory_limit_bytes)
        yield Priced(given, *bounds)


def check_any(rng: random.Random, item: Priced, cuts: tuple[int, ...]) -> None:
    """Closed-form bounds hold whether a placement fits or not, and whatever it recomputes."""
    sizes = [stop - start for start, stop in pairwise(cuts)]
    again = sizes if item.given.recompute_all else [rng.randint(0, size) for size in sizes]
    time_ns = iteration_ns(item.given.work(Arrangement(cuts, tuple(again))))
    assert item.closed_form_ns <= time_ns


def check_placed(given: Coefficients, values: StageValues, cuts: tuple[int, ...]) -> None:
    """Bounds over placements hold for one that fits, and refining them never drops it."""
    work = values.work(cuts)
    if work is None:
        return
    time_ns = iteration_ns(work)
    windows = Budgets(given).narrow(float(time_ns + 1))
    assert windows is not None
    assert (windows.low <= cuts).all()
    assert (cuts <= windows.high).all()
    rows = rows_below(given, stage_tables(given, windows), time_ns + 1)
    assert rows is not None
    at = np.array(cuts) - rows.tables.windows.low
    assert rows.tables.legal[np.arange(rows.stages), at[:-1], at[1:]].all()


def check_even(item: Priced) -> None:
    """Bounds of even placements hold for each of them."""
    candidate = Candidate(row=0, given=item.given, lower_ns=item.even_ns)
    bound_even(candidate, uneven=True)
    for placement in candidate.even:
        time_ns = iteration_ns(item.given.work(placement.arrangement))
        assert max(item.even_ns, placement.bound_ns) <= time_ns


def nearby(rng: random.Random, cuts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield cuts with more and more layers moved: good placements, where bounds are tight."""
    for _ in range(CUTS if len(cuts) > 2 else 0):
        cuts = moved(cuts, *rng.sample(range(len(cuts) - 1), 2))
        if min(stop - start for start, stop in pairwise(cuts)) < 1:
            return
        yield cuts


def check_strategy(rng: random.Random, item: Priced) -> int:
    """Check random plans of a strategy and return how many."""
    given = item.given
    if len(given.layer_kinds) < given.shape.ranks * given.shape.chunks:
        return 0
    drawn = [random_cuts(rng, given) for _ in range(CUTS)]
    for cuts in drawn:
        check_any(rng, item, cuts)
    if given.shape.chunks > 1:
        check_even(item)
        return len(drawn)
    values, found = StageValues(given), placement_bound(given)
    if found is not None:
        drawn += [found.arrangement.cuts, *nearby(rng, found.arrangement.cuts)]
    for cuts in drawn:
        check_placed(given, values, cuts)
        work = values.work(cuts)
        assert work is None or (found is not None and found.bound_ns <= iteration_ns(work))
    return len(drawn)


def test_no_bound_exceeds_the_simulation_of_a_plan_of_a_real_scenario() -> None:
    rng, plans = random.Random(17), 0
    while plans < PLANS:
        scenario = random_scenario(rng)
        strategies = random_strategies(rng, scenario) if scenario else []
        if scenario and strategies:
            plans += sum(check_strategy(rng, item) for item in priced(scenario, strategies))
