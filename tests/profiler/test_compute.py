"""Compute targets and the runner: every operator runs, failures are recorded, runs resume."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from costmodel.errors import UnsupportedError
from costmodel.events import CommEvent, ComputeEvent, Event
from costmodel.table import Table, write_wanted
from profiler import compute_bench
from profiler.compute_bench import bench
from profiler.device import Machine, limits_of, machine
from profiler.failures import reason
from profiler.runner import Limits, Progress, measurable, run
from profiler.targets import OPERATORS, attended, build

ROOT = Path(__file__).parents[2]
SMALL = Machine(kind="cpu", name="test", driver="", cache_bytes=1 << 16, ranks=2)
MATMUL = ComputeEvent(op="matmul", shape=(8, 16, 32), dtype="fp32")
SHAPES = {
    "matmul": (8, 16, 32),
    "grouped_matmul": (2, 8, 16, 32),
    "batched_matmul": (2, 8, 16, 32),
    "flash_attention": (1, 4, 2, 8, 8, 16, 16, 1, 0),
    "standard_attention": (1, 4, 2, 8, 8, 16, 16, 1, 0),
    "activation": (8, 32, 16),
    "norm": (8, 16),
    "residual": (8, 16),
    "rope": (8, 16),
    "router": (8, 16),
    "embedding": (8, 16),
    "cross_entropy": (8, 16),
    "optimizer": (64,),
    "accumulate": (64,),
    "cast": (64,),
    "permute": (64,),
}


def test_every_operator_has_a_shape_here() -> None:
    assert set(SHAPES) == OPERATORS


@pytest.mark.parametrize("op", sorted(SHAPES))
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_every_operator_runs_both_ways(op: str, direction: str) -> None:
    event = ComputeEvent(op=op, shape=SHAPES[op], dtype="fp32")
    target = build(
        replace(event, direction="backward") if direction == "backward" else event, "cpu"
    )
    target.run(target.prepare())
    assert target.bytes > 0


def test_a_backward_returns_the_gradient_of_every_input() -> None:
    event = ComputeEvent(op="residual", shape=(4, 8), dtype="fp32", direction="backward")
    target = build(event, "cpu")
    gradients = target.run(target.prepare())
    assert isinstance(gradients, tuple)
    assert [tuple(g.shape) for g in gradients] == [(4, 8), (4, 8)]


@pytest.mark.parametrize("change", [{"op": "opaque"}, {"dtype": "fp8"}])
def test_events_without_a_kernel_are_refused(change: dict[str, str]) -> None:
    with pytest.raises(UnsupportedError, match="no kernel"):
        build(replace(MATMUL, **change), "cpu")  # type: ignore[arg-type]


def test_bench_returns_positive_seconds() -> None:
    assert bench(MATMUL, SMALL, 0.05).seconds > 0


def test_the_machine_names_itself_and_limits_its_ranks() -> None:
    here = machine(ranks=2)
    assert here.name
    assert here.ranks <= 2
    assert here.source("n").libraries["torch"] == torch.__version__


def _comm(**change: int) -> CommEvent:
    event = CommEvent(collective="all_reduce", bytes=1024, group_size=2, per_node=2, level=0)
    return replace(event, **change)  # type: ignore[arg-type]


def test_larger_groups_are_measured_at_the_largest_at_hand_and_others_refused() -> None:
    assert measurable(_comm(group_size=64, per_node=64), SMALL) == _comm()
    assert measurable(_comm(level=1), SMALL) == "crosses nodes, and this is one machine"
    assert measurable(_comm(), replace(SMALL, ranks=1)) == "needs two ranks, and here is one"


def test_runs_resume_where_they_ended_and_record_what_does_not_fit(tmp_path: Path) -> None:
    table = tmp_path / "t.json"
    huge = ComputeEvent(op="norm", shape=(1 << 40, 1 << 10), dtype="fp32")
    wanted: list[Event] = [MATMUL, huge, _comm(level=1)]
    seen: list[Progress] = []
    first = run(table, wanted, SMALL, Limits(event_s=0.02), seen.append)
    assert (first.measured, first.failed, len(first.unmeasurable)) == (1, 1, 1)
    assert [progress.outcome for progress in seen][1] == "out of memory"
    again = run(table, wanted, SMALL, Limits(event_s=0.02))
    assert (again.measured, again.failed) == (0, 0)


def test_an_event_that_no_kernel_takes_is_recorded_and_a_lost_device_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [RuntimeError("No available kernel. Aborting execution.\nmore")]

    def broken(*_: object) -> None:
        raise errors[0]

    monkeypatch.setattr(compute_bench, "bench", broken)
    outcome = run(tmp_path / "t.json", [MATMUL], SMALL)
    assert outcome.failed == 1
    (entry,) = Table.load(tmp_path / "t.json").entries
    assert entry.failed == "No available kernel. Aborting execution."
    errors[0] = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal"):
        run(tmp_path / "u.json", [MATMUL], SMALL)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), "out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out of memory"),
        (RuntimeError("CUDA error: device-side assert triggered"), None),
        (
            RuntimeError("\"rms_norm\" not implemented for 'Half'"),
            "\"rms_norm\" not implemented for 'Half'",
        ),
        (ValueError("a mistake of ours"), None),
    ],
)
def test_reasons_are_those_of_one_event(error: Exception, expected: str | None) -> None:
    assert reason(error) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((64, 64, 1, 0), (64, True)),  # the square that the kernel masks
        ((64, 64, 0, 0), (64, False)),
        ((16, 64, 1, 0), (32, False)),  # a context-parallel rank sees half of the keys on average
        ((64, 64, 1, 16), (16, False)),  # each query sees the window
        ((64, 64, 1, 48), (64, True)),  # a wide window is shorter than the triangle nowhere
    ],
)
def test_attention_gets_the_work_of_its_event(
    given: tuple[int, int, int, int], expected: tuple[int, bool]
) -> None:
    assert attended(*given) == expected


def test_limits_of_the_gpu_stand_in_the_note() -> None:
    assert limits_of("1980 MHz, 700.00 W\n") == "SM clock up to 1980 MHz, power limit 700.00 W"
    assert limits_of("1980 MHz, [N/A]\n") == "SM clock up to 1980 MHz"
    here = replace(SMALL, limits="power limit 700.00 W")
    assert here.source("cold caches").note == "cold caches; power limit 700.00 W"


def test_a_spent_budget_leaves_events_for_the_next_run(tmp_path: Path) -> None:
    outcome = run(tmp_path / "t.json", [MATMUL], SMALL, Limits(budget_s=0.0))
    assert (outcome.measured, outcome.left) == (0, 1)


def test_a_killed_run_loses_no_finished_event(tmp_path: Path) -> None:
    wanted, table = tmp_path / "w.json", tmp_path / "t.json"
    events: dict[Event, int] = {replace(MATMUL, shape=(8, 16, k)): 1 for k in range(8, 400)}
    write_wanted(wanted, events)
    command = [sys.executable, "-m", "profiler", str(wanted), "-o", str(table), "--event-s", "0.05"]
    child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and (
        not table.exists() or len(Table.load(table).entries) < 3
    ):
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    kept = len(Table.load(table).entries)
    assert kept >= 3
    outcome = run(table, list(events)[: kept + 2], SMALL, Limits(event_s=0.01))
    assert outcome.measured <= 2
    assert len(Table.load(table).entries) >= kept
