"""``shardplan batch`` from the command line, with the real planner."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planner.batch.test_batch import ROOT

SCENARIO = """
model: bert-large
cluster: {name: dgx-h100, gpus: 8}
training: {global_batch: 64, sequence: 512, tokens: 1e9}
search: {pp: 1, cp: 1, micro_batch: 8}
"""


def shardplan(*arguments: str) -> "subprocess.CompletedProcess[str]":
    code = "from planner.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bert.yaml").write_text(SCENARIO)
    return tmp_path


def test_each_model_is_planned_and_every_form_is_written(folder: Path) -> None:
    pool = folder / "pool.yaml"
    pool.write_text("models: [bert.yaml, absent.yaml]\n")
    out = {name: str(folder / f"out.{name}") for name in ("json", "csv", "html", "journal")}
    run = shardplan("batch", str(pool), "--json", out["json"], "--csv", out["csv"],
                    "--report", out["html"], "--journal", out["journal"])  # fmt: skip
    assert run.returncode == 0
    assert run.stderr == ""
    assert run.stdout.splitlines()[1].startswith("bert    8")
    assert "no plan for absent" in run.stdout
    models = json.loads(Path(out["json"]).read_text())["models"]
    assert models[0]["answer"]["plans"][0]["gpus"] == 8
    assert "cannot be read" in models[1]["error"]
    assert Path(out["html"]).read_text().startswith("<!DOCTYPE html>")
    first = Path(out["json"]).read_bytes()
    again = shardplan("batch", str(pool), "--json", "-", "--journal", out["journal"])
    assert again.stdout.encode() == first


def test_a_shared_pool_is_scheduled_from_real_fronts(folder: Path) -> None:
    pool = folder / "pool.yaml"
    pool.write_text(
        "mode: share\ngroups: [{name: h100, cluster: dgx-h100, gpus: 16, price_per_gpu_hour: 2}]\n"
        "models: [{name: a, scenario: bert.yaml}, {name: b, scenario: bert.yaml, tokens: 2e9}]\n"
    )
    run = shardplan("batch", str(pool), "--json", "-")
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    assert [point["gpus"] for point in answer["models"][0]["front"]] == [8, 16]
    assert answer["share"]["gap"] <= 0.01
    assert {segment["job"] for segment in answer["share"]["segments"]} == {"a", "b"}


def test_an_unknown_cluster_is_told_where_it_stands(folder: Path) -> None:
    pool = folder / "pool.yaml"
    pool.write_text(
        "mode: share\ngroups: [{name: g, cluster: dgx-h10, gpus: 8}]\nmodels: [bert.yaml]\n"
    )
    run = shardplan("batch", str(pool))
    assert run.returncode == 2
    assert run.stdout == ""
    assert f"{pool}: groups[0].cluster: is not in the catalog, got 'dgx-h10'" in run.stderr


def test_nothing_planned_exits_with_one(folder: Path) -> None:
    pool = folder / "pool.yaml"
    pool.write_text("models: [absent.yaml]\n")
    assert shardplan("batch", str(pool)).returncode == 1
