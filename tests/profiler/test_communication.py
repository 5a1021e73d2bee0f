"""Communication events: two gloo processes measure every collective."""

from pathlib import Path
from typing import get_args

import pytest

from costmodel.events import Collective, CommEvent
from costmodel.table import Table
from profiler.comm_bench import buffers
from profiler.device import Machine
from profiler.runner import Limits, last_error, run

TWO = Machine(kind="cpu", name="test", driver="", cache_bytes=1 << 16, ranks=2)


def _event(collective: Collective, size: int = 4096) -> CommEvent:
    return CommEvent(collective=collective, bytes=size, group_size=2, per_node=2, level=0)


@pytest.mark.parametrize("collective", get_args(Collective))
def test_the_larger_buffer_of_a_rank_has_the_bytes_of_the_event(collective: Collective) -> None:
    given, made = buffers(_event(collective), "cpu")
    assert max(t.numel() * t.element_size() for t in (given, made)) == 4096


def test_two_processes_measure_every_collective_and_tell_what_does_not_fit(tmp_path: Path) -> None:
    table, huge = tmp_path / "t.json", _event("all_reduce", 1 << 60)
    events = [_event(collective) for collective in get_args(Collective)]
    outcome = run(table, [huge, *events], TWO, Limits(event_s=0.05))
    assert (outcome.measured, outcome.failed) == (len(events), 1)
    assert outcome.cost_s > 0
    prices = [Table.load(table).lookup(event) for event in events]
    assert all(price and price.provenance == "measured" for price in prices)
    assert {e.failed for e in Table.load(table).entries if e.event == huge} == {"out of memory"}


def test_the_error_of_a_rank_is_found_in_what_it_wrote() -> None:
    text = (
        "[rank0]: Traceback (most recent call last):\n"
        "[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    )
    expected = "the ranks failed: torch.distributed.DistBackendError: NCCL error in: x.cpp:1"
    assert last_error(text) == expected
    assert last_error("") == "the ranks failed"
