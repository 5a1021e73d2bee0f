"""Slices of sequences as pipeline units (TeraPipe)."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from costmodel.errors import InputError
from planner.cli import cli
from planner.compare import best_plan
from planner.scenario import Scenario
from planner.scenario_file import scenario_from_mapping
from planner.token_slices import best_sliced

EXAMPLE = Path(__file__).parents[3] / "scenarios" / "examples" / "token-slices.yaml"


def asked(batch: int = 4, **changes: Any) -> Scenario:
    data: dict[str, Any] = {
        "model": "gpt3-6.7b",
        "cluster": {"name": "p4de", "gpus": 8},
        "training": {"global_batch": batch, "sequence": 2048, "framework": "sagemaker"},
        "search": {"pp": 8, "schedule": "gpipe", "micro_batch": 1},
    }
    for key, value in changes.items():
        data[key] = {**data[key], **value} if isinstance(value, dict) else value
    return scenario_from_mapping(data)


def test_one_slice_is_the_ordinary_pipeline() -> None:
    plain, _ = best_plan(asked(), None)
    whole = best_sliced(asked(), 1)
    assert plain
    assert whole
    assert whole.iteration_s == pytest.approx(plain.iteration_s, rel=1e-3)
    assert whole.strategy.microbatches == plain.strategy.microbatches


def test_slices_fill_a_deep_pipeline_of_few_sequences_and_not_one_of_many() -> None:
    gain = {}
    for batch in (4, 64):
        whole, halves = best_sliced(asked(batch), 1), best_sliced(asked(batch), 2)
        assert whole
        assert halves
        gain[batch] = whole.iteration_s / halves.iteration_s
    assert gain[4] > 1.15
    assert gain[64] < 1.1
    # The bubble alone would give (m + p - 1) / (m + (p - 1) / 2).
    assert gain[4] < 11 / 7.5


def test_a_sequence_stays_whole_on_its_replica() -> None:
    plan = best_sliced(asked(16, search={"pp": 2, "dp": 4}), 4)
    assert plan
    assert plan.strategy.dp * plan.strategy.micro_batch * plan.strategy.microbatches == 16


@pytest.mark.parametrize(
    ("changes", "slices", "message"),
    [
        ({"model": "bert-large", "training": {"sequence": 512}}, 2, "causal"),
        ({"training": {"attention": "standard"}}, 2, "flash"),
        ({"training": {"framework": "megatron"}}, 2, "GPipe"),
        ({}, 3, "divide the sequence"),
    ],
)
def test_what_cannot_be_sliced_is_refused(
    changes: dict[str, Any], slices: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        best_sliced(asked(**changes), slices)


def test_the_command_prints_a_row_for_each_number_of_slices() -> None:
    arguments = ["compare", str(EXAMPLE), "--token-slices", "1,4"]
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert result.return_value == 0, result.output
    assert len([line for line in result.output.splitlines() if line[:2] in ("1 ", "4 ")]) == 2
