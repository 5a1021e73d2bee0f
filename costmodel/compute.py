"""Seconds of compute events on one device, many at once.

Every formula is a share of the device's peak or bandwidth, with constants from costmodel.constants. Prices are of
kernels alone; host launches, overlap and frameworks' repetitions are the business of costmodel.pricing, except for the
elementwise factor, which says how well a framework fuses.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.constants import Constants
from costmodel.events import ComputeEvent
from costmodel.frameworks import Framework
from costmodel.lanes import has_lanes, smooth_highest
from costmodel.spec import DeviceSpec

_Array = NDArray[Any]

# Thread-block tiles (rows, columns) and their speed relative to the largest; CUTLASS profiler on A100, rounded.
_TILES = np.array(
    [
        (256, 128, 1.0),
        (128, 256, 1.0),
        (128, 128, 0.93),
        (256, 64, 0.85),
        (64, 256, 0.85),
        (128, 64, 0.80),
        (64, 128, 0.80),
        (64, 64, 0.62),
    ]
)
_SPLITS = (1, 2, 3, 4)
_NOMINAL_PROLOGUE = 130.0  # of the choice between splits only; the price uses the constant
# Elements to whose multiples a matmul's N and K must be sized (16 bytes, cuBLAS tensor-core alignment rule).
_ALIGNED = {"fp32": 1, "tf32": 4, "fp8": 16}
# Bytes moved per element of a token's width by one fused 16-bit kernel, forward and backward: a norm reads and writes
# its row (4) and reads two, writes one (6); a residual addition reads two, writes one (6) and adds two gradients
# (6 + 1); an activation reads its inputs, writes its output (2 each), and backward reads inputs and gradient, writes
# the inputs' gradient; a rotation reads and writes (4).
_ROW_BYTES: Mapping[tuple[str, str], float] = {
    ("norm", "forward"): 4.0,
    ("norm", "backward"): 6.0,
    ("residual", "forward"): 6.0,
    ("residual", "backward"): 7.0,
    ("rope", "forward"): 4.0,
    ("rope", "backward"): 4.0,
    ("embedding", "forward"): 4.0,
    ("embedding", "backward"): 8.0,
    ("router", "forward"): 12.0,
    ("router", "backward"): 12.0,
}


@dataclass(frozen=True, slots=True)
class _Batch:
    """Events of one op as rows of sizes: each event has as many rows as its sizes have lanes.

    Attributes:
        events: The events.
        shapes: (rows, sizes).
        lanes: Rows of each event.
    """

    events: Sequence[ComputeEvent]
    shapes: _Array
    lanes: int

    @classmethod
    def of(cls, events: Sequence[ComputeEvent]) -> "_Batch":
        """Return the rows of events with equally many sizes."""
        if not any(has_lanes(size) for event in events for size in event.shape):
            return cls(events, np.array([event.shape for event in events], float), 1)
        full = np.broadcast_arrays(*(size for event in events for size in event.shape))
        sizes = np.array(full, float).reshape(len(events), -1, len(full[0]))
        return cls(events, sizes.swapaxes(1, 2).reshape(-1, sizes.shape[1]), sizes.shape[2])

    def columns(self) -> list[_Array]:
        """Return each size as a column (rows, 1)."""
        return [_column(column) for column in self.shapes.T]

    def each(self, values: Iterable[float]) -> _Array:
        """Return one value per event, which may have lanes of constants, as (rows, lanes of constants or 1).

        There is one row where the events agree, which stands for all.
        """
        stacked = np.array(list(values), float)
        rows = stacked.reshape(-1, 1) if stacked.ndim == 1 else stacked
        if (rows == rows[0]).all():
            return rows[:1]
        return np.repeat(rows, self.lanes, axis=0)

    def backward(self) -> _Array:
        """Return 1 for backward events, 0 for forward ones, as a column."""
        return self.each(event.direction == "backward" for event in self.events)

    def element_bytes(self) -> _Array:
        """Return the bytes of an element as a column."""
        return self.each(_element_bytes(event.dtype) for event in self.events)


class ComputePricer:
    """Prices compute events of one device under one framework.

    Args:
        device: The device.
        framework: Fusion of elementwise kernels, generation of attention kernels.
        constants: The constants of the model.
    """

    def __init__(self, device: DeviceSpec, framework: Framework, constants: Constants) -> None:
        self._device, self._framework, self._constants = device, framework, constants
        self._bandwidth = device.bandwidth_bytes_per_s * constants["memory.efficiency"]
        self._elementwise = constants.of("elementwise", framework.elementwise)
        self._activation = constants.of("activation", framework.elementwise)
        self._methods: Mapping[str, Callable[[_Batch], Any]] = {
            "matmul": self._matmuls,
            "grouped_matmul": self._matmuls,
            "flash_attention": self._flash,
            "standard_attention": self._standard,
            "activation": self._activations,
            "cross_entropy": self._losses,
            "accumulate": self._streams,
            "optimizer": self._streams,
            "cast": self._streams,
            "permute": self._permutes,
            "opaque": self._opaque,
        }

    def seconds(self, events: Sequence[ComputeEvent]) -> list[float]:
        """Return the seconds of each event, in order."""
        by_op: dict[str, list[int]] = {}
        for index, event in enumerate(events):
            by_op.setdefault(event.op, []).append(index)
        result: list[float] = [0.0] * len(events)
        for op, indices in by_op.items():
            batch = _Batch.of([events[index] for index in indices])
            prices = self._methods.get(op, self._rows)(batch)
            for index, price in zip(indices, _by_event(prices, batch.lanes), strict=True):
                result[index] = price
        return result

    def peak(self, dtype: str) -> float:
        """Return the sustained FLOP/s of long matmuls in ``dtype``."""
        peaks, constants = self._device.peak_flops, self._constants
        if dtype == "fp8" and "fp8" in peaks:
            return peaks["fp8"] * constants.of_device("matmul.ceiling8", self._device)
        if dtype in ("fp32", "tf32"):
            nominal = peaks.get(dtype, peaks.get("fp32", 0.0))
            return nominal * constants.of_device("matmul.ceiling32", self._device)
        nominal = peaks.get("bf16", peaks.get("fp16", peaks.get("fp32", 0.0)))
        return nominal * constants.of_device("matmul.ceiling", self._device)

    def _matmuls(self, batch: _Batch) -> Any:
        """Price matmuls (M, N, K) and grouped ones (experts, M, N, K) by their best tile.

        Whole waves of tiles run on the multiprocessors; each tile pays a prologue in units of K. Time is the
        rounded maximum of that and of moving operands and result once.
        """
        *groups, m, n, k = batch.columns()
        count = groups[0] if groups else np.ones_like(m)
        seconds = self._tiled((count, m, n, k), batch)
        grouped = batch.each(event.op == "grouped_matmul" for event in batch.events)
        slow = 1.0 + grouped * (1.0 / np.asarray(self._constants["matmul.grouped"]) - 1.0)
        return seconds * slow + np.asarray(self._constants["kernel.gap"])

    def _tiled(self, sizes: tuple[_Array, _Array, _Array, _Array], batch: _Batch) -> Any:
        """Return the seconds of matmuls given as columns of groups, M, N, K, in the events' dtypes."""
        groups, m, n, k = sizes
        constants, sms = self._constants, float(self._device.multiprocessors)
        dtypes = [event.dtype for event in batch.events]
        peak = batch.each(self.peak(dtype) for dtype in dtypes)
        width = batch.element_bytes()
        work, depth = _best_tiles(groups, m, n, k, sms)
        step = batch.each(_ALIGNED.get(dtype, 8) for dtype in dtypes)
        awkward = ((n % step > 0) | (k % step > 0)).astype(float)
        slow = 1.0 + awkward * (np.asarray(constants["matmul.misaligned"]) - 1.0)
        busy = work * (depth + np.asarray(constants["matmul.prologue"])) * slow / peak
        moved = groups * (m * k + n * k + m * n) * width / self._bandwidth
        return _rounded_maximum(busy, moved)

    def _flash(self, batch: _Batch) -> Any:
        """Price flash attention (batch, heads, kv_heads, queries, keys, qk_dim, v_dim, causal, window).

        FLOPs are 2 queries keys (qk_dim + v_dim), half of them under a causal mask (FlashAttention-2,
        arXiv 2307.08691), 2.5 times in the backward, which recomputes the scores.
        """
        samples, heads, _, queries, keys, qk, v, causal, window = batch.columns()
        backward = batch.backward()
        constants = self._constants
        context = np.where(causal > 0, keys / 2.0, keys)
        # A window w lets a token see w keys; below 2 w the causal triangle is the shorter.
        context = np.where(window > 0, np.minimum(context, window), context)
        flops = 2.0 * samples * heads * queries * context * (qk + v) * (1.0 + 1.5 * backward)
        share = constants.of_device(f"attention.{self._framework.attention}", self._device)
        speed = self.nominal16() * np.asarray(share)
        speed = speed * (1.0 - backward + backward * np.asarray(constants["attention.backward"]))
        reach = np.where(window > 0, np.minimum(keys, window), keys)
        short = 1.0 + np.asarray(constants["attention.short"]) / reach
        padded = np.where(qk % 64 > 0, np.ceil(qk / 64) * 64 / qk, 1.0)
        narrow = (128.0 / np.clip(qk, 32, 128)) ** np.asarray(constants["attention.narrow"])
        return flops * padded * short * narrow / speed + np.asarray(constants["kernel.gap"])

    def nominal16(self) -> float:
        """Return the nominal dense 16-bit peak in FLOP/s."""
        peaks = self._device.peak_flops
        return peaks.get("bf16", peaks.get("fp16", peaks.get("fp32", 0.0)))

    def _standard(self, batch: _Batch) -> Any:
        """Price unfused attention: batched matmuls and passes over the full score matrix.

        Forward are scores Q K^T (queries, keys, qk_dim) and their product with V (queries, v_dim, keys); backward
        two of each kind. Scores are not halved under a causal mask. A fused scale-mask-softmax-dropout reads and
        writes 9 bytes per 16-bit score forward, 11 backward, if Megatron's kernel takes the shape.
        """
        samples, heads, _, queries, keys, qk, v, _, _ = batch.columns()
        backward, constants = batch.backward(), self._constants
        count = samples * heads
        qk_steps, v_steps = (
            np.where(width % 8, width, np.ceil(width / 64) * 64) for width in (qk, v)
        )
        products = self._tiled((count, queries, keys, qk_steps), batch)
        products = products + self._tiled((count, queries, v_steps, keys), batch)
        batched = products * (1.0 + backward) / np.asarray(constants["attention.batched"])
        refused = ((count % 4 > 0) | (keys > 2048)).astype(float)
        slow = 1.0 + refused * (np.asarray(constants["attention.unfused"]) - 1.0)
        width = batch.element_bytes()
        passes = (9.0 + 2.0 * backward) * width / 2.0 * count * queries * keys
        moved = passes * slow * np.asarray(constants["attention.scores"]) / self._bandwidth
        return np.asarray(batched + moved + 3.0 * np.asarray(constants["kernel.gap"]))

    def _activations(self, batch: _Batch) -> Any:
        """Price activations (tokens, inputs, outputs): read inputs, write outputs, twice in backward."""
        tokens, inputs, outputs = batch.columns()
        values = tokens * (inputs * (1.0 + batch.backward()) + outputs)
        moved = values * batch.element_bytes() * self._activation / self._bandwidth
        return moved + np.asarray(self._constants["kernel.gap"])

    def _rows(self, batch: _Batch) -> Any:
        """Price row-wise kernels (tokens, width) by the bytes of ``_ROW_BYTES``."""
        tokens, elements = batch.columns()
        per_element = batch.each(_ROW_BYTES[event.op, event.direction] for event in batch.events)
        values = tokens * elements * per_element * batch.element_bytes() / 2.0
        split = batch.each(event.op == "rope" for event in batch.events)
        factor = self._elementwise + split * (self._activation - np.asarray(self._elementwise))
        moved = values * factor / self._bandwidth
        return moved + np.asarray(self._constants["kernel.gap"])

    def _losses(self, batch: _Batch) -> Any:
        """Price a cross entropy (tokens, local vocabulary), forward and backward together."""
        tokens, width = batch.columns()
        name = "loss.fused" if self._framework.fused_loss else "loss.bytes"
        return tokens * width * np.asarray(self._constants[name]) / self._bandwidth

    def _streams(self, batch: _Batch) -> Any:
        """Price plain streams (bytes moved,), which no fusion changes."""
        return batch.columns()[0] / self._bandwidth

    def _permutes(self, batch: _Batch) -> Any:
        """Price the permutations of routed tokens (bytes of one pass,)."""
        moved = batch.columns()[0]
        return moved * np.asarray(self._constants["moe.permute"]) / self._bandwidth

    def _opaque(self, batch: _Batch) -> Any:
        """Price traced operators (FLOPs, bytes moved) by a roofline."""
        flops, moved = batch.columns()
        peak = batch.each(self.peak(event.dtype) for event in batch.events)
        return _rounded_maximum(flops / peak, moved / self._bandwidth)


