"""Tests of Megatron command lines as scenarios."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from costmodel.errors import InputError
from costmodel.strategy import Strategy
from planner.commands.importing import command
from planner.export import export
from planner.megatron_scenario import scenario_text, strategy_text
from planner.scenario_file import load_scenario
from planner.simulation import simulate_strategy
from tests.planner.export.export_cases import launch, llama

STRATEGY = Strategy(
    dp=4, tp=4, pp=4, micro_batch=2, microbatches=16, zero=1, sequence_parallel=True
)


def exported(
    folder: Path, strategy: Strategy, counts: tuple[int, ...], recomputed: int = 0
) -> Path:
    case = launch(llama(), strategy, counts, recomputed)
    paths = export(
        case.plan,
        model=case.model,
        cluster=case.cluster,
        training=case.training,
        target_name="megatron",
        directory=folder,
    )
    return paths[0]


def test_an_exported_plan_comes_back_as_a_scenario_and_simulates(tmp_path: Path) -> None:
    file = exported(tmp_path / "launch", STRATEGY, (7, 9, 8, 8))
    output = tmp_path / "back.yaml"
    output.write_text(scenario_text(file, output, cluster="dgx-h100"))
    scenario = load_scenario(output)
    assert scenario.graph.model.kinds[0].mlp == llama().kinds[0].mlp
    assert scenario.cluster.gpus == 64
    assert scenario.training.global_batch == 128
    simulated = simulate_strategy(scenario, strategy_text(STRATEGY), "7/9/8/8")
    assert simulated.plan is not None
    assert simulated.plan.placement.label() == "7/9/8/8"


def test_the_note_gives_the_command_for_the_same_plan(tmp_path: Path) -> None:
    file = exported(tmp_path, STRATEGY, (8, 8, 8, 8), recomputed=2)
    text = scenario_text(file, tmp_path / "s.yaml", cluster="dgx-h100")
    assert "--placement 8:2/8:2/8:2/8:2" in text
    assert "tp=4,pp=4,micro_batch=2,microbatches=16,zero=1,sequence_parallel=true" in text
    full = exported(tmp_path, replace(STRATEGY, recompute="full"), (8, 8, 8, 8))
    assert "--placement 8/8/8/8\n" in scenario_text(full, tmp_path / "s.yaml", cluster="dgx-h100")


def test_the_command_writes_the_scenario(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "#!/bin/bash\nMODEL=(--num-layers $LAYERS --hidden-size 1024 --num-attention-heads 16 "
        "--seq-length 512 --max-position-embeddings 512 --vocab-size 50257 --micro-batch-size 2)\n"
    )
    output = tmp_path / "deep" / "scenario.yaml"
    arguments = ["megatron", str(script), "-o", str(output), "--cluster", "dgx-a100-80gb"]
    run = CliRunner().invoke(command, [*arguments, "--gpus", "8"], catch_exceptions=True)
    assert isinstance(run.exception, InputError)
    more = ["--gpus", "8", "--variable", "LAYERS=6"]
    run = CliRunner().invoke(command, [*arguments, *more], catch_exceptions=False)
    assert run.exit_code == 0
    with pytest.raises(InputError, match="LAYERS"):
        load_scenario(output)  # the model's file still rests on the variable
    script.write_text(script.read_text().replace("$LAYERS", "6"))
    assert len(load_scenario(output).graph.layers) == 6


def test_a_functional_test_is_a_model_for_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "model_config.yaml").write_text(
        "MODEL_ARGS: {--num-layers: 4, --hidden-size: 512, --num-attention-heads: 8, "
        "--max-position-embeddings: 512, --vocab-size: 1000}\n"
    )
    file = tmp_path / "s.yaml"
    file.write_text("model: model_config.yaml\ncluster: {name: dgx-h100, gpus: 8}\n")
    model = load_scenario(file).graph.model
    assert (model.hidden, model.positions, model.name) == (512, 512, "model_config")
