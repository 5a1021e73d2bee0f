"""Batches: one fault never stops the rest, a killed run resumes, the order does not show."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.errors import InputError
from planner.batch.answer import BatchResult, run_batch
from planner.batch.journal import Journal
from planner.batch.machines import OpenExecutor, local_processes
from planner.batch.run import terminal_progress
from planner.batch.show import batch_to_csv, batch_to_json, batch_to_text
from planner.batch.tasks import Outcome, PlanFunction, read_task
from planner.pool.model import Pool, Request
from planner.pool.read import read_pool
from tests.planner.batch import planners

ROOT = Path(__file__).parents[3]
MODELS = ("bert-large", "llama-3.1-8b", "gpt3-175b")


def write_pool(folder: Path, extra: str = "", names: tuple[str, ...] = ()) -> Pool:
    for model in MODELS:
        text = f"model: {model}\ncluster: {{name: dgx-h100, gpus: 64}}\nname: {model}\n"
        (folder / f"{model}.yaml").write_text(text)
    for name in names:
        text = f"model: bert-large\ncluster: {{name: dgx-h100, gpus: 64}}\nname: {name}\n"
        (folder / f"{name}.yaml").write_text(text)
    listed = ", ".join(f"{name}.yaml" for name in (*MODELS, *names))
    path = folder / "pool.yaml"
    path.write_text(f"models: [{listed}]\n{extra}")
    return read_pool(path)


def threads(workers: int = 1) -> OpenExecutor:
    return lambda: ThreadPoolExecutor(workers)


def run(
    pool: Pool, plan: PlanFunction = planners.by_size, journal: Path | None = None
) -> BatchResult:
    return run_batch(pool, plan, open_executor=threads(), journal=journal)


def as_bytes(result: BatchResult) -> bytes:
    return json.dumps(batch_to_json(result)).encode()


def test_each_model_gets_its_row_in_the_order_of_the_file(tmp_path: Path) -> None:
    result = run(write_pool(tmp_path))
    assert [row.name for row in result.rows] == list(MODELS)
    assert result.found
    table = batch_to_text(result).splitlines()
    assert table[0].split() == [
        "model",
        "GPUs",
        "strategy",
        "iteration",
        "tokens/s",
        "MFU",
        "memory",
        "gap",
        "hours",
    ]
    assert table[1].startswith("bert-large    64    dp64")
    lines = batch_to_csv(result).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("llama-3.1-8b,")


def test_a_bad_scenario_stands_in_its_row_and_stops_nothing(tmp_path: Path) -> None:
    pool = write_pool(tmp_path, names=("bad", "small"))
    (tmp_path / "bad.yaml").write_text("model: no-such-model\n")
    (tmp_path / "small.yaml").write_text("model: bert-large\ncluster: {name: dgx-h100, gpus: 8}\n")
    (tmp_path / "gpt3-175b.yaml").unlink()
    result = run(pool)
    errors = {row.name: row.error for row in result.rows}
    assert "cannot be read" in errors["gpt3-175b"]
    assert "no-such-model" in errors["bad"]
    assert not errors["bert-large"]
    text = batch_to_text(result)
    assert "no plan for small: more GPUs" in text
    assert "no-such-model" in batch_to_csv(result)


def test_a_bug_of_the_planner_ends_in_the_row(tmp_path: Path) -> None:
    result = run(write_pool(tmp_path, names=("broken",)), planners.broken)
    assert [row.error for row in result.rows] == ["", "", "", "RuntimeError: a bug"]


def test_a_scenario_that_kills_its_worker_ends_alone_in_an_error(tmp_path: Path) -> None:
    pool = write_pool(tmp_path, names=("deadly", "last"))
    result = run_batch(pool, planners.deadly, open_executor=local_processes(2))
    errors = {row.name: row.error for row in result.rows}
    assert "worker process died" in errors.pop("deadly")
    assert set(errors.values()) == {""}


def test_processes_and_threads_in_any_order_give_the_same_bytes(tmp_path: Path) -> None:
    pool = write_pool(tmp_path)
    one = as_bytes(run(pool))
    backwards = replace(pool, requests=pool.requests[::-1])
    turned = run(backwards)
    assert as_bytes(replace(turned, rows=turned.rows[::-1])) == one
    assert as_bytes(run_batch(pool, planners.by_size)) == one


def test_what_the_journal_holds_is_not_planned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("MARKS", str(marks))
    pool, journal = write_pool(tmp_path), tmp_path / "batch.journal"
    first = as_bytes(run(pool, planners.noted, journal))
    assert len(list(marks.iterdir())) == 3
    with journal.open("ab") as stream:
        stream.write(b'{"key": "torn')
    assert as_bytes(run(pool, planners.noted, journal)) == first
    assert len(list(marks.iterdir())) == 3
    changed = tmp_path / "bert-large.yaml"
    changed.write_text(changed.read_text() + "training: {global_batch: 64}\n")
    run(pool, planners.noted, journal)
    assert len(list(marks.iterdir())) == 4


def test_a_file_that_is_no_journal_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n")
    with pytest.raises(InputError, match="line 1: is not a journal"):
        Journal(path)
    assert path.read_text() == "my notes\n"


def test_a_batch_killed_at_any_moment_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("MARKS", str(marks))
    monkeypatch.setenv("SECONDS", "0.2")
    pool, journal = write_pool(tmp_path, names=("x", "y", "z")), tmp_path / "batch.journal"
    code = (
        "from pathlib import Path; from tests.planner.batch.test_batch import *;"
        f"run(read_pool(Path({str(tmp_path / 'pool.yaml')!r})), planners.slowly, Path({str(journal)!r}))"
    )
    batch = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    wait_until(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 2)
    os.kill(batch.pid, signal.SIGKILL)
    batch.wait()
    kept = journal.read_bytes().count(b"\n")
    before = len(list(marks.iterdir()))
    resumed = run(pool, planners.noted, journal)
    assert len(list(marks.iterdir())) - before == 6 - kept
    assert as_bytes(resumed) == as_bytes(run(pool))


def wait_until(happened: Callable[[], bool]) -> None:
    for _ in range(600):
        if happened():
            return
        time.sleep(0.05)
    pytest.fail("did not happen within half a minute")


def test_a_shared_pool_leaves_out_what_cannot_be_planned_and_schedules_the_rest(
    tmp_path: Path,
) -> None:
    extra = "mode: share\ngroups: [{name: h100, cluster: dgx-h100, gpus: 128}]\n"
    pool = write_pool(tmp_path, extra, names=("bad",))
    (tmp_path / "bad.yaml").write_text("model: no-such-model\n")
    wanting = run(pool)
    assert wanting.shared is None
    assert not wanting.found
    assert "tokens is missing" in wanting.rows[0].error
    asked = [replace(request, tokens=1e9) for request in pool.requests]
    result = run(replace(pool, requests=tuple(asked)))
    assert result.shared is not None
    assert result.found
    assert [job.job for job in result.shared.jobs] == list(MODELS)
    front = result.rows[0].job
    assert front is not None
    assert [point.gpus for point in front.front] == [16, 32, 64, 128]
    text = batch_to_text(result)
    assert "first come first served" in text
    assert "not planned: bad:" in text
    assert json.loads(as_bytes(result))["share"]["gap"] <= pool.gap


def test_equal_scenarios_are_planned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("MARKS", str(marks))
    path = tmp_path / "twice.yaml"
    write_pool(tmp_path)
    path.write_text("models: [bert-large.yaml, bert-large.yaml]\n")
    result = run(read_pool(path), planners.noted)
    assert [row.name for row in result.rows] == ["bert-large", "bert-large-2"]
    assert len(list(marks.iterdir())) == 1


def test_files_that_a_scenario_names_belong_to_its_key(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("model: bert-large\nprices: [t.json]\n")
    (tmp_path / "t.json").write_text("{}")
    request = Request(name="a", scenario=str(tmp_path / "a.yaml"))
    before = read_task(request).key
    (tmp_path / "t.json").write_text("{ }")
    assert read_task(request).key != before


def test_progress_is_silent_unless_stderr_is_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal_progress()(1, 0, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    tell = terminal_progress()
    tell(1, 1, 2)
    tell(2, 1, 2)
    assert capsys.readouterr().err == "\r1/2 planned, 1 failed\r2/2 planned, 1 failed\n"


def test_an_executor_that_answers_out_of_order_changes_nothing(tmp_path: Path) -> None:
    pool = write_pool(tmp_path)
    expected = as_bytes(run(pool))

    def open_pool() -> Executor:
        return ThreadPoolExecutor(3)

    assert as_bytes(run_batch(pool, planners.by_size, open_executor=open_pool)) == expected


def test_a_scenario_may_stand_in_the_pool_file(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(
        "models:\n  - scenario: {model: bert-large, cluster: {name: dgx-h100, gpus: 64}}\n"
        "  - scenario: {model: bert-large, traning: {}}\n"
    )
    result = run(read_pool(path))
    assert [row.name for row in result.rows] == ["bert-large", "bert-large-2"]
    assert result.rows[0].outcome is not None
    assert result.rows[0].outcome.best is not None
    assert result.rows[1].error.startswith(
        f"{path}: models[1].scenario: traning: is not a key here"
    )


def test_outcomes_without_plans_have_no_best() -> None:
    assert Outcome(answer=None, error="x").best is None
    assert Outcome(answer={"plans": []}).best is None
