"""Comparing systems: what is asked, what is shown, what is recommended."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from costmodel.errors import InputError
from planner.cli import cli
from planner.compare import FREE, compare
from planner.compare_answers import (
    comparison_to_json,
    comparison_to_svg,
    comparison_to_text,
    recommendation,
)
from planner.compare_request import read_counts, read_systems
from planner.segments import min_max_segments, segment_costs
from planner.systems import MAIN_SYSTEMS
from tests.builders import make_scenario

SCENARIO = make_scenario(layers=8, gpus=16, batch=64)
COUNTS = (1, 8, 16)
STRONG = compare(SCENARIO, ("ddp", "gpipe", "pipedream", FREE), COUNTS, "strong")


def test_all_means_the_main_systems_and_the_free_choice() -> None:
    assert read_systems("all") == (*MAIN_SYSTEMS, FREE)
    assert read_systems("zero-3, all")[0] == "zero-3"


@pytest.mark.parametrize("text", ["zeroo", "", "ddp,,zero"])
def test_an_unknown_system_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--systems"):
        read_systems(text)


def test_counts_are_powers_of_two_up_to_the_budget_unless_given() -> None:
    assert read_counts(None, 12) == (1, 2, 4, 8, 12)
    assert read_counts("8, 1", 16) == (1, 8)


@pytest.mark.parametrize("text", ["0", "17", "two", "8,-1"])
def test_a_count_outside_the_budget_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--gpus"):
        read_counts(text, 16)


def test_strong_scaling_keeps_the_global_batch() -> None:
    assert {o.global_batch for o in STRONG.outcomes if o.plan} == {64}


def test_weak_scaling_keeps_the_batch_per_gpu() -> None:
    outcomes = compare(SCENARIO, ("ddp",), COUNTS, "weak").outcomes
    assert [o.global_batch / o.gpus for o in outcomes] == [4, 4, 4]
    with pytest.raises(InputError, match="multiple of the 16 GPUs"):
        compare(make_scenario(gpus=16, batch=24), ("ddp",), COUNTS, "weak")


def test_what_cannot_run_has_a_reason_and_no_plan() -> None:
    outcome = STRONG.at("gpipe", 16)
    assert outcome.plan is None
    assert "one node of 8" in outcome.reason
    tight = make_scenario(layers=8, gpus=8, memory="1GiB")
    assert "memory" in compare(tight, ("ddp",), (8,), "strong").outcomes[0].reason


def test_a_scenario_bound_a_system_cannot_meet_is_a_reason_too() -> None:
    scenario = make_scenario(layers=8, gpus=8, search={"tp": 2})
    assert "search.tp" in compare(scenario, ("ddp",), (8,), "strong").outcomes[0].reason


def test_efficiency_is_throughput_per_gpu_over_that_of_the_first_plan() -> None:
    one, eight, _ = STRONG.of("ddp")
    assert STRONG.efficiency(one) == 1.0
    expected = eight.samples_per_s / one.samples_per_s / 8
    assert STRONG.efficiency(eight) == pytest.approx(expected)


def test_the_free_choice_is_at_least_as_fast_as_systems_of_its_framework() -> None:
    scenario = make_scenario(layers=8, gpus=16, batch=64, framework="megatron-lm")
    comparison = compare(scenario, ("megatron", "distsim", FREE), (8, 16), "strong")
    for gpus in (8, 16):
        best = comparison.at(FREE, gpus).samples_per_s
        for name in ("megatron", "distsim"):
            assert best >= comparison.at(name, gpus).samples_per_s * (1 - 1e-3)


def test_the_text_has_every_plan_every_reason_and_a_recommendation_with_numbers() -> None:
    text = comparison_to_text(STRONG, SCENARIO)
    lines = text.splitlines()
    assert sum(line.startswith("ddp ") for line in lines) == 3
    assert "No plan:" in text
    first = next(recommendation(STRONG, SCENARIO))
    assert first.startswith("on 16 GPUs take")
    assert "samples/s" in first


def test_pipedream_is_not_recommended_even_where_it_is_fastest() -> None:
    lonely = compare(SCENARIO, ("pipedream",), (16,), "strong")
    sentences = list(recommendation(lonely, SCENARIO))
    assert sentences[0].startswith("no system has a plan")
    assert not any("take pipedream" in sentence for sentence in recommendation(STRONG, SCENARIO))
    assert any("not recommended" in sentence for sentence in recommendation(STRONG, SCENARIO))


def test_growing_batches_are_named_as_no_free_win() -> None:
    grown = compare(SCENARIO, ("ddp",), COUNTS, "weak")
    assert any("not convergence" in sentence for sentence in recommendation(grown, SCENARIO))


def test_json_holds_the_same_numbers() -> None:
    data = json.loads(json.dumps(comparison_to_json(STRONG, SCENARIO), allow_nan=False))
    outcome = data["systems"]["ddp"]["outcomes"][1]
    assert outcome["samples_per_s"] == STRONG.at("ddp", 8).samples_per_s
    assert data["systems"]["gpipe"]["outcomes"][2]["plan"] is None
    assert data["systems"]["pipedream"]["warning"]


def test_the_picture_is_well_formed_with_a_line_for_each_system() -> None:
    root = ET.fromstring(comparison_to_svg(STRONG, SCENARIO))  # noqa: S314 (our own text)
    lines = root.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 3 * 4
    assert "nan" not in comparison_to_svg(STRONG, SCENARIO)


def test_the_command_writes_table_json_and_picture(tmp_path: Path) -> None:
    example = "scenarios/examples/survey-gpt2-medium.yaml"
    picture, answer = tmp_path / "c.svg", tmp_path / "c.json"
    arguments = ["compare", example, "--systems", "ddp,zero-1", "--gpus", "1,8"]
    arguments += ["--scaling", "survey", "--plot", str(picture), "--json", str(answer)]
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert result.return_value == 0, result.output
    assert "Recommendation" in result.output
    assert json.loads(answer.read_text())["scaling"] == "survey"
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("costs", "parts", "largest"),
    [((1, 1, 1, 1), 2, 2), ((5, 1, 1, 1), 2, 5), ((1, 9, 1), 3, 9), ((2, 3, 4), 1, 9)],
)
def test_the_largest_segment_is_as_small_as_possible(
    costs: tuple[float, ...], parts: int, largest: float
) -> None:
    cuts = min_max_segments(costs, parts)
    assert len(cuts) == parts + 1
    assert max(segment_costs(costs, cuts)) == largest


def test_more_segments_than_items_are_refused() -> None:
    with pytest.raises(ValueError, match="3 parts"):
        min_max_segments((1.0, 2.0), 3)


def test_a_price_names_the_cheapest_number_of_gpus() -> None:
    priced = replace(SCENARIO, cluster=replace(SCENARIO.cluster, price_per_gpu_hour=2.0))
    sentence = next(s for s in recommendation(STRONG, priced) if s.startswith("cheapest"))
    outcomes = [o for o in STRONG.outcomes if o.plan and o.system != "pipedream"]
    least = min(2.0 * o.gpus / 3600 / o.samples_per_s * 1e6 for o in outcomes)
    assert f"{least:,.2f} per million samples" in sentence
    assert not any(s.startswith("cheapest") for s in recommendation(STRONG, SCENARIO))


def test_gpus_of_several_kinds_are_not_compared() -> None:
    (group,) = SCENARIO.cluster.groups
    mixed = replace(SCENARIO, cluster=replace(SCENARIO.cluster, groups=(group, group)))
    with pytest.raises(InputError, match="one kind"):
        compare(mixed, ("ddp",), COUNTS, "strong")
