"""What every stage costs for every range of layers it could hold: tables over pairs of cut positions.

Stage s holds the layers between cut s and cut s + 1. Each cut has a window of positions; a table has one integer for
each stage, position of its lower cut and position of its upper cut. Recomputation is not a decision of its own:
where a range does not fit, the fewest layers that make it fit recompute, since more never helps the time.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from planner.coefficients import Coefficients, Ints, Linear
from planner.windows import Windows

Mask = NDArray[np.bool_]

NEVER = np.int64(1) << np.int64(60)
"""Stands for "does not fit"; sums of a few still fit 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTables:
    """Integers by stage, position of the lower cut, position of the upper cut (offsets into the windows).

    Attributes:
        windows: Positions of the cuts.
        legal: Whether the range has at least one layer and fits with some recomputation.
        recomputed: Fewest recomputed layers.
        forward, backward, weight, finish: Nanoseconds; meaningless where not legal.
    """

    windows: Windows
    legal: Mask
    recomputed: Ints
    forward: Ints
    backward: Ints
    weight: Ints
    finish: Ints

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.legal)

    def by_range(self, inside: Mask) -> "StageTables":
        """Return tables over ranges ``inside`` the windows from these, which are over numbers of layers.

        Where a range has as many layers as the one before it, shifted by a layer, it costs as much: the tables are
        views of one row for each stage.
        """
        width, low, most = inside.shape[1], self.windows.low, self.legal.shape[2] - 1
        sizes = (low[1:] - low[:-1])[:, None] + np.arange(1 - width, width)
        known = np.clip(sizes, 0, most)

        def of(values: NDArray[Any]) -> NDArray[Any]:
            return _shifted(np.take_along_axis(values[:, 0], known, axis=1), width)

        return StageTables(
            windows=self.windows,
            legal=inside & of(self.legal) & _shifted(sizes == known, width),
            recomputed=of(self.recomputed),
            forward=of(self.forward),
            backward=of(self.backward),
            weight=of(self.weight),
            finish=of(self.finish),
        )


def _shifted(rows: NDArray[Any], width: int) -> NDArray[Any]:
    """Return the view with entry ``width - 1 - i + j`` of a row at (row, i, j)."""
    row, entry = rows.strides
    shape = (len(rows), width, width)
    return as_strided(rows[:, width - 1 :], shape, (row, -entry, entry), writeable=False)


def stage_tables(given: Coefficients, windows: Windows) -> StageTables:
    """Return the tables of a strategy with one chunk a rank."""
    layers = len(given.layer_kinds)
    width = int((windows.high - windows.low).max()) + 1
    positions = np.minimum(windows.low[:, None] + np.arange(width), layers)
    inside = positions <= windows.high[:, None]
    legal = inside[:-1, :, None] & inside[1:, None, :]
    if given.kinds > 1:
        start, stop = positions[:-1, :, None], positions[1:, None, :]
        return _Builder(given, start, stop, legal & (stop > start)).tables(windows)
    # With one kind only the number of layers matters: price each number once.
    most = int((windows.high[1:] - windows.low[:-1]).max(initial=1))
    numbers = np.broadcast_to(np.arange(most + 1), (given.shape.ranks, 1, most + 1))
    return (
        _Builder(given, np.zeros_like(numbers), numbers, numbers > 0)
        .tables(windows)
        .by_range(legal)
    )


