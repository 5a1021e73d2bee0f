"""Traces of the PyTorch profiler (Kineto, Chrome format) as measured events.

A GPU capture has ``kernel`` slices whose ``External id`` names the operator (``cpu_op``) that launched them; an operator's
time is the sum of its kernels. A CPU capture has only operators; their own duration is taken. NCCL kernels carry the collective,
element counts, dtype and ranks. A rank's NCCL kernel lasts from its own start, so it holds the wait for the others: with the
traces of several ranks the shortest of them is the transfer, as with DistSim's min(send, recv) (CF'23, section 4.2).
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, cast

from costmodel.errors import InputError
from costmodel.events import Collective, CommEvent, ComputeEvent, Event
from costmodel.table import Entry, Source

_COLLECTIVES: Mapping[str, tuple[Collective, str]] = {
    "allreduce": ("all_reduce", "In"),
    "all_reduce": ("all_reduce", "In"),
    "allreduce_coalesced": ("all_reduce", "In"),
    "allgather": ("all_gather", "Out"),
    "all_gather": ("all_gather", "Out"),
    "_allgather_base": ("all_gather", "Out"),
    "allgather_into_tensor_coalesced": ("all_gather", "Out"),
    "reduce_scatter": ("reduce_scatter", "In"),
    "_reduce_scatter_base": ("reduce_scatter", "In"),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", "In"),
    "all_to_all": ("all_to_all", "In"),
    "all_to_allv": ("all_to_all", "In"),
    "alltoall": ("all_to_all", "In"),
    "alltoall_base": ("all_to_all", "In"),
    "send": ("send_recv", "In"),
    "recv": ("send_recv", "Out"),
}
_NCCL_BYTES = {
    "float": 4,
    "float32": 4,
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "byte": 1,
    "char": 1,
    "int": 4,
    "long": 8,
    "double": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
_DTYPES = {
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "double": "fp64",
    "c10::Float8_e4m3fn": "fp8",
}
_MATMULS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0}
_WRAPPERS = frozenset({"aten::linear", "aten::matmul", "aten::einsum"})

Timed = dict[Event, list[float]]


def read_kineto(
    texts: Sequence[str], file: str, gpus_per_node: int | None = None
) -> tuple[Source, tuple[Entry, ...]]:
    """Return the events of the traces of one step, one text a rank.

    Args:
        texts: Contents of the traces.
        file: Name for messages and provenance.
        gpus_per_node: To tell which groups stay in a node; None takes the number of devices in the trace.

    Raises:
        InputError: If a trace is no JSON or holds neither kernels nor operators with shapes.
    """
    traces = [_load(text, file) for text in texts]
    nodes = gpus_per_node or len(traces[0].get("deviceProperties", [])) or 1
    compute: Timed = defaultdict(list)
    for trace in traces:
        for event, seconds in _compute(trace["traceEvents"]):
            compute[event].append(seconds)
    entries = [*_entries(compute), *_entries(_communication(traces, nodes))]
    if not entries:
        raise InputError(
            "holds no kernel or operator with shapes (record_shapes=True was off?)", file=file
        )
    return _source(traces[0], file), tuple(entries)


def _load(text: str, file: str) -> dict[str, Any]:
    try:
        trace = json.loads(text)
    except ValueError as error:
        raise InputError("must be a JSON trace", file=file) from error
    if not isinstance(trace, dict) or "traceEvents" not in trace:
        raise InputError("must hold traceEvents", file=file, key="traceEvents")
    return cast("dict[str, Any]", trace)


def _source(trace: Mapping[str, Any], file: str) -> Source:
    devices = trace.get("deviceProperties") or [{"name": "CPU"}]
    return Source(
        device=str(devices[0].get("name", "unknown")),
        date=str(trace.get("date", "")),
        origin=f"Kineto trace {file}",
        note="median over the occurrences in the captured steps",
    )


def _entries(timed: Timed) -> Iterator[Entry]:
    for event, seconds in timed.items():
        median = statistics.median(seconds)
        if median > 0:
            yield Entry(event=event, seconds=median, samples=len(seconds), spread=spread(seconds))


def spread(seconds: Sequence[float]) -> float | None:
    """Return the interquartile range over the median; None below 4 values."""
    if len(seconds) < 4:
        return None
    low, middle, high = statistics.quantiles(seconds, n=4)
    return (high - low) / middle


def _compute(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Event, float]]:
    slices = [e for e in events if e.get("ph") == "X"]
    operators = [
        e for e in slices if e.get("cat") == "cpu_op" and e.get("args", {}).get("Input Dims")
    ]
    kernels: dict[int, float] = defaultdict(float)
    for piece in slices:
        if piece.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy"):
            kernels[piece["args"].get("External id", -1)] += piece["dur"]
    for operator in operators:
        event = _operator_event(operator)
        microseconds = (
            kernels.get(operator["args"].get("External id", -2)) if kernels else operator["dur"]
        )
        if event is not None and microseconds:
            yield event, microseconds * 1e-6


def _operator_event(operator: Mapping[str, Any]) -> ComputeEvent | None:
    name, dims = operator["name"], operator["args"]["Input Dims"]
    dtypes = [_DTYPES[t] for t in operator["args"].get("Input type", ()) if t in _DTYPES]
    if not dtypes or name in _WRAPPERS or not name.startswith("aten::"):
        return None
    if name in _MATMULS:
        return _matmul_event(dims[_MATMULS[name] :], dtypes[-1])
    sizes = tuple(prod(d) for d in dims if isinstance(d, list) and d and prod(d) > 1)
    op = name.removeprefix("aten::").lstrip("_")
    return ComputeEvent(op=f"aten.{op}", shape=sizes, dtype=dtypes[0]) if sizes else None


def _matmul_event(dims: Sequence[Sequence[int]], dtype: str) -> ComputeEvent:
    """Return the event of (batch x) M x K times (batch x) K x N; shape (M, N, K), a batch stands first."""
    left, right = dims[0], dims[1]
    shape = (*left[:-2], left[-2], right[-1], left[-1])
    return ComputeEvent(
        op="matmul" if len(shape) == 3 else "batched_matmul", shape=shape, dtype=dtype
    )


def _communication(traces: Sequence[Mapping[str, Any]], gpus_per_node: int) -> Timed:
    """Return for each collective, matched over ranks by its order in the group, the shortest duration."""
    shortest: dict[tuple[Event, str, int], float] = {}
    for trace in traces:
        seen: dict[tuple[Event, str], int] = defaultdict(int)
        for piece in trace["traceEvents"]:
            event = _comm_event(piece, gpus_per_node)
            if event is None:
                continue
            group = str(piece["args"].get("Process Group Name", ""))
            key = (event, group, seen[event, group])
            seen[event, group] += 1
            shortest[key] = min(shortest.get(key, float("inf")), piece["dur"] * 1e-6)
    timed: Timed = defaultdict(list)
    for (matched, _, _), seconds in shortest.items():
        timed[matched].append(seconds)
    return timed


def _comm_event(piece: Mapping[str, Any], gpus_per_node: int) -> CommEvent | None:
    args = piece.get("args", {})
    if piece.get("cat") != "kernel" or args.get("Collective name") not in _COLLECTIVES:
        return None
    collective, side = _COLLECTIVES[args["Collective name"]]
    size = int(args.get(f"{side} msg nelems", 0)) * _NCCL_BYTES.get(
        str(args.get("dtype", "")).lower(), 0
    )
    group_size = 2 if collective == "send_recv" else int(args.get("Group size", 0))
    if not size or group_size < 2:
        return None
    ranks = args.get("Process Group Ranks")
    per_node = min(group_size, _ranks_per_node(ranks, group_size, gpus_per_node))
    return CommEvent(
        collective=collective,
        bytes=size,
        group_size=group_size,
        per_node=per_node,
        level=int(per_node < group_size),
    )


def _ranks_per_node(ranks: object, group_size: int, gpus_per_node: int) -> int:
    if isinstance(ranks, str) and "..." not in ranks:
        ranks = json.loads(ranks)
    if not isinstance(ranks, list):
        return min(group_size, gpus_per_node)
    first = ranks[0] // gpus_per_node
    return sum(rank // gpus_per_node == first for rank in ranks)
