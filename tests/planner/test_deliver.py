"""Tests of what is written beside an answer, from scenario to files."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from costmodel import catalog
from costmodel.errors import InputError
from costmodel.graph import build_graph
from costmodel.spec import TrainingSpec
from planner.deliver import draw, plan_files
from planner.export import TARGET_NAMES, target
from planner.nearest import launchable
from planner.plans import Plan
from planner.scenario import Scenario
from planner.simulation import simulate_strategy
from planner.wanted import Wanted, parse_export

# One model of each family that the reader knows.
FAMILIES = (
    "gpt2-medium",
    "llama-3.1-8b",
    "mistral-7b",
    "mixtral-8x7b",
    "qwen2.5-7b",
    "qwen3-8b",
    "qwen3-30b-a3b",
    "deepseek-v3",
    "gemma-7b",
    "gemma-2-9b",
    "phi-4",
    "falcon-40b",
    "gpt-neox-20b",
    "bloom-176b",
    "gpt-oss-20b",
    "glm-4.5-air",
    "bert-large",
    "t5-large",
    "vit-large-16",
)
# What the program behind each target cannot build; every other pair is written.
UNBUILDABLE = {
    "megatron": {"gemma-2-9b", "bloom-176b", "bert-large", "t5-large", "vit-large-16"},
    "torchtitan": {"bert-large", "t5-large", "vit-large-16"},
    "nanotron": set(FAMILIES) - {"llama-3.1-8b", "phi-4"},
}


@cache
def scenario(name: str) -> Scenario:
    model = catalog.model(name)
    sequence = min(1024, model.positions or 1024)
    return Scenario(
        name=name,
        graph=build_graph(model),
        cluster=catalog.cluster("dgx-h100", 8),
        training=TrainingSpec(global_batch=16, sequence=sequence),
        memory_limit_bytes=10**13,
        gpu_counts=(8,),
    )


@cache
def plan(name: str, strategy: str = "dp=8,micro_batch=1") -> Plan:
    found = simulate_strategy(scenario(name), strategy, None).plan
    assert found is not None
    return found


def launch_files(name: str, asked: Scenario, found: Plan) -> Mapping[str, str]:
    return target(name).files(launchable(target(name), asked, found, exact=True))


@pytest.mark.parametrize("launcher", TARGET_NAMES)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_exported_or_refused_by_name(name: str, launcher: str) -> None:
    if name in UNBUILDABLE.get(launcher, ()):
        with pytest.raises(InputError, match=r"model.*cannot express this plan"):
            launch_files(launcher, scenario(name), plan(name))
    else:
        assert "run.sh" in launch_files(launcher, scenario(name), plan(name))


@pytest.mark.parametrize("text", ["megatron", "megatron:", "", ":x"])
def test_a_destination_that_names_no_target_or_folder_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="export: must"):
        parse_export(text)


def test_a_renamed_scenario_exports_the_same() -> None:
    asked, found = scenario("gpt2-medium"), plan("gpt2-medium")
    assert launch_files("deepspeed", asked, found) == launch_files(
        "deepspeed", replace(asked, name="x"), found
    )


def test_trace_and_picture_follow_from_plan_and_scenario(tmp_path: Path) -> None:
    asked, found = scenario("llama-3.1-8b"), plan("llama-3.1-8b", "dp=2,pp=4,micro_batch=1")
    drawn = draw(asked, found)
    assert drawn.timeline.iteration_ns == round(found.iteration_s * 1e9)
    wanted = Wanted(trace=tmp_path / "t.json.gz", plot=tmp_path / "t.svg")
    files = plan_files(wanted, asked, drawn).files
    trace = files[tmp_path / "t.json.gz"]
    assert isinstance(trace, bytes)
    events = json.loads(gzip.decompress(trace))["traceEvents"]
    end_us = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    assert end_us == pytest.approx(found.iteration_s * 1e6, rel=1e-9)
    assert "dp2" in str(files[tmp_path / "t.svg"])


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Wanted(report=Path("a"), trace=Path("a")), "twice"),
        (Wanted(report=Path()), "folder"),
        (Wanted(plot=Path("a.pdf")), "must end in"),
        (Wanted(exports=(("megatron", Path("x")), ("deepspeed", Path("x")))), "twice"),
        (Wanted(exports=(("megatorn", Path("x")),)), "known target"),
    ],
)
def test_requests_that_cannot_be_met_are_refused_before_any_work(
    wanted: Wanted, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        wanted.check()