def _best_tiles(
    groups: _Array, m: _Array, n: _Array, k: _Array, multiprocessors: float
) -> tuple[_Array, _Array]:
    """Return FLOPs per unit of K of the waves of the best tile, and the depth in K that each tile walks.

    Few tiles may split K among multiprocessors (split-K), each part paying its own prologue.
    """
    rows, columns, speed = (column.reshape(-1, 1) for column in _TILES.T)
    tiles = groups.T * np.ceil(m.T / rows) * np.ceil(n.T / columns)
    cost: _Array = np.full_like(k, np.inf)
    best = (k, k)
    for split in _SPLITS:
        waves = np.ceil(tiles * split / multiprocessors)
        work = _column((waves * (multiprocessors * rows * columns * 2.0 / speed)).min(axis=0))
        depth = k / split
        trial = work * (depth + _NOMINAL_PROLOGUE * (1 + (split > 1)))
        better = trial < cost
        cost = np.where(better, trial, cost)
        best = (np.where(better, work, best[0]), np.where(better, depth, best[1]))
    return best


def _column(values: _Array) -> _Array:
    """Shape one value per event as a column; lanes of constants broadcast along the row."""
    return values.reshape(-1, 1)


def _by_event(prices: _Array, lanes: int) -> list[Any]:
    """Split (rows, lanes of constants) by event: into numbers, or arrays where there are lanes of either sort."""
    if lanes > 1:
        return list(prices[:, 0].reshape(-1, lanes))
    return prices[:, 0].tolist() if prices.shape[1] == 1 else list(prices)


def _rounded_maximum(left: Any, right: Any) -> Any:
    return smooth_highest(left, right)


def _element_bytes(dtype: str) -> float:
    return {"fp32": 4.0, "tf32": 4.0, "fp8": 1.0}.get(dtype, 2.0)
