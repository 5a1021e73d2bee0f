"""A simulated iteration as a Chrome trace, which Perfetto and chrome://tracing open.

One process for each pipeline rank, one track each for compute and for tensor, pipeline and data communication,
memory as a counter, transfers as flows. The cost model prices the sum of a task's kernels, not their order: a task
is drawn as its compute and then its exposed communication. The last event ends when the iteration does.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from costmodel.cost import StrategyCost
from costmodel.linear import ChunkContent, StageTerm
from costmodel.timeline import Span, Timeline
from planner.assemble import chunk_contents
from planner.files import write_all
from planner.plans import Plan

Event = dict[str, Any]
Shares = Mapping[tuple[str, int], tuple[float, ...]]

TRACKS: tuple[str, ...] = (
    "compute",
    "tensor, context and expert communication",
    "pipeline transfers",
    "data-parallel communication",
)
_COMPUTE, _TENSOR, _PIPELINE, _DATA = range(len(TRACKS))
# Track of each communication term of costmodel.pricing; every other term is compute.
TERM_TRACKS: Mapping[str, int] = {
    "tp_comm": _TENSOR,
    "cp_comm": _TENSOR,
    "ep_comm": _TENSOR,
    "pp_comm": _PIPELINE,
    "fsdp_comm": _DATA,
    "dp_comm": _DATA,
    "gather": _DATA,
}
_TASKS: Mapping[str, str] = {
    "F": "forward",
    "B": "backward",
    "I": "input gradient",
    "W": "weight gradient",
}
_NS_PER_US = 1000


def write_trace(path: Path, plan: Plan, timeline: Timeline, cost: StrategyCost) -> Path:
    """Write the trace of a plan; a name ending in ``.gz`` is compressed.

    Raises:
        InputError: If the file cannot be written.
    """
    return write_all({path: trace_bytes(path.name, plan, timeline, cost)})[0]


def trace_bytes(name: str, plan: Plan, timeline: Timeline, cost: StrategyCost) -> bytes:
    """Return the content of a trace file called ``name``, compressed if that ends in ``.gz``."""
    text = json.dumps(trace(plan, timeline, cost), separators=(",", ":")).encode()
    return gzip.compress(text, mtime=0) if name.endswith(".gz") else text


def trace(plan: Plan, timeline: Timeline, cost: StrategyCost) -> dict[str, Any]:
    """Return the trace as JSON values; ``timeline`` is the simulation of ``plan`` under ``cost``."""
    contents = chunk_contents(cost, plan.placement)
    shares = _shares(cost, contents)
    events: list[Event] = []
    for rank, held in enumerate(contents):
        events += _names(rank, plan)
        events += _tasks(timeline, rank, shares)
        events += _finish(timeline, rank, held, cost.at(rank))
        events += _memory(timeline, rank, held, cost.at(rank))
    events += _transfers(timeline, shares)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "metadata": {
            "shardplan": plan.strategy.label(),
            "placement": plan.placement.label(),
            "iteration_s": plan.iteration_s,
        },
    }


def _names(rank: int, plan: Plan) -> Iterator[Event]:
    """Yield the names of a rank's process and tracks; ranks are numbered with the pipeline outermost."""
    each = plan.strategy.gpus // plan.strategy.pp
    name = f"PP {rank} / GPUs {rank * each}-{(rank + 1) * each - 1}"
    yield _metadata("process_name", rank, 0, {"name": name})
    yield _metadata("process_sort_index", rank, 0, {"sort_index": rank})
    for track, title in enumerate(TRACKS):
        yield _metadata("thread_name", rank, track, {"name": title})
        yield _metadata("thread_sort_index", rank, track, {"sort_index": track})


def _metadata(name: str, rank: int, track: int, values: Event) -> Event:
    return {"ph": "M", "name": name, "pid": rank, "tid": track, "args": values}


def _shares(cost: StrategyCost, contents: Sequence[Sequence[ChunkContent]]) -> Shares:
    """Return how the tracks share a task, by kind and virtual stage."""
    ranks = len(contents)
    return {
        (kind, chunk * ranks + rank): _track_shares(_task_terms(kind, cost.at(rank), content))
        for rank, held in enumerate(contents)
        for chunk, content in enumerate(held)
        for kind in _TASKS
    }


def _tasks(timeline: Timeline, rank: int, shares: Shares) -> Iterator[Event]:
    """Yield the slices of every task of a rank."""
    ranks = timeline.work.shape.ranks
    for span in timeline.spans[rank]:
        stage = span.chunk * ranks + rank
        name = f"{_TASKS[span.kind]} {span.microbatch}"
        values = {"stage": stage, "micro-batch": span.microbatch}
        for track, start, end in _parts(span, shares[span.kind, stage]):
            yield _slice(name, rank, track, start, end, values)


def _task_terms(kind: str, cost: StrategyCost, content: ChunkContent) -> dict[str, float]:
    """Return the seconds of a task by term."""
    if kind == "F":
        return _values(cost.forward, (content,))
    weight = _values(cost.weight_gradient, (content,))
    if kind == "W":
        return weight
    terms = _values(cost.backward, (content,))
    if kind == "I":
        return {name: value - weight.get(name, 0.0) for name, value in terms.items()}
    return terms


def _values(terms: Sequence[StageTerm], contents: Sequence[ChunkContent]) -> dict[str, float]:
    return {term.name: term.value(contents) for term in terms}


