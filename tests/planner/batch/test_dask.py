"""The same batch over a real Dask scheduler with two workers on loopback, one of which is killed half way."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from costmodel.errors import InputError
from planner.batch.answer import run_batch
from planner.batch.machines import dask_cluster
from planner.batch.show import batch_to_json
from tests.planner.batch import planners
from tests.planner.batch.test_batch import ROOT, run, wait_until, write_pool

pytest.importorskip("distributed", reason="needs the extra dask")


@contextmanager
def process(*arguments: str, marks: Path) -> Iterator["subprocess.Popen[bytes]"]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MARKS": str(marks), "SECONDS": "0.3"}
    started = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        env=environment,
        cwd=marks,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def test_a_killed_worker_loses_nothing_and_the_bytes_are_those_of_one_machine(
    tmp_path: Path,
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    pool = write_pool(tmp_path, names=tuple(f"model-{number}" for number in range(9)))
    contact = tmp_path / "scheduler.json"
    options = ("--no-dashboard", "--scheduler-file", str(contact))
    worker = ("distributed.cli.dask_worker", "--scheduler-file", str(contact), "--no-nanny",
              "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1")  # fmt: skip
    with ExitStack() as stack:
        scheduler = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        stack.enter_context(process(*scheduler, *options, marks=marks))
        wait_until(contact.exists)
        first = stack.enter_context(process(*worker, marks=marks))
        stack.enter_context(process(*worker, marks=marks))
        address = json.loads(contact.read_text())["address"]
        seen: list[int] = []

        def kill_half_way(finished: int, failed: int, tasks: int) -> None:
            seen.append(finished)
            if finished == 5:
                os.kill(first.pid, signal.SIGKILL)

        spread = run_batch(
            pool,
            planners.slowly,
            open_executor=dask_cluster(address),
            progress=kill_half_way,
        )
    workers = {int(mark.name.split("-")[-2]) for mark in marks.iterdir()}
    assert first.pid in workers
    assert len(workers) == 2
    assert len(seen) == len(pool.requests)
    assert not [row.error for row in spread.rows if row.error]
    assert json.dumps(batch_to_json(spread)) == json.dumps(batch_to_json(run(pool)))


def test_an_address_without_scheduler_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="--scheduler: must be the address"),
        dask_cluster("tcp://127.0.0.1:1", timeout_s=0.5)(),
    ):
        pass
