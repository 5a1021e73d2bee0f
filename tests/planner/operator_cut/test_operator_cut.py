"""Search over operator cuts: the definition reproduces Aceso's own output, the search equals brute force."""

import itertools
import json
import math
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.errors import InputError
from costmodel.importers.operators import collective_table, read_operators
from costmodel.recompose.profiles import PROFILES
from costmodel.table import Table
from planner.operator_cut.definition import (
    LAYER,
    Operators,
    iteration_seconds,
    operators,
    transfer_seconds,
)
from planner.operator_cut.recomputation import Recomputation
from planner.operator_cut.search import Problem, best_plan

PLANS = sorted((PROFILES / "plans").glob("*.json"))


@cache
def _profile(name: str) -> tuple[dict[Any, Any], Table]:
    rows = {row.key: row for row in read_operators(PROFILES / "operators.csv", name)}
    return rows, collective_table(PROFILES / "collectives.csv", [name], name)


def _options(profile: str, model: str, layers: int, tp: int, micro_batch: int) -> Operators:
    return operators(*_profile(profile), model, layers, tp, micro_batch)


def _stages(data: dict[str, Any]) -> list[tuple[int, int, int, list[bool]]]:
    stages = []
    for stage in data["stages"]:
        flags = [r for first, last, *_, r in stage["ops"] for _ in range(first, last + 1)]
        stages.append((stage["ops"][0][0], stage["ops"][-1][1] + 1, stage["ops"][0][2], flags))
    return stages


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_the_definition_reproduces_the_planner_that_made_the_plan(path: Path) -> None:
    data = json.loads(path.read_text())
    profile, model, m = data["profile"], data["model"], data["num_micro_batches"]
    stages, gpus, times = _stages(data), 0, []
    for number, (first, end, tp, flags) in enumerate(stages):
        found = _options(profile, model["family"], model["layers"], tp, data["micro_batch"])
        memory = found.memory_mib(first, end, flags, len(stages) - number)
        said = data["aceso_predicted"]["per_stage"][number]
        assert memory == pytest.approx(said["memory_total_mb"], rel=2e-5)
        receives = gpus % data["gpus_per_node"] == 0 and gpus > 0
        gpus += data["stages"][number]["gpus"]
        sends = gpus % data["gpus_per_node"] == 0
        table = _profile(profile)[1]
        busy = found.seconds(first, end, flags) - found.receive[first] - found.send[end - 1]
        busy += transfer_seconds(float(found.input[first]), table, inter=receives)
        busy += transfer_seconds(float(found.output[end - 1]), table, inter=sends)
        times.append(busy)
    whole = iteration_seconds(times, m)
    assert whole == pytest.approx(data["aceso_predicted"]["iteration_s"], rel=5e-5)


@pytest.mark.parametrize("in_flight", [1, 2, 4])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_cheapest_recomputation_equals_brute_force(in_flight: int, share: float) -> None:
    found = _options("superscaler-eurosys", "1_3B", 1, 1, 1)
    first, end = 2, 2 + len(LAYER) - 2  # most of one layer: 2^11 choices
    excess = share * float(found.kept[first:end].sum()) * in_flight
    plain = found.plain_memory_mib(first, end, in_flight)
    choice = Recomputation(found).cheapest(first, end, excess, in_flight)
    costs = [
        float(found.forward[first:end][np.array(flags)].sum())
        for flags in itertools.product((False, True), repeat=end - first)
        if found.memory_mib(first, end, flags, in_flight) <= plain - excess + 1e-6
    ]
    assert (choice is None) == (not costs)
    if choice is not None:
        assert choice.cost_s == pytest.approx(min(costs))


def test_written_recomputation_costs_and_frees_what_was_promised() -> None:
    found = _options("superscaler-eurosys", "1_3B", 6, 1, 1)
    recomputation = Recomputation(found)
    for first, end, excess in ((0, 40, 2000.0), (5, 60, 6000.0), (20, found.count, 4000.0)):
        choice = recomputation.cheapest(first, end, excess, 3)
        assert choice is not None
        flags = recomputation.flags(first, end, choice)
        plain = found.plain_memory_mib(first, end, 3)
        assert found.memory_mib(first, end, flags, 3) <= plain - excess + 1e-6
        again = float(found.forward[first:end][np.array(flags)].sum())
        assert again == pytest.approx(choice.cost_s)


