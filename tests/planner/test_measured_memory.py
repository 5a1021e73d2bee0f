"""Predicted memory against measured runs: golden errors that may only improve, and no false "fits"."""

from pathlib import Path
from statistics import mean, median

import pytest

from planner.accuracy.memory import memory_of
from planner.accuracy.runs import Run, read_rows, read_runs

DATA = Path(__file__).parent.parent / "data" / "measured_memory.csv"


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    found, unread = read_runs(read_rows([DATA]))
    assert [run.reason for run in unread if "MIXED" not in run.reason] == []
    return found


def errors(runs: list[Run], counter: str) -> list[float]:
    """Return |predicted / measured - 1| of the runs that state ``counter``, in per cent."""
    pairs = [(getattr(run, counter), getattr(memory_of(run), counter)) for run in runs]
    return [abs(predicted / measured - 1) * 100 for measured, predicted in pairs if measured]


def test_allocated_memory_is_within_one_percent_in_the_median(runs: list[Run]) -> None:
    found = errors(runs, "allocated_bytes")
    assert len(found) == 58
    assert median(found) < 0.6
    assert mean(found) < 1.2
    assert sorted(found)[int(0.9 * len(found))] < 2.1


def test_reserved_memory_is_within_four_percent_in_the_median(runs: list[Run]) -> None:
    found = errors(runs, "reserved_bytes")
    assert len(found) == 128
    assert median(found) < 3.1
    assert mean(found) < 5.3


@pytest.mark.parametrize(
    ("source", "counter", "limit"),
    [
        ("simumax_b200", "allocated_bytes", 0.8),
        ("misc_frameworks", "allocated_bytes", 0.3),
        ("megatron_ci_golden", "allocated_bytes", 1.3),
        ("simumax_b200", "reserved_bytes", 2.4),
        ("torchtitan", "reserved_bytes", 2.1),
        ("bigscience", "reserved_bytes", 3.9),
        ("misc_frameworks", "reserved_bytes", 5.6),
        ("planner_validation", "reserved_bytes", 5.3),
    ],
)
def test_no_source_is_worse_than_before(
    runs: list[Run], source: str, counter: str, limit: float
) -> None:
    found = errors([run for run in runs if run.source == source], counter)
    assert median(found) < limit


def test_no_run_that_ran_out_of_memory_is_called_a_fit(runs: list[Run]) -> None:
    lost = [run for run in runs if run.out_of_memory]
    assert len(lost) == 3
    assert "fits" not in [memory_of(run).verdict for run in lost]


def test_no_run_that_ran_is_called_out_of_memory(runs: list[Run]) -> None:
    ran = [run for run in runs if not run.out_of_memory]
    assert [run.id for run in ran if memory_of(run).verdict == "oom"] == []
