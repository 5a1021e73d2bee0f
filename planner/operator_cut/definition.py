"""Aceso's cost of a plan on an operator table, as its planner defines it (Liu et al., EuroSys'24; read from its output).

Time of a stage: forward and backward of its operators, the forward of recomputed ones once more, and the transfers of its input and
output. Iteration: the slowest stage for all micro-batches but one, and every stage once. Memory of a stage in MiB: eight times its
weights, the kept activations of every micro-batch in flight, the largest recomputed run, and a reserve. All its numbers are kept as
they are (a transfer counts a MiB as 1/1000 GiB), since plans are compared under them; tests hold the definition to the shipped plans.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.errors import InputError
from costmodel.events import CommEvent
from costmodel.importers.operators import OperatorKey, OperatorRow
from costmodel.table import Table
from costmodel.units import MIB

HEAD = ("encoder-embedding",)
LAYER = (
    "enc-1st-layernorm",
    "enc-attention-qkv",
    "enc-attention-score",
    "enc-attention-softmax",
    "enc-attention-dropout",
    "enc-attention-context",
    "enc-attention-dense",
    "enc-post-attention-dropout",
    "enc-2nd-layernorm",
    "enc-MLP-GEMM-1",
    "enc-MLP-gelu",
    "enc-MLP-GEMM-2",
    "enc-post-MLP-dropout",
)
TAIL = ("final-layernorm", "gpt-post-process")
# Softmax works in place of the scores, dropout keeps its mask beside: shared buffers, in Aceso's accounting.
_KEPT = {"enc-attention-softmax": 0.0, "enc-attention-dropout": 1.5}
_STATES = 8
_LARGEST_TRANSFER_MIB = 1024

Floats = NDArray[np.float64]
Ints = NDArray[np.intp] | int


@dataclass(frozen=True, kw_only=True)
class Operators:
    """All operators of a model at one tensor-parallel size and micro-batch of its operators, as columns.

    Seconds and MiB; ``layers`` times LAYER between HEAD and TAIL.
    """

    layers: int
    forward: Floats
    backward: Floats
    input: Floats
    output: Floats
    weights: Floats
    kept: Floats
    reserved_forward: Floats
    reserved_backward: Floats
    receive: Floats
    send: Floats

    @property
    def count(self) -> int:
        """Number of operators."""
        return len(self.forward)

    @cached_property
    def starts_layer(self) -> NDArray[np.bool_]:
        """Which operators are the first norm of a layer."""
        names = (*HEAD, *(LAYER * self.layers), *TAIL)
        return np.array([name == LAYER[0] for name in names])

    def seconds(self, first: int, end: int, recomputed: Sequence[bool]) -> float:
        """Return a stage's time of one micro-batch."""
        again = self.forward[first:end][np.asarray(recomputed, dtype=bool)].sum()
        busy = self.forward[first:end].sum() + self.backward[first:end].sum() + again
        return float(busy + self.receive[first] + self.send[end - 1])

    def memory_mib(self, first: int, end: int, recomputed: Sequence[bool], in_flight: int) -> float:
        """Return a stage's memory, ``in_flight`` micro-batches kept."""
        saved, peak = self._saved(first, end, recomputed)
        kept = self.input[first] + self.kept[first:end].sum() - saved
        weights = float(self.weights[first:end].sum())
        return float(_STATES * weights + kept * in_flight + peak + self.reserve_mib(first, end))

    @cached_property
    def _sums(self) -> Mapping[str, Floats]:
        columns = {
            "busy": self.forward + self.backward,
            "kept": self.kept,
            "weights": self.weights,
        }
        return {name: np.concatenate([[0.0], np.cumsum(v)]) for name, v in columns.items()}

    def _between(self, name: str, first: Ints, end: Ints) -> Floats:
        sums = self._sums[name]
        return np.asarray(sums[end] - sums[first])

    def plain_seconds(self, first: Ints, end: Ints) -> Floats:
        """Return the times of stages without recomputation."""
        transfers = self.receive[first] + self.send[np.asarray(end) - 1]
        return np.asarray(self._between("busy", first, end) + transfers)

    def plain_memory_mib(self, first: Ints, end: Ints, in_flight: int) -> Floats:
        """Return the memory of stages without recomputation."""
        kept = self.input[first] + self._between("kept", first, end)
        states = _STATES * self._between("weights", first, end)
        return np.asarray(states + kept * in_flight + self.reserve_mib(first, end))

    @cached_property
    def _reserves(self) -> tuple["_Largest", "_Largest"]:
        return _Largest(self.reserved_forward), _Largest(self.reserved_backward)

    def reserve_mib(self, first: Ints, end: Ints) -> Floats:
        """Return the allocator's reserve of stages: of each pass the operator but the last that reserves most."""
        weights, last = self._between("weights", first, end), np.asarray(end) - 1
        passes = sum(largest.between(first, last) for largest in self._reserves)
        return np.maximum(passes, weights)

    def _saved(self, first: int, end: int, recomputed: Sequence[bool]) -> tuple[float, float]:
        """Return what recomputation does not keep, and its largest run."""
        saved = run = peak = 0.0
        for at in range(first, end - 1):
            if not (recomputed[at - first] and recomputed[at + 1 - first]):
                run = 0.0
                continue
            ends = bool(self.starts_layer[at + 1])
            saved += 0.0 if ends else float(self.kept[at])
            run += float(self.kept[at])
            peak = max(peak, run)
            run = 0.0 if ends else run
        return saved, peak