@pytest.mark.parametrize("strict", [False, True])
def test_bounds_never_exceed_the_cheapest_recomputation_and_are_infinite_where_there_is_none(
    strict: bool,
) -> None:
    found = _options("superscaler-eurosys", "2_6B", 5, 2, 4)
    recomputation = Recomputation(found, strict=strict)
    draw = random.Random(7)
    for _ in range(60):
        first = draw.randrange(found.count - 1)
        end, in_flight = draw.randrange(first + 1, found.count + 1), draw.choice((1, 2, 4))
        excess = draw.uniform(0.01, 1.0) * float(found.kept[first:end].sum()) * in_flight + 1e-3
        stage = np.array([first]), np.array([end]), np.array([excess])
        bound = recomputation.bounds(*stage, in_flight).min()
        choice = recomputation.cheapest(first, end, excess, in_flight)
        assert bound <= (choice.cost_s if choice else math.inf) + 1e-12
        assert (choice is None) == math.isinf(bound)


def test_the_reserve_is_that_of_the_operator_that_reserves_most_but_the_last() -> None:
    found = _options("superscaler-eurosys", "1_3B", 2, 1, 1)
    for first, end in itertools.combinations(range(found.count + 1), 2):
        weights = float(found.weights[first:end].sum())
        passes = (found.reserved_forward, found.reserved_backward)
        largest = sum(float(of[first : end - 1].max(initial=0.0)) for of in passes)
        assert float(found.reserve_mib(first, end)) == pytest.approx(max(largest, weights))


def test_the_strict_count_never_needs_less_and_always_fits() -> None:
    found = _options("superscaler-eurosys", "1_3B", 4, 1, 1)
    loose, strict = Recomputation(found), Recomputation(found, strict=True)
    for excess in (1000.0, 2500.0, 3500.0):
        one, other = (r.cheapest(1, 53, excess, 2) for r in (loose, strict))
        assert one is not None
        assert other is not None
        assert one.cost_s <= other.cost_s + 1e-12
        flags = strict.flags(1, 53, other)
        assert found.memory_mib(1, 53, flags, 2) <= found.plain_memory_mib(1, 53, 2) - excess + 1e-6


def test_the_search_equals_all_cuts_of_a_small_model() -> None:
    rows, transfers = _profile("superscaler-eurosys")
    limit, batch = 4600.0, 8
    problem = Problem(
        model="1_3B", layers=2, gpus=2, memory_mib=limit, global_batch=batch, micro_batches=(1,)
    )
    plan = best_plan(problem, rows, transfers)
    assert plan is not None
    assert all(stage.memory_mib <= limit + 1e-6 for stage in plan.stages)
    assert plan.lower_bound_s == plan.iteration_s
    one, two = (_options("superscaler-eurosys", "1_3B", 2, tp, 1) for tp in (1, 2))
    candidates = [iteration_seconds([s], batch) for s in [_least(two, 0, two.count, 1, limit)]]
    for cut in range(1, one.count):
        pair = [_least(one, 0, cut, 2, limit), _least(one, cut, one.count, 1, limit)]
        candidates.append(iteration_seconds(pair, batch))
    assert plan.iteration_s == pytest.approx(min(candidates))


def _least(found: Operators, first: int, end: int, in_flight: int, limit: float) -> float:
    return _least_of(found, Recomputation(found), first, end, in_flight, limit)


def _least_of(
    found: Operators,
    recomputation: Recomputation,
    first: int,
    end: int,
    in_flight: int,
    limit: float,
) -> float:
    excess = float(found.plain_memory_mib(first, end, in_flight)) - limit
    choice = recomputation.cheapest(first, end, excess, in_flight)
    return float(found.plain_seconds(first, end)) + choice.cost_s if choice else math.inf