def _track_shares(terms: Mapping[str, float]) -> tuple[float, ...]:
    """Return the share of each track in the sum of ``terms``; all compute where the sum is nothing."""
    sums = [0.0] * len(TRACKS)
    for name, value in terms.items():
        sums[TERM_TRACKS.get(name, _COMPUTE)] += max(0.0, value)
    total = sum(sums)
    return tuple(part / total for part in sums) if total else (1.0, *[0.0] * (len(TRACKS) - 1))


def _parts(span: Span, shares: Sequence[float]) -> list[tuple[int, int, int]]:
    """Return (track, start, end) of the parts of a task, one behind the other, without empty ones."""
    length = span.end_ns - span.start_ns
    sums = [sum(shares[:count]) for count in range(len(shares))]
    points = [span.start_ns + round(length * part) for part in sums] + [span.end_ns]
    tracks = enumerate(pairwise(points))
    return [(track, left, right) for track, (left, right) in tracks if right > left]


def _finish(
    timeline: Timeline, rank: int, held: Sequence[ChunkContent], cost: StrategyCost
) -> Iterator[Event]:
    """Yield what a rank does behind its last task: the longest alternative, then what is fixed."""
    alternatives = [_values(way.terms, held) for way in cost.finish]
    terms = max(alternatives, key=lambda way: sum(way.values()), default={})
    terms = {name: value for name, value in terms.items() if value > 0} | {"fixed": cost.fixed_s}
    start = timeline.end_ns(rank)
    end = start + timeline.work.finish_ns[rank]
    total = sum(terms.values())
    done = 0.0
    for name, value in terms.items():
        left, done = done, done + value
        first, last = (start + round((end - start) * part / total) for part in (left, done))
        if total and last > first:
            yield _slice(name, rank, TERM_TRACKS.get(name, _COMPUTE), first, last, {})


def _memory(
    timeline: Timeline, rank: int, held: Sequence[ChunkContent], cost: StrategyCost
) -> Iterator[Event]:
    """Yield reserved memory whenever the activations kept change, and in the optimizer step."""
    for moment, kept in ((0, (0,) * len(held)), *timeline.in_flight(rank)):
        now = [replace(item, in_flight=count) for item, count in zip(held, kept, strict=True)]
        yield _counter(rank, moment, _reserved(cost, now, "backward"))
    step = _reserved(cost, [replace(item, in_flight=0) for item in held], "step")
    yield _counter(rank, timeline.end_ns(rank), step)


def _reserved(cost: StrategyCost, contents: Sequence[ChunkContent], moment: str) -> float:
    """Return bytes at one moment, 0 where the cost has no such moment."""
    terms = next((item.terms for item in cost.memory if item.name == moment), ())
    return sum(term.value(contents) for term in terms)


def _counter(rank: int, moment_ns: int, size: float) -> Event:
    gib = round(size / (1 << 30), 3)
    return {
        "ph": "C",
        "name": "memory (GiB)",
        "pid": rank,
        "ts": moment_ns / _NS_PER_US,
        "args": {"reserved": gib},
    }


def _transfers(timeline: Timeline, shares: Shares) -> Iterator[Event]:
    """Yield each hand-over between ranks: a slice on the receiver's pipeline track and a flow to its task."""
    ranks = timeline.work.shape.ranks
    if ranks == 1:
        return
    found = {
        ("B" if span.kind == "I" else span.kind, span.chunk * ranks + rank, span.microbatch): span
        for rank, spans in enumerate(timeline.spans)
        for span in spans
    }
    for number, ((way, stage, microbatch), span) in enumerate(found.items()):
        after = stage + (1 if way == "F" else -1)
        receiver = found.get((way, after, microbatch))
        if way in "FB" and receiver is not None:
            arrival = span.end_ns + timeline.work.transfer_ns[min(stage, after) % ranks]
            name = f"{'activation' if way == 'F' else 'gradient'} {microbatch}"
            if arrival > span.end_ns:
                values = {"from stage": stage, "micro-batch": microbatch}
                yield _slice(name, after % ranks, _PIPELINE, span.end_ns, arrival, values)
            yield from _flow(
                number, _last(span, shares, stage, ranks), _first(receiver, shares, after, ranks)
            )


def _flow(number: int, sender: Event, receiver: Event) -> Iterator[Event]:
    """Yield both ends of an arrow; viewers attach each to the slice that is on its track at that moment."""
    flow = {"name": "transfer", "cat": "transfer", "id": number}
    yield {**flow, "ph": "s", **sender}
    yield {**flow, "ph": "f", "bp": "e", **receiver}


def _last(span: Span, shares: Shares, stage: int, ranks: int) -> Event:
    track, start, end = _parts(span, shares[span.kind, stage])[-1]
    return {"pid": stage % ranks, "tid": track, "ts": (start + end) / 2 / _NS_PER_US}


def _first(span: Span, shares: Shares, stage: int, ranks: int) -> Event:
    track, start, _ = _parts(span, shares[span.kind, stage])[0]
    return {"pid": stage % ranks, "tid": track, "ts": start / _NS_PER_US}


def _slice(
    name: str, rank: int, track: int, start_ns: int, end_ns: int, values: Mapping[str, int]
) -> Event:
    return {
        "ph": "X",
        "name": name,
        "pid": rank,
        "tid": track,
        "ts": start_ns / _NS_PER_US,
        "dur": (end_ns - start_ns) / _NS_PER_US,
        "args": dict(values),
    }
