"""Columns of prices are the prices of their rows; floors never exceed blocks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from costmodel.pricing import Pricer
from planner.coefficients import Linear, coefficients, limit_kib
from planner.columns import columns_of
from planner.priced_rows import LinearColumns, RowPricer
from planner.scenario import Scenario
from planner.scenario_file import scenario_from_mapping
from planner.scenario_pricer import make_pricer
from planner.space import enumerate_space


def scenario(
    model: str, gpus: int, training: Mapping[str, Any] | None = None, **search: Any
) -> Scenario:
    return scenario_from_mapping(
        {
            "model": model,
            "cluster": {"name": "dgx-h100", "gpus": gpus},
            "training": {"global_batch": 256, "sequence": 4096, **(training or {})},
            "search": search,
        }
    )


def rows_of(
    model: str,
    gpus: int,
    training: Mapping[str, Any] | None = None,
    *,
    count: int = 150,
    **search: Any,
) -> tuple[Pricer, RowPricer, list[int]]:
    asked = scenario(model, gpus, training, **search)
    columns = enumerate_space(asked).columns
    step = max(1, len(columns) // count)
    pricer = make_pricer(asked)
    chosen = columns.take(np.arange(0, len(columns), step))
    return pricer, RowPricer(pricer, chosen), list(range(len(chosen)))


def at(columns: LinearColumns, row: int) -> Linear:
    layer, recomputed = columns.layer[row].tolist(), columns.recomputed[row].tolist()
    fixed, first, last = (int(column[row]) for column in columns[:3])
    return Linear(fixed, first, last, tuple(map(int, layer)), tuple(map(int, recomputed)))


@pytest.mark.parametrize(("model", "gpus"), [("llama-3.1-70b", 64), ("mixtral-8x7b", 64)])
def test_columns_hold_the_coefficients_of_every_row(model: str, gpus: int) -> None:
    pricer, prices, rows = rows_of(model, gpus)
    time, finish = prices.time(np.array(rows)), prices.finish(np.array(rows))
    for row in rows:
        given = coefficients(pricer.cost(prices.columns.strategy(row)), 80e9)
        assert at(time.forward, row) == given.forward
        assert at(time.backward, row) == given.backward
        assert int(time.hop[row]) == min(given.transfer_ns[:-1], default=0)
        assert {at(way, row) for way in finish} == set(given.finish)


ORDERS = ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]


@pytest.mark.parametrize(
    ("model", "training", "search"),
    [
        ("llama-3.1-8b", {"framework": "torchtitan"}, {}),
        ("gpt2-xl", {"framework": "deepspeed", "sequence": 1024, "precision": "fp16"}, {}),
        ("deepseek-v3", {}, {}),
        ("mixtral-8x7b", {"framework": "nemo", "precision": "fp8"}, {"placement_order": ORDERS}),
        ("t5-3b", {"sequence": 512, "decoder_sequence": 128, "attention": "standard"}, {}),
        ("llama-3.1-8b", {}, {"offload_optimizer": [0, 0.5, 1], "zero": [0, 1, 2, 3]}),
    ],
)
def test_a_strategy_priced_alone_equals_itself_among_others(
    model: str, training: dict[str, Any], search: dict[str, Any]
) -> None:
    pricer, prices, rows = rows_of(model, 64, training, count=60, **search)
    limit = limit_kib(80e9)
    prices.memory(np.array(rows)), prices.time(np.array(rows)), prices.finish(np.array(rows))
    assert rows
    for row in rows:
        alone = coefficients(pricer.cost(prices.columns.strategy(row)), 80e9)
        among = prices.coefficients(row, limit)
        # Among others there may be more ways for the end, which never bind.
        assert set(alone.finish) <= set(among.finish)
        assert replace(among, finish=alone.finish) == alone


@pytest.mark.parametrize(("model", "gpus"), [("llama-3.1-70b", 64), ("mixtral-8x7b", 64)])
def test_floors_never_exceed_blocks(model: str, gpus: int) -> None:
    _, prices, rows = rows_of(model, gpus)
    floor, time = prices.floor, prices.time(np.array(rows))
    assert (floor.weight.layer == time.weight.layer).all()
    assert (floor.weight.last == time.weight.last).all()
    for low, high in ((floor.forward, time.forward), (floor.backward, time.backward)):
        assert (low.fixed <= high.fixed).all()
        assert (low.layer <= high.layer).all()
        # An end may take back what every stage pays: the last stage sends nothing on.
        assert (low.fixed + low.first <= high.fixed + high.first).all()
        assert (low.fixed + low.last <= high.fixed + high.last).all()
        assert (low.layer + low.recomputed <= high.layer + high.recomputed).all()


def test_groups_separate_exactly_the_distinct_combinations() -> None:
    _, prices, rows = rows_of("llama-3.1-70b", 64)
    columns = prices.columns
    representatives, group = columns.groups(("tp", "pp", "micro_batch"))
    keys = [(int(columns.tp[r]), int(columns.pp[r]), int(columns.micro_batch[r])) for r in rows]
    assert len(representatives) == len(set(keys))
    assert all(keys[representatives[group[row]]] == keys[row] for row in rows)


def test_strategies_survive_the_way_through_columns() -> None:
    _, prices, rows = rows_of("llama-3.1-70b", 64)
    strategies = [prices.columns.strategy(row) for row in rows]
    again = columns_of(strategies)
    assert [again.strategy(row) for row in rows] == strategies
