"""Mixed clusters on the command line: planned, checked, simulated again, explained, drawn, exported or refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner import cli

SCENARIO = """
model: {model_type: llama, hidden_size: 1024, intermediate_size: 2816, num_attention_heads: 8,
  num_key_value_heads: 4, vocab_size: 32000, num_hidden_layers: 6, tie_word_embeddings: true}
cluster: {groups: [{name: dgx-a100-80gb, gpus: 4}, {name: dgx-1-32gb, gpus: 4}]}
training: {global_batch: 32, sequence: 1024}
search: {pp: [2, 4]}
"""
DEVICES = ("a100-sxm-80gb", "v100-sxm2-32gb")


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Return the file of a scenario on four A100 and four V100."""
    path = tmp_path / "mixed.yaml"
    path.write_text(SCENARIO)
    return path


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[object, str, str]:
    """Return exit code, stdout and stderr of the command."""
    monkeypatch.setattr("sys.argv", ["shardplan", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def typed(plan: dict[str, Any]) -> tuple[str, str]:
    """Return strategy and placement of a printed plan as one types them."""
    names = ("tp", "pp", "dp", "vpp", "micro_batch", "microbatches", "zero", "schedule")
    strategy = [f"{name}={plan['strategy'][name]}" for name in names]
    strategy.append(f"sequence_parallel={str(plan['strategy']['sequence_parallel']).lower()}")
    counts = plan["placement"].split("/")
    groups = plan["device_groups"] * plan["strategy"]["vpp"]
    stages = [f"{count}@{DEVICES[group]}" for count, group in zip(counts, groups, strict=True)]
    return ",".join(strategy), "/".join(stages)


def test_a_mixed_cluster_is_planned_simulated_drawn_and_exported(
    scenario: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report, trace = tmp_path / "r.html", tmp_path / "t.json"
    files = ("--report", report, "--trace", trace)
    code, out, _ = run(
        monkeypatch, capsys, "plan", scenario, "--gap", 0, "--top", 3, "--json", "-", *files
    )
    answer = json.loads(out)
    best = answer["plans"][0]
    assert (code, answer["status"], answer["gap"]) == (0, "optimal", 0.0)
    assert len(best["device_groups"]) == best["strategy"]["pp"]
    for stage, group in zip(best["stages"], best["device_groups"], strict=True):
        assert stage["device"] == DEVICES[group]
        assert stage["memory_bytes"] <= stage["memory_limit_bytes"]
    assert "on a100-sxm-80gb" in report.read_text()
    assert json.loads(trace.read_text())["metadata"]["placement"] == best["placement"]

    strategy, placement = typed(best)
    asked = ("simulate", scenario, "--strategy", strategy, "--placement", placement)
    code, out, _ = run(monkeypatch, capsys, *asked, "--json", "-")
    again = json.loads(out)
    assert code == 0
    assert again["fits"]
    for key in ("iteration_s", "device_groups", "stages", "mfu", "time", "peak_memory_bytes"):
        assert again[key] == best[key]

    mixed = next(plan for plan in answer["plans"] if len(set(plan["device_groups"])) > 1)
    code, _, err = run(
        monkeypatch,
        capsys,
        *("plan", scenario, "--gap", 0, "--top", 3, "--rank", mixed["rank"]),
        *("--export", f"torchtitan:{tmp_path / 'titan'}"),
    )
    assert (code, "cannot express this plan" in err) == (2, True)


def test_the_text_says_which_stage_runs_on_which_device_under_which_limit(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    strategy = "tp=2,pp=4,micro_batch=1"
    code, out, _ = run(
        monkeypatch, capsys, "simulate", scenario, "--strategy", strategy, "--placement", "1/2/2/1"
    )
    assert code == 0
    assert "limit 76.9 GiB per a100-sxm-80gb, 30.1 GiB per v100-sxm2-32gb" in out
    assert "2xa100 2xv100" in out
    stages = [line for line in out.splitlines() if line.startswith(("0 ", "1 ", "2 ", "3 "))]
    rows = [line for line in stages if "sxm" in line]
    assert [DEVICES[index // 2] in row for index, row in enumerate(rows)] == [True] * 4


def test_too_many_ranks_for_a_group_are_named(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(
        monkeypatch,
        capsys,
        *("simulate", scenario, "--strategy", "tp=2,pp=4"),
        *("--placement", "1@0/2@0/2@0/1@1"),
    )
    assert code == 1
    assert "group_capacity: 3 pipeline ranks on a100-sxm-80gb, which has room for 2" in out


def test_memory_sweeps_of_a_mixed_cluster_fall_step_by_step(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario.write_text(SCENARIO.replace("pp: [2, 4]", "pp: [2], micro_batch: [1], tp: [1, 2]"))
    asked = ("whatif", scenario, "--memory", "sweep", "--json", "-")
    code, out, _ = run(monkeypatch, capsys, *asked)
    steps = json.loads(out)["steps"]
    assert code == 0
    assert len(steps) > 1
    times = [step["iteration_s"] for step in steps]
    assert times == sorted(times, reverse=True)
