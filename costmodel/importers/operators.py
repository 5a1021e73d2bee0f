"""Operator and collective tables in CSV (scenarios/profiles/README.md) as rows and as unique events.

A row is one operator of a GPT layer on a group of ``tp`` GPUs. Where its kernel is one matrix product and its time holds
no collective, it is also a measured matmul event: the two GEMMs that column parallelism cuts in the forward direction, the
two that row parallelism cuts in the backward direction (Shoeybi et al. 2019, arXiv 1909.08053, figure 3), all four at tp 1.
"""

import csv
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.errors import InputError
from costmodel.events import Collective, CommEvent, ComputeEvent, Event
from costmodel.table import Entry, Source, Table
from costmodel.units import MIB

# Width of output and input of each GEMM in units of the hidden width (feed-forward 4 x hidden).
GEMM_WIDTHS: Mapping[str, tuple[int, int]] = {
    "enc-attention-qkv": (3, 1),
    "enc-attention-dense": (1, 1),
    "enc-MLP-GEMM-1": (4, 1),
    "enc-MLP-GEMM-2": (1, 4),
}
_COLUMN = {0: ("enc-attention-qkv", "enc-MLP-GEMM-1"), 1: ("enc-attention-dense", "enc-MLP-GEMM-2")}
_COLLECTIVES: Mapping[str, Collective] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "send_recv": "send_recv",
}

