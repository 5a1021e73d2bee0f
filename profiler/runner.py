"""Measures the events that a table lacks, one after the other, and appends each as soon as it is known.

A killed run loses at most the event it was in; the next run starts with what is missing. An event that does not fit is
recorded as failed, one that cannot be measured here is named and left out.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch

from costmodel.errors import UnsupportedError
from costmodel.events import CommEvent, ComputeEvent, Event
from costmodel.table import Entry, Table, append
from profiler import compute_bench
from profiler.device import Machine
from profiler.failures import reason
from profiler.targets import OPERATORS
from profiler.timing import Timing

_COMPUTE_NOTE = "cold caches, warm-up, median of repeats"
_COMM_NOTE = "behind a barrier, warm-up, median of repeats; CPU: slowest rank, GPU: the last to come; transfers: shorter side"
_LAUNCH_S = 60.0  # what starting the ranks may take beyond the measurements themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a run has done so far."""

    done: int
    total: int
    spent_s: float
    event: Event
    outcome: str

    @property
    def left_s(self) -> float:
        """Time left at the pace so far."""
        return self.spent_s / self.done * (self.total - self.done) if self.done else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        measured, failed: Numbers of events.
        unmeasurable: Events that this machine cannot measure, with the reason.
        left: Events that the budget did not reach.
        cost_s: Device seconds spent: time times ranks.
    """

    measured: int
    failed: int
    unmeasurable: Mapping[Event, str]
    left: int
    cost_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a run.

    Attributes:
        event_s: Of one event.
        budget_s: Of the whole run; None is no bound.
    """

    event_s: float = 1.0
    budget_s: float | None = None


DEFAULT_LIMITS = Limits()


def measurable(event: Event, machine: Machine) -> Event | str:
    """Return the event to measure in place of ``event``, or why there is none.

    Groups beyond the ranks at hand are measured at the largest group here: the law of ring collectives
    (costmodel.table.Table.scaled) takes it from there.
    """
    if isinstance(event, ComputeEvent):
        return event if event.op in OPERATORS else "no kernel to measure"
    if event.level > 0:
        return "crosses nodes, and this is one machine"
    if machine.ranks < 2:
        return "needs two ranks, and here is one"
    ranks = min(event.group_size, machine.ranks)
    return replace(event, group_size=ranks, per_node=min(event.per_node, ranks))


def run(
    table: Path,
    wanted: Iterable[Event],
    machine: Machine,
    limits: Limits = DEFAULT_LIMITS,
    report: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Measure what ``table`` lacks of ``wanted``."""
    targets, unmeasurable = _targets(wanted, machine)
    known = Table.load(table) if table.exists() else Table()
    missing = list(known.missing(dict.fromkeys(targets, 1)))
    start, cost, counts = time.perf_counter(), 0.0, {"measured": 0, "failed": 0}
    for done, (entry, ranks, seconds) in enumerate(_measured(missing, machine, limits, start), 1):
        note = _COMPUTE_NOTE if isinstance(entry.event, ComputeEvent) else _COMM_NOTE
        append(table, machine.source(note), [entry])
        counts["measured" if entry.seconds is not None else "failed"] += 1
        cost += ranks * seconds
        outcome = entry.failed or f"{entry.seconds:.3g} s"
        spent = time.perf_counter() - start
        progress = Progress(
            done=done, total=len(missing), spent_s=spent, event=entry.event, outcome=outcome
        )
        if report:
            report(progress)
    left = len(missing) - counts["measured"] - counts["failed"]
    return Outcome(**counts, unmeasurable=unmeasurable, left=left, cost_s=cost)


def _targets(wanted: Iterable[Event], machine: Machine) -> tuple[list[Event], dict[Event, str]]:
    targets: dict[Event, None] = {}
    refused: dict[Event, str] = {}
    for event in wanted:
        target = measurable(event, machine)
        if isinstance(target, str):
            refused[event] = target
        else:
            targets[target] = None
    return list(targets), refused


def _measured(
    missing: list[Event], machine: Machine, limits: Limits, start: float
) -> Iterator[tuple[Entry, int, float]]:
    """Yield entries with the ranks and seconds they took, compute first, until the budget is spent."""

    def left() -> float:
        spent = time.perf_counter() - start
        return float("inf") if limits.budget_s is None else limits.budget_s - spent

    for event in missing:
        if isinstance(event, ComputeEvent) and left() > 0:
            begin = time.perf_counter()
            entry = _compute(event, machine, min(limits.event_s, left()))
            yield entry, 1, time.perf_counter() - begin
    groups = [event for event in missing if isinstance(event, CommEvent)]
    groups.sort(key=lambda event: event.group_size)
    for ranks, events in groupby(groups, key=lambda event: event.group_size):
        if left() > 0:
            yield from _communication(list(events), ranks, limits.event_s, left)


def _compute(event: ComputeEvent, machine: Machine, budget_s: float) -> Entry:
    try:
        return _entry(event, compute_bench.bench(event, machine, budget_s))
    except UnsupportedError as error:
        return Entry(event=event, seconds=None, failed=str(error))
    except (MemoryError, RuntimeError) as error:
        why = reason(error)
        if why is None:
            raise
        return Entry(event=event, seconds=None, failed=why)
    finally:
        if (
            machine.kind == "cuda"
        ):  # the ranks of collectives, and larger events, need what is cached
            torch.cuda.empty_cache()


def _entry(event: Event, timing: Timing) -> Entry:
    return Entry(event=event, seconds=timing.seconds, samples=timing.samples, spread=timing.spread)


def _communication(
    events: list[CommEvent], ranks: int, event_s: float, left: Callable[[], float]
) -> Iterator[tuple[Entry, int, float]]:
    """Yield what one launch of ``ranks`` ranks measures; events that it does not reach come again next time."""
    keys = {event.key: event for event in events}
    command = [
        sys.executable,
        *("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"),
        *("-m", "profiler.comm_bench", str(event_s), *keys),
    ]
    begin = time.perf_counter()
    with (
        TemporaryFile("w+") as told,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True) as child,  # noqa: S603 (our own interpreter)
    ):
        for line in child.stdout or ():
            found = json.loads(line) if line.startswith("{") else {}
            if found.get("event") not in keys:
                continue
            event = keys.pop(found.pop("event"))
            now = time.perf_counter()
            yield _reported(event, found), ranks, now - begin
            begin = now
            if left() <= 0:
                child.terminate()
                return
        failed = _ended(child) != 0
        told.seek(0)
        why = last_error(told.read())
    if failed and keys:  # the ranks died in the first event they did not report
        event = next(iter(keys.values()))
        yield Entry(event=event, seconds=None, failed=why), ranks, 0.0
        yield from _communication(list(keys.values())[1:], ranks, event_s, left)


def _reported(event: CommEvent, found: dict[str, Any]) -> Entry:
    if "failed" in found:
        return Entry(event=event, seconds=None, failed=found["failed"])
    return _entry(event, Timing(**found))


def _ended(child: subprocess.Popen[str]) -> int:
    """Return the exit code of ranks that have closed their output; those that hang at their end are killed."""
    try:
        return child.wait(timeout=_LAUNCH_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def last_error(text: str) -> str:
    """Return the line of a rank's traceback that says what happened."""
    lines = [line.partition("]: ")[2] or line for line in text.splitlines()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return f"the ranks failed: {errors[0][:200]}" if errors else "the ranks failed"
