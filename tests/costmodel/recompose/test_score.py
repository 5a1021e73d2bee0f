"""Recomposed plans against their measurement: the accuracy that the shipped tables reach."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from costmodel.errors import InputError
from costmodel.recompose.compose import compose
from costmodel.recompose.memory import stage_memory
from costmodel.recompose.plan_file import read_plan
from costmodel.recompose.profiles import PROFILES, plan_prices
from costmodel.recompose.score import Scores, as_json, as_text, score_folder, summaries
from costmodel.units import GIB

PLANS = PROFILES / "plans"


@cache
def _scores() -> Scores:
    return score_folder(PLANS)


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
        score_folder(tmp_path)
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(InputError, match="no measured plan"):
        score_folder(tmp_path)


L4_PLAN = "l4-aceso-gpt1_3B_2stages"


def _elsewhere(folder: Path, gpu: str, **changes: object) -> Path:
    """Write one L4 plan and the L4 tables as those of a profile and GPU type that nobody ships."""
    (folder / "plans").mkdir()
    plan = json.loads((PLANS / f"{L4_PLAN}.json").read_text()) | {"gpu_type": gpu, "profile": "new"}
    plan |= changes
    (folder / "plans" / "a.json").write_text(json.dumps(plan))
    for name in ("operators.csv", "collectives.csv"):
        with (PROFILES / name).open() as file:
            head, *lines = file.readlines()
        own = [line for line in lines if line.startswith("L4-24GB,mist-l4,")]
        moved = [line.replace("L4-24GB,mist-l4,", f"{gpu},new,", 1) for line in own]
        (folder / name).write_text("".join([head, *moved]))
    return folder


def test_a_folder_of_plans_with_tables_of_another_gpu_needs_no_shipped_profile(
    tmp_path: Path,
) -> None:
    folder = _elsewhere(tmp_path, "L4-PCIe-24GB")
    (plan,) = score_folder(folder, folder).plans
    same = next(score for score in _scores().plans if score.name == L4_PLAN)
    assert plan.iteration.predicted == pytest.approx(same.iteration.predicted)
    assert plan.gpu_type == "L4-PCIe-24GB"


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ("", "spells no device of the catalog: name it in profiles.yaml"),
        ("new: {device: l4}", "new: must give device and collectives"),
        ("new: {device: l5, collectives: [new]}", "l5"),
    ],
)
def test_a_gpu_type_that_spells_no_device_is_named_with_the_way_out(
    tmp_path: Path, stated: str, reason: str
) -> None:
    folder = _elsewhere(tmp_path, "L5-96GB")
    if stated:
        (folder / "profiles.yaml").write_text(stated)
    (told,) = score_folder(folder, folder).unpredicted.values()
    assert reason in told


def test_profiles_yaml_names_the_device_that_the_gpu_type_does_not_spell(tmp_path: Path) -> None:
    folder = _elsewhere(tmp_path, "L5-96GB")
    (folder / "profiles.yaml").write_text("new: {device: l4, collectives: [new]}")
    assert len(score_folder(folder, folder).plans) == 1


def test_a_plan_of_a_gpu_without_tables_is_named_with_the_profiles_there_are(
    tmp_path: Path,
) -> None:
    folder = _elsewhere(tmp_path, "B300-288GB")
    (reason,) = score_folder(folder).unpredicted.values()
    assert "has no profile" in reason
    assert "mist-l4 (L4-24GB)" in reason


def test_what_a_stage_did_not_log_is_left_out_of_its_terms(tmp_path: Path) -> None:
    plan = json.loads((PLANS / f"{L4_PLAN}.json").read_text())
    for stage in plan["measured"]["per_stage"]:
        for key in ("max_allocated_mb", "max_reserved_mb", "optimizer_s"):
            del stage[key]
    folder = _elsewhere(tmp_path, "L4-24GB", measured=plan["measured"])
    (score,) = score_folder(folder, folder).plans
    assert {term.term for stage in score.stages for term in stage} >= {"forward", "backward"}
    assert not {"allocated", "optimizer"} & {term.term for stage in score.stages for term in stage}
    assert score.composed is None


def test_broken_plans_are_told_beside_what_is_scored(tmp_path: Path) -> None:
    folder = _elsewhere(tmp_path, "L4-24GB")
    (folder / "plans" / "b.json").write_text("[]")
    scores = score_folder(folder, folder)
    assert len(scores.plans) == 1
    assert "is no measured plan" in scores.unpredicted["b.json"]


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    folder = _elsewhere(tmp_path, "L4-24GB")
    operators = (folder / "operators.csv").read_text()
    (folder / "operators.csv").write_text(operators.replace("bwd_has_weight_grad", "other", 1))
    assert "bwd_has_weight_grad: is missing" in score_folder(folder, folder).unpredicted[L4_PLAN]


def test_tables_without_memory_columns_price_all_the_same(tmp_path: Path) -> None:
    folder = _elsewhere(tmp_path, "L4-24GB")
    lines = [line.split(",") for line in (folder / "operators.csv").read_text().splitlines()]
    kept = [
        i
        for i, name in enumerate(lines[0])
        if name not in ("activations_mb", "reserved_fwd_mb", "reserved_bwd_mb")
    ]
    (folder / "operators.csv").write_text(
        "\n".join(",".join(line[i] for i in kept) for line in lines)
    )
    assert len(score_folder(folder, folder).plans) == 1
