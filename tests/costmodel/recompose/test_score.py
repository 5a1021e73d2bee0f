"""Recomposed plans against their measurement: the accuracy that the shipped tables reach."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from costmodel.errors import InputError
from costmodel.recompose.compose import PROFILES, compose, plan_prices
from costmodel.recompose.memory import stage_memory
from costmodel.recompose.plan_file import read_plan, read_plans
from costmodel.recompose.score import Scores, as_json, as_text, score_plans, summaries
from costmodel.units import GIB

PLANS = PROFILES / "plans"


@cache
def _scores() -> Scores:
    return score_plans(read_plans(PLANS))


@pytest.mark.parametrize(
    ("name", "median", "largest"),
    [
        ("composition alone", 0.01, 0.03),
        ("A100-SXM4-40GB forward", 0.01, 0.03),
        ("A100-SXM4-40GB backward", 0.01, 0.03),
        ("iteration one node", 0.03, 0.05),
        ("iteration", 0.06, 0.33),
        ("allocated", 0.03, 0.10),
        ("reserved", 0.04, 0.12),
    ],
)
def test_errors_stay_within_what_was_reached(name: str, median: float, largest: float) -> None:
    summary = summaries(_scores().plans)[name]
    assert summary.median_abs_error <= median
    assert summary.max_abs_error <= largest


def test_every_plan_is_scored_or_named_with_its_reason() -> None:
    scores = _scores()
    assert len(scores.plans) == 20
    assert dict(scores.unpredicted) == {"a100L-aceso-gpt22B_5stages": "out of memory"}


def test_the_plan_that_ran_out_of_memory_is_predicted_beyond_the_card() -> None:
    plan = read_plan(PLANS / "a100L-aceso-gpt22B_5stages.json")
    prices = plan_prices(plan)
    peaks = [stage_memory(plan, prices, stage).reserved_bytes for stage in range(len(plan.stages))]
    assert max(peaks) > 35 * GIB


@pytest.mark.parametrize(
    ("profile", "gpu"), [("mist-a10g", "A10G-24GB"), ("mist-v100", "V100-SXM2-32GB")]
)
def test_plans_of_other_gpu_types_are_priced_from_their_own_profile(profile: str, gpu: str) -> None:
    plan = replace(
        read_plan(PLANS / "l4-aceso-gpt2_6B_3stages.json"), profile=profile, gpu_type=gpu
    )
    assert compose(plan, plan_prices(plan)).iteration_s > 0


def test_more_recomputation_never_needs_more_kept_memory_nor_less_time() -> None:
    plan = read_plan(PLANS / "l4-aceso-gpt6_7B_8stages.json")
    prices = plan_prices(plan)
    all_of_it = tuple(tuple(replace(o, recomputed=True) for o in stage) for stage in plan.stages)
    none = tuple(tuple(replace(o, recomputed=False) for o in stage) for stage in plan.stages)
    full, free = replace(plan, stages=all_of_it), replace(plan, stages=none)
    assert (
        stage_memory(full, prices, 0).allocated_bytes
        < stage_memory(free, prices, 0).allocated_bytes
    )
    assert compose(full, prices).iteration_s > compose(free, prices).iteration_s


def test_text_and_json_name_every_plan_and_term() -> None:
    scores = _scores()
    text = as_text(scores, stages=True)
    assert "l4-aceso-gpt1_3B_2stages" in text
    assert "transfers and waiting" in text
    assert "not scored: a100L-aceso-gpt22B_5stages: out of memory" in text
    assert json.loads(json.dumps(as_json(scores)))["all"]["iteration"]["count"] == 20


def test_folders_without_plans_and_broken_plans_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no plan files"):
        read_plans(tmp_path)
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(InputError, match="no measured plan"):
        read_plans(tmp_path)
