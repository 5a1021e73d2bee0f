"""The verdict on a given plan, on the command line's two outputs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import cli

SCENARIO = """
model: llama-2-7b
cluster: {{name: dgx-a100-80gb, gpus: 8}}
training: {{global_batch: 64, sequence: 2048, framework: megatron}}
limits: {{memory: {limit}}}
"""


@pytest.mark.parametrize(
    ("limit", "expected", "words"),
    [
        ("76GiB", "fits", "It fits."),
        ("59GiB", "borderline", "Borderline: "),
        ("50GiB", "oom", "It does not fit: "),
    ],
)
def test_simulate_says_fits_borderline_or_oom(
    tmp_path: Path, limit: str, expected: str, words: str
) -> None:
    scenario, answer = tmp_path / "s.yaml", tmp_path / "a.json"
    scenario.write_text(SCENARIO.format(limit=limit))
    command = [
        "simulate",
        str(scenario),
        "--strategy",
        "dp=8,zero=1,micro_batch=1,recompute=selective",
    ]
    result = CliRunner().invoke(cli, [*command, "--json", str(answer)])
    assert words in result.output
    data = json.loads(answer.read_text())
    assert data["verdict"] == expected
    assert data["fits"] == (expected == "fits")