class _Largest:
    """The largest of any range of values, zero for an empty one: of the two overlapping powers of two that cover it."""

    def __init__(self, values: Floats) -> None:
        self._levels = [values]
        while len(values) > 1 << len(self._levels):
            half = 1 << len(self._levels) - 1
            last = self._levels[-1]
            self._levels.append(np.maximum(last, np.append(last[half:], np.zeros(half))))
        self._stacked = np.array(self._levels)

    def between(self, first: Ints, end: Ints) -> Floats:
        """Return the largest values from ``first`` to ``end`` (exclusive)."""
        length = np.asarray(end) - first
        level = np.frexp(np.maximum(length, 1))[1] - 1
        last = np.maximum(end - (1 << level), 0)
        largest = np.maximum(self._stacked[level, first], self._stacked[level, last])
        return np.where(length > 0, largest, 0.0)


def operators(
    rows: Mapping[OperatorKey, OperatorRow],
    transfers: Table,
    model: str,
    layers: int,
    tp: int,
    micro_batch: int,
) -> Operators:
    """Return a model's operators at one tensor-parallel size and micro-batch.

    Raises:
        InputError: If a row is missing.
    """
    names = (*HEAD, *(LAYER * layers), *TAIL)
    found: dict[str, OperatorRow] = {}
    for name in dict.fromkeys(names):
        key = OperatorKey(model=model, op=name, tp=tp, micro_batch=micro_batch)
        if key not in rows:
            raise InputError("is not in the operator table", key="operator", value=key)
        found[name] = rows[key]
    listed = [found[name] for name in names]
    size = {name: (row.input_bytes / MIB, row.output_bytes / MIB) for name, row in found.items()}
    cost = {name: tuple(transfer_seconds(x, transfers) for x in s) for name, s in size.items()}
    return Operators(
        layers=layers,
        forward=np.array([row.forward_s for row in listed]),
        backward=np.array([row.backward_s for row in listed]),
        input=np.array([size[name][0] for name in names]),
        output=np.array([size[name][1] for name in names]),
        weights=np.array([row.weight_bytes / MIB for row in listed]),
        kept=np.array([r.activation_bytes / MIB * _KEPT.get(r.key.op, 1.0) for r in listed]),
        reserved_forward=np.array([row.reserved_forward_bytes / MIB for row in listed]),
        reserved_backward=np.array([row.reserved_backward_bytes / MIB for row in listed]),
        receive=np.array([cost[name][0] for name in names]),
        send=np.array([cost[name][1] for name in names]),
    )


def transfer_seconds(mib: float, transfers: Table, *, inter: bool = False) -> float:
    """Return Aceso's seconds of a pipeline transfer: at the rate measured for half the power of two below it.

    Raises:
        InputError: If the table holds no such transfer.
    """
    if mib <= 0:
        return 0.0
    halved: int = 1 << max(int(math.log2(max(mib, 2.0))) - 1, 0)
    measured_mib = min(halved, _LARGEST_TRANSFER_MIB)
    event = CommEvent(
        collective="send_recv",
        bytes=measured_mib * MIB,
        group_size=2,
        per_node=1 if inter else 2,
        level=int(inter),
    )
    price = transfers.lookup(event)
    if price is None:
        raise InputError("is not in the collective table", key="transfer", value=event.key)
    return mib / (measured_mib / 1024 / price.seconds) * 1e-3


def iteration_seconds(stage_seconds: Sequence[float], microbatches: int) -> float:
    """Return Aceso's iteration: the slowest stage for all micro-batches but one, and every stage once."""
    return max(stage_seconds) * (microbatches - 1) + sum(stage_seconds)
