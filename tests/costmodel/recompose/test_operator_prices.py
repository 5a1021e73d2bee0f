"""Operator rows: what they hold, what physics adds to them, and what throttling takes away."""

from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.errors import InputError
from costmodel.importers.operators import (
    OperatorKey,
    OperatorRow,
    matmul_flops,
    matmul_table,
    pure_matmuls,
    read_operators,
)
from costmodel.recompose.operator_prices import OperatorPrices
from costmodel.recompose.plan_file import read_plan
from costmodel.recompose.profiles import PROFILES, plan_prices, profile_prices
from costmodel.table import Source, Table

QKV = OperatorRow(
    profile="toy",
    key=OperatorKey(model="m", op="enc-attention-qkv", tp=1, micro_batch=1),
    seq=1024,
    hidden=1024,
    heads=16,
    forward_s=1e-4,
    backward_s=1e-4,
    weight_gradient_inside=False,
    input_bytes=1.0,
    output_bytes=1.0,
    weight_bytes=6.0 * 1024 * 1024,
)


def _prices(*rows: OperatorRow) -> OperatorPrices:
    return OperatorPrices(rows=rows, collectives=Table(), bandwidth_bytes_per_s=1e12)


def test_the_product_of_a_row_follows_its_split() -> None:
    assert QKV.matmul == (1024, 3072, 1024)
    assert replace(QKV, key=replace(QKV.key, tp=2)).matmul == (1024, 1536, 1024)
    dense = replace(QKV, key=replace(QKV.key, op="enc-attention-dense", tp=2))
    assert dense.matmul == (1024, 1024, 512)
    assert replace(QKV, key=replace(QKV.key, op="enc-MLP-gelu")).matmul is None


def test_rows_with_an_all_reduce_are_no_pure_products() -> None:
    split = replace(QKV, key=replace(QKV.key, tp=2))
    assert [sizes for sizes, _ in pure_matmuls([split])] == [(1024, 1536, 1024)]
    assert len(list(pure_matmuls([QKV]))) == 2
    inside = replace(QKV, weight_gradient_inside=True)
    assert len(list(pure_matmuls([inside]))) == 1


def test_rows_become_matmul_events() -> None:
    table = matmul_table([QKV], Source(device="toy"))
    assert {e.event.key for e in table.entries} == {
        "matmul/1024x3072x1024/fp16/forward",
        "matmul/1024x1024x3072/fp16/forward",
    }


def test_only_cards_whose_long_products_run_slower_are_throttled() -> None:
    steady = [
        replace(
            QKV,
            key=replace(QKV.key, micro_batch=m),
            forward_s=1e-4 * m,
            backward_s=1e-4 * m,
        )
        for m in (1, 2, 4, 8, 16, 32)
    ]
    assert not _prices(*steady).throttled
    hot = [
        replace(row, forward_s=2 * row.forward_s) if row.forward_s > 1e-3 else row for row in steady
    ]
    hot = [replace(row, backward_s=row.forward_s) for row in hot]
    assert _prices(*hot).throttled


@pytest.mark.parametrize(
    ("profile", "throttled"), [("mist-l4", True), ("mist-a100", False), ("mist-v100", False)]
)
def test_the_72_watt_card_is_throttled_and_others_are_not(profile: str, throttled: bool) -> None:
    assert profile_prices(profile).throttled is throttled


def test_the_weight_gradient_costs_a_product_and_an_accumulation() -> None:
    plan = read_plan(PROFILES / "plans" / "a100-aceso-gpt13B_10stages.json")
    prices = plan_prices(plan)
    qkv = next(o for o in plan.stages[0] if o.op == "enc-attention-qkv")
    seconds = prices.seconds(plan, qkv)
    row = prices.row(plan, qkv)
    assert row.matmul is not None
    rate = matmul_flops(row.matmul) / seconds.weight_gradient_s
    assert 200e12 < rate < 312e12
    assert seconds.accumulation_s == pytest.approx(3 * row.weight_bytes / (1555e9 * 0.77))


def test_an_outlier_takes_half_of_the_double_micro_batch() -> None:
    rows = {row.key: row for row in read_operators(PROFILES / "operators.csv", "mist-a10g")}
    key = OperatorKey(model="1_3B", op="enc-attention-qkv", tp=1, micro_batch=1)
    assert rows[key].forward_s == pytest.approx(rows[replace(key, micro_batch=2)].forward_s / 2)


def test_a_plan_of_an_unknown_gpu_is_refused_and_one_of_an_unknown_profile_finds_its_gpu() -> None:
    plan = read_plan(PROFILES / "plans" / "l4-aceso-gpt1_3B_1stages.json")
    other = replace(plan, profile="elsewhere", gpu_type="V100-SXM2-32GB")
    assert plan_prices(other) is profile_prices("mist-v100", PROFILES)
    with pytest.raises(InputError, match="gpu_type"):
        plan_prices(replace(other, gpu_type="B300"))


def test_missing_operators_and_files_are_refused(tmp_path: Path) -> None:
    plan = read_plan(PROFILES / "plans" / "l4-aceso-gpt1_3B_1stages.json")
    with pytest.raises(InputError, match="is not in profile"):
        _prices(QKV).row(plan, plan.stages[0][0])
    with pytest.raises(InputError, match="cannot be read"):
        read_operators(tmp_path / "none.csv")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="is missing: every table of operators"):
        read_operators(tmp_path / "bad.csv", "toy")