@pytest.mark.parametrize(
    ("gpus", "limit", "batch", "micro_batch"),
    [
        (3, 2900.0, 8, 1),
        (4, 2900.0, 16, 2),
        (4, 2500.0, 4, 4),
        (5, 2400.0, 64, 1),
        (3, 900.0, 8, 2),
    ],
)
def test_the_search_equals_the_enumeration_of_all_chains_of_stages(
    gpus: int, limit: float, batch: int, micro_batch: int
) -> None:
    plan = best_plan(
        Problem(
            model="1_3B",
            layers=1,
            gpus=gpus,
            memory_mib=limit,
            global_batch=batch,
            micro_batches=(micro_batch,),
        ),
        *_profile("superscaler-eurosys"),
    )
    chains = _chains(gpus, micro_batch, limit)
    least = min((iteration_seconds(chain, batch // micro_batch) for chain in chains), default=None)
    assert (plan.iteration_s if plan else None) == pytest.approx(least)


@cache
def _recomputation(tp: int, local: int) -> tuple[Operators, Recomputation]:
    found = _options("superscaler-eurosys", "1_3B", 1, tp, local)
    return found, Recomputation(found)


def _chains(gpus: int, micro_batch: int, limit: float) -> list[tuple[float, ...]]:
    """Seconds of the stages of every plan, except plans that another one with the same cuts and GPUs beats."""

    @cache
    def stage(first: int, end: int, in_flight: int, of: int) -> float:
        ways = [
            _recomputation(tp, micro_batch * tp // of)
            for tp in (1, 2, 4, 8)
            if of % tp == 0 and micro_batch * tp % of == 0
        ]
        found = (_least_of(*way, first, end, in_flight, limit) for way in ways)
        return min(found, default=math.inf)

    @cache
    def chains(first: int, left: int, stages: int) -> tuple[tuple[float, ...], ...]:
        if first == count and not left and not stages:
            return ((),)
        found = {
            (seconds, *rest)
            for end in range(first + 1, count + 1)
            for of in (1, 2, 4, 8)
            if of <= left and stages and (seconds := stage(first, end, stages, of)) < math.inf
            for rest in chains(end, left - of, stages - 1)
        }
        worst = {(max(c), sum(c)): c for c in found}
        kept, total = [], math.inf
        for (_, whole), chain in sorted(worst.items()):
            if whole < total:
                kept.append(chain)
                total = whole
        return tuple(kept)

    count = _options("superscaler-eurosys", "1_3B", 1, 1, 1).count
    return [chain for stages in range(1, gpus + 1) for chain in chains(0, gpus, stages)]


@pytest.mark.parametrize(
    ("model", "layers", "gpus", "memory_mib", "batch", "iteration_s"),
    [("1_3B", 24, 4, 12_000, 512, 55.66680), ("2_6B", 32, 8, 28_000, 1024, 86.22885)],
)
def test_the_optimum_of_the_shipped_cases_stays(
    model: str, layers: int, gpus: int, memory_mib: float, batch: int, iteration_s: float
) -> None:
    problem = Problem(
        model=model, layers=layers, gpus=gpus, memory_mib=memory_mib, global_batch=batch
    )
    plan = best_plan(problem, *_profile("superscaler-eurosys"))
    assert plan is not None
    assert plan.iteration_s == plan.lower_bound_s == pytest.approx(iteration_s, rel=1e-6)
    assert all(stage.memory_mib <= memory_mib for stage in plan.stages)


def test_too_little_memory_has_no_plan() -> None:
    problem = Problem(
        model="1_3B", layers=2, gpus=2, memory_mib=100.0, global_batch=4, micro_batches=(1,)
    )
    assert best_plan(problem, *_profile("superscaler-eurosys")) is None


def test_missing_rows_and_transfers_are_refused() -> None:
    rows, transfers = _profile("superscaler-eurosys")
    with pytest.raises(InputError, match="operator table"):
        operators(rows, transfers, "90B", 2, 1, 1)
    with pytest.raises(InputError, match="collective table"):
        transfer_seconds(16.0, Table())