class _Builder:
    """Evaluates linear functions over all ranges at once."""

    def __init__(self, given: Coefficients, start: Ints, stop: Ints, legal: Mask) -> None:
        self.given, self.stages = given, given.shape.ranks
        self.start, self.stop, self.legal = start, stop, legal
        self.counts = given.count_table
        self.held = self.counts[stop] - self.counts[start]
        self.first = np.arange(self.stages) == 0
        self.last = np.arange(self.stages) == self.stages - 1

    def tables(self, windows: Windows) -> StageTables:
        """Return all tables."""
        given = self.given
        recomputed = self._recomputed()
        again = None
        if recomputed.any():
            again = self.counts[self.start + recomputed] - self.counts[self.start]
        finish = [self._value(item, again) for item in given.finish]
        nothing = np.zeros_like(recomputed)
        return StageTables(
            windows=windows,
            legal=self.legal,
            recomputed=recomputed,
            forward=self._value(given.forward, again),
            backward=self._value(given.backward, again),
            weight=self._value(given.weight, again) if any(given.weight.layer) else nothing,
            finish=given.fixed_ns + (np.maximum.reduce(finish) if finish else nothing),
        )

    def _value(self, linear: Linear, again: Ints | None) -> Ints:
        ends = linear.fixed + linear.first * self.first + linear.last * self.last
        value = self.held @ np.array(linear.layer, dtype=np.int64) + ends[:, None, None]
        if again is not None and any(linear.recomputed):
            value = value + again @ np.array(linear.recomputed, dtype=np.int64)
        return np.asarray(value, dtype=np.int64)

    def _recomputed(self) -> Ints:
        """Return the fewest recomputed layers of every range; mark the ranges that fit with none."""
        size = self.stop - self.start
        fewest = np.where(self.legal, size if self.given.recompute_all else 0, np.int64(0))
        over = [self._over(index) for index in range(len(self.given.memory))]
        if self.given.recompute_all:
            for index, excess in enumerate(over):
                rest = excess - self._savings(index, self.stop) + self._savings(index, self.start)
                self.legal = self.legal & (rest + self.given.memory[index].recompute_once <= 0)
            return fewest
        needed: Mask = np.logical_or.reduce([excess > 0 for excess in over]) & self.legal
        if not needed.any():
            return fewest
        for index, excess in enumerate(over):
            need = excess + self.given.memory[index].recompute_once
            fewest = np.where(needed, np.maximum(fewest, self._fewest(index, need)), fewest)
        # A range that is over at some moment recomputes at least one layer.
        fewest = np.where(needed, np.maximum(fewest, 1), fewest)
        self.legal = self.legal & (fewest <= size)
        return np.where(self.legal, fewest, 0)

    def _over(self, index: int) -> Ints:
        """Return by how many KiB each range exceeds the limit at a moment when nothing recomputes."""
        row = self.given.memory[index]
        chunks = [rank[0] for rank in self.given.chunk_memory[index]]
        ends = np.array([chunk.fixed for chunk in chunks], dtype=np.int64)
        ends[0] += chunks[0].first
        ends[-1] += chunks[-1].last
        layer = np.array([chunk.layer for chunk in chunks], dtype=np.int64)
        held = (self.held * layer[:, None, None, :]).sum(axis=-1)
        return np.asarray(held + (ends + row.kept.fixed - self.given.limit_kib)[:, None, None])

    def _saved(self, index: int) -> Ints:
        """Return by stage the KiB that recomputing the first i layers of the model would save."""
        rows = [rank[0].recomputed for rank in self.given.chunk_memory[index]]
        return -(np.array(rows, dtype=np.int64) @ self.counts.T)

    def _savings(self, index: int, positions: Ints) -> Ints:
        return np.take_along_axis(
            self._saved(index), positions.reshape(self.stages, -1), axis=1
        ).reshape(positions.shape)

    def _fewest(self, index: int, need: Ints) -> Ints:
        """Return how many leading layers of each range must recompute to save ``need`` KiB."""
        if self.given.kinds == 1:
            return self._fewest_alike(index, need)
        result = np.zeros_like(need)
        layers = len(self.given.layer_kinds)
        starts = np.broadcast_to(self.start, need.shape)
        for stage, saved in enumerate(self._saved(index)):
            start = starts[stage]
            if (np.diff(saved) < 0).any():
                raise ValueError("recomputing a layer must not take memory")
            wanted = saved[start] + need[stage]
            found = np.searchsorted(saved, wanted.ravel(), side="left").reshape(wanted.shape)
            result[stage] = np.where(need[stage] > 0, np.minimum(found, layers + 1) - start, 0)
        return result

    def _fewest_alike(self, index: int, need: Ints) -> Ints:
        """``_fewest`` where every layer saves the same."""
        saved = self._saved(index)[:, 1][:, None, None]
        if (saved < 0).any():
            raise ValueError("recomputing a layer must not take memory")
        enough = np.where(
            saved > 0, -(-need // np.maximum(saved, 1)), len(self.given.layer_kinds) + 1
        )
        return np.where(need > 0, enough, 0)
