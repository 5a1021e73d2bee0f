"""What every stage costs for every range of layers it could hold: tables over pairs of cut positions.

Stage s holds the layers between cut s and cut s + 1. Each cut has a window of positions; a table has one integer for
each stage, position of its lower cut and position of its upper cut. Recomputation is not a decision of its own:
where a range does not fit, the fewest layers that make it fit recompute, since more never helps the time.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.coefficients import Coefficients, Linear

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

NEVER = np.int64(1) << np.int64(60)
"""Stands for "does not fit"; sums of a few still fit 64 bits."""


class Windows(NamedTuple):
    """Lowest and highest position of each cut, stages + 1 of each."""

    low: Ints
    high: Ints


def whole_windows(layers: int, stages: int) -> Windows:
    """Return the windows in which every stage holds at least one layer."""
    cuts = np.arange(stages + 1, dtype=np.int64)
    low, high = cuts.copy(), layers - stages + cuts
    low[-1], high[0] = layers, 0
    return Windows(low, high)


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


def stage_tables(given: Coefficients, windows: Windows) -> StageTables:
    """Return the tables of a strategy with one chunk a rank."""
    return _Builder(given, windows).tables()


class _Builder:
    """Evaluates linear functions over all ranges at once."""

    def __init__(self, given: Coefficients, windows: Windows) -> None:
        self.given, self.windows, self.stages = given, windows, given.shape.ranks
        layers = len(given.layer_kinds)
        width = int((windows.high - windows.low).max()) + 1
        positions = np.minimum(windows.low[:, None] + np.arange(width), layers)
        inside = positions <= windows.high[:, None]
        self.counts = given.count_table
        self.start, self.stop = positions[:-1, :, None], positions[1:, None, :]
        self.held = self.counts[self.stop] - self.counts[self.start]
        self.legal: Mask = inside[:-1, :, None] & inside[1:, None, :] & (self.stop > self.start)
        self.first = np.arange(self.stages) == 0
        self.last = np.arange(self.stages) == self.stages - 1

    def tables(self) -> StageTables:
        """Return all tables."""
        given = self.given
        recomputed = self._recomputed()
        again = None
        if recomputed.any():
            again = self.counts[self.start + recomputed] - self.counts[self.start]
        finish = [self._value(item, again) for item in given.finish]
        nothing = np.zeros_like(recomputed)
        return StageTables(
            windows=self.windows,
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
                self.legal &= rest + self.given.memory[index].recompute_once <= 0
            return fewest
        needed: Mask = np.logical_or.reduce([excess > 0 for excess in over]) & self.legal
        if not needed.any():
            return fewest
        for index, excess in enumerate(over):
            need = excess + self.given.memory[index].recompute_once
            fewest = np.where(needed, np.maximum(fewest, self._fewest(index, need)), fewest)
        # A range that is over at some moment recomputes at least one layer.
        fewest = np.where(needed, np.maximum(fewest, 1), fewest)
        self.legal &= fewest <= size
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
        result = np.zeros_like(need)
        layers = len(self.given.layer_kinds)
        for stage, saved in enumerate(self._saved(index)):
            start = self.start[stage]
            if (np.diff(saved) < 0).any():
                raise ValueError("recomputing a layer must not take memory")
            wanted = saved[start] + need[stage]
            found = np.searchsorted(saved, wanted.ravel(), side="left").reshape(wanted.shape)
            result[stage] = np.where(need[stage] > 0, np.minimum(found, layers + 1) - start, 0)
        return result