Matmul = tuple[int, int, int]
"""Sizes (M, N, K) of a product of M x K and K x N."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorKey:
    """What distinguishes the rows of one profile."""

    model: str
    op: str
    tp: int
    micro_batch: int
    algo: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """One measured operator.

    Attributes:
        seq, hidden, heads: Of the model.
        forward_s, backward_s: Seconds, a tensor-parallel collective of the operator inside.
        weight_gradient_inside: Whether the backward holds the weight gradient.
        input_bytes, output_bytes: What would cross a pipeline boundary before and behind it.
        weight_bytes: fp16 weights of one rank.
        activation_bytes: What one forward alone adds to the allocated memory.
        reserved_forward_bytes, reserved_backward_bytes: What each pass alone adds to the reserved memory.
    """

    profile: str
    key: OperatorKey
    seq: int
    hidden: int
    heads: int
    forward_s: float
    backward_s: float
    weight_gradient_inside: bool
    input_bytes: float
    output_bytes: float
    weight_bytes: float
    activation_bytes: float = 0.0
    reserved_forward_bytes: float = 0.0
    reserved_backward_bytes: float = 0.0

    @property
    def matmul(self) -> Matmul | None:
        """(M, N, K) of the forward product on one rank, None if the operator is no GEMM."""
        if self.key.op not in GEMM_WIDTHS:
            return None
        outputs, inputs = (width * self.hidden for width in GEMM_WIDTHS[self.key.op])
        tokens = self.seq * self.key.micro_batch
        if self.column_parallel:
            return tokens, outputs // self.key.tp, inputs
        return tokens, outputs, inputs // self.key.tp

    @property
    def column_parallel(self) -> bool:
        """Whether tensor parallelism cuts the outputs; then the backward holds the all-reduce."""
        return self.key.op in _COLUMN[self.key.algo]

    def reduces(self, direction: str) -> bool:
        """Return whether the time of a GEMM in ``direction`` holds an all-reduce."""
        return self.key.tp > 1 and self.column_parallel == (direction == "backward")


def matmul_flops(sizes: Matmul) -> float:
    """Return the FLOPs of a product of M x K and K x N."""
    return 2.0 * sizes[0] * sizes[1] * sizes[2]


def read_operators(path: Path, profile: str | None = None) -> tuple[OperatorRow, ...]:
    """Return the usable rows of an operator table, of one profile or of all.

    The forward of the first operator of a process (``warmup_outlier``) holds the set-up of libraries: half of
    the next larger micro-batch's takes its place.

    Raises:
        InputError: If the file cannot be read or lacks a column.
    """
    all_lines = _lines(path)
    try:
        lines = [row for row in all_lines if profile in (None, row["profile"])]
        usable = [row for row in lines if row["flag"] != "failed"]
        rows = {(row["profile"], _key(row)): row for row in usable}
        return tuple(_row(row, rows) for row in usable)
    except (KeyError, ValueError) as error:
        raise _lacking("operator", path, error) from error


def gpu_types(path: Path) -> dict[str, str]:
    """Return the profiles of an operator table with their GPU types.

    Raises:
        InputError: If the file cannot be read or lacks a column.
    """
    lines = _lines(path)
    try:
        return {row["profile"]: row["gpu_type"] for row in lines}
    except KeyError as error:
        raise _lacking("operator", path, error) from error


def collective_sources(path: Path) -> tuple[str, ...]:
    """Return the sources of a collective table.

    Raises:
        InputError: If the file cannot be read or lacks a column.
    """
    lines = _lines(path)
    try:
        return tuple(dict.fromkeys(row["source"] for row in lines))
    except KeyError as error:
        raise _lacking("collective", path, error) from error


def _lacking(kind: str, path: Path, error: KeyError | ValueError) -> InputError:
    if isinstance(error, KeyError):
        rule = f"is missing: every table of {kind}s has this column"
        return InputError(rule, file=str(path), key=str(error.args[0]))
    return InputError("holds no number where one is needed", file=str(path), value=str(error))


def _lines(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", file=str(path)) from error


def _key(row: Mapping[str, str]) -> OperatorKey:
    return OperatorKey(
        model=row["model"],
        op=row["op"],
        tp=int(row["tp"]),
        micro_batch=int(row["micro_batch"]),
        algo=int(row["algo"]),
    )


def _row(
    row: Mapping[str, str], rows: Mapping[tuple[str, OperatorKey], Mapping[str, str]]
) -> OperatorRow:
    key, forward_us = _key(row), float(row["forward_us"])
    if row["flag"] == "warmup_outlier":
        double = rows[row["profile"], replace(key, micro_batch=2 * key.micro_batch)]
        forward_us = float(double["forward_us"]) / 2
    return OperatorRow(
        profile=row["profile"],
        key=key,
        seq=int(row["seq"]),
        hidden=int(row["hidden"]),
        heads=int(row["heads"]),
        forward_s=forward_us * 1e-6,
        backward_s=float(row["backward_us"]) * 1e-6,
        weight_gradient_inside=row["bwd_has_weight_grad"] != "no",
        input_bytes=float(row["input_mb"]) * MIB,
        output_bytes=float(row["output_mb"]) * MIB,
        weight_bytes=float(row["weights_mb"]) * MIB,
        activation_bytes=float(row.get("activations_mb") or 0) * MIB,
        reserved_forward_bytes=float(row.get("reserved_fwd_mb") or 0) * MIB,
        reserved_backward_bytes=float(row.get("reserved_bwd_mb") or 0) * MIB,
    )


def pure_matmuls(rows: Iterable[OperatorRow]) -> Iterator[tuple[Matmul, float]]:
    """Yield sizes and seconds of every time that is one product without a collective."""
    for row in rows:
        sizes = row.matmul
        if sizes is None:
            continue
        if not row.reduces("forward"):
            yield sizes, row.forward_s
        if not row.reduces("backward") and not row.weight_gradient_inside:
            yield (sizes[0], sizes[2], sizes[1]), row.backward_s


def matmul_table(rows: Iterable[OperatorRow], source: Source) -> Table:
    """Return the rows that are one product as measured fp16 matmul events, median over equal shapes."""
    seconds: dict[Event, list[float]] = defaultdict(list)
    for sizes, time in pure_matmuls(rows):
        seconds[ComputeEvent(op="matmul", shape=sizes, dtype="fp16")].append(time)
    return _table(seconds, source)


def collective_table(path: Path, names: Iterable[str], device: str, *, thin: bool = False) -> Table:
    """Return measured collectives of the named sources; where two price an event the first wins.

    With ``thin`` only sizes of at most three significant bits are kept; those between are interpolated as well.

    Raises:
        InputError: If the file cannot be read or lacks a column.
    """
    by_source: dict[str, dict[Event, list[float]]] = {name: defaultdict(list) for name in names}
    lines = _lines(path)
    try:
        for row in lines:
            known = row["source"] in by_source and row["collective"] in _COLLECTIVES
            if known and row["bytes"] and not (thin and _crooked(int(row["bytes"]))):
                by_source[row["source"]][_comm_event(row)].append(float(row["seconds"]))
    except (KeyError, ValueError) as error:
        raise _lacking("collective", path, error) from error
    return Table.merge(
        _table(seconds, Source(device=device, origin=f"{path.name}, source {name}"))
        for name, seconds in by_source.items()
    )


def _crooked(size: int) -> bool:
    """Whether a size has more than three significant bits."""
    return size >> (size.bit_length() - 3) << (size.bit_length() - 3) != size


def _comm_event(row: Mapping[str, str]) -> CommEvent:
    size, inter = int(row["group_size"]), row["span"] == "inter_node"
    return CommEvent(
        collective=_COLLECTIVES[row["collective"]],
        bytes=int(row["bytes"]),
        group_size=size,
        per_node=1 if inter else size,
        level=int(inter),
    )


def _table(seconds: Mapping[Event, list[float]], source: Source) -> Table:
    entries = tuple(
        Entry(event=event, seconds=statistics.median(times), samples=len(times))
        for event, times in seconds.items()
    )
    return Table(sources=(source,), entries=entries)
