"""One model of each family goes through planning and every export target."""

from functools import cache
from pathlib import Path

import pytest

from costmodel import catalog
from costmodel.errors import InputError
from costmodel.graph import build_graph
from costmodel.spec import TrainingSpec
from planner.export import TARGET_NAMES, export
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
    asked = scenario(name)

    def exported() -> tuple[Path, ...]:
        return export(
            plan(name),
            model=asked.graph.model,
            cluster=asked.cluster,
            training=asked.training,
            target_name=target,
            directory=tmp_path / "out",
        )

    if name in UNBUILDABLE.get(target, ()):
        with pytest.raises(InputError, match=r"model.*cannot express this plan"):
            exported()
    else:
        assert any(path.name == "run.sh" for path in exported())
