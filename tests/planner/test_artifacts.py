"""Tests of what a plan leaves behind, from scenario to files."""

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from costmodel import catalog
from costmodel.errors import InputError
from costmodel.graph import build_graph
from costmodel.spec import TrainingSpec
from planner.artifacts import export_plan, plot_plan, timeline_of, trace_plan
from planner.export import TARGET_NAMES
from planner.plan import Plan
from planner.scenario import Scenario
from planner.simulation import simulate_strategy

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
def plan(name: str) -> Plan:
    found = simulate_strategy(scenario(name), "dp=8,micro_batch=1", None).plan
    assert found is not None
    return found


@pytest.mark.parametrize("target", TARGET_NAMES)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_exported_or_refused_by_name(
    name: str, target: str, tmp_path: Path
) -> None:
    destination = f"{target}:{tmp_path / 'out'}"
    if name in UNBUILDABLE.get(target, ()):
        with pytest.raises(InputError, match=r"model.*cannot express this plan"):
            export_plan(plan(name), scenario(name), destination)
    else:
        paths = export_plan(plan(name), scenario(name), destination)
        assert any(path.name == "run.sh" for path in paths)


@pytest.mark.parametrize("text", ["megatron", "megatron:", "", ":x"])
def test_a_destination_that_names_no_target_or_folder_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="export: must"):
        export_plan(plan("gpt2-medium"), scenario("gpt2-medium"), text)


def test_trace_and_picture_follow_from_plan_and_scenario(tmp_path: Path) -> None:
    asked = scenario("llama-3.1-8b")
    found = simulate_strategy(asked, "dp=2,pp=4,micro_batch=1", None).plan
    assert found is not None
    data = json.loads(
        gzip.decompress(trace_plan(found, asked, tmp_path / "t.json.gz").read_bytes())
    )
    end_us = max(event["ts"] + event["dur"] for event in data["traceEvents"] if event["ph"] == "X")
    assert end_us == pytest.approx(found.iteration_s * 1e6, rel=1e-9)
    assert timeline_of(found, asked).iteration_ns == round(found.iteration_s * 1e9)
    assert "dp2" in plot_plan(found, asked, tmp_path / "t.svg").read_text()


def test_a_renamed_scenario_exports_the_same(tmp_path: Path) -> None:
    asked = scenario("gpt2-medium")
    first = export_plan(plan("gpt2-medium"), asked, f"deepspeed:{tmp_path / 'a'}")
    second = export_plan(
        plan("gpt2-medium"), replace(asked, name="x"), f"deepspeed:{tmp_path / 'b'}"
    )
    assert [a.read_text() for a in first] == [b.read_text() for b in second]
