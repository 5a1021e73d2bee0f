"""What every stage costs on every device group for every range of layers it could hold, by how far the groups are used.

A cut has a state u, how many ranks each group has given so far, and a position. Positions of a cut and state lie in a
window: how far a stage reaches from a cut follows from memory and from m t + D < cutoff, which holds for every schedule.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from planner.coefficients import Ints
from planner.mixed.coefficients import MixedCoefficients
from planner.stage_tables import NEVER, Mask, StageTables, stage_tables
from planner.windows import Windows, whole_windows

MOST_ENTRIES = 6_000_000
"""Entries of one table at most; a strategy with more is not bounded stage by stage."""


class Usage:
    """How many ranks each group has given: states u, numbered over the uses of all groups but the first."""

    def __init__(self, slots: tuple[int, ...]) -> None:
        self.slots = slots
        others = np.array(list(product(*(range(n + 1) for n in slots[1:]))), dtype=np.int64)
        self.others: Ints = others.reshape(-1, len(slots) - 1)
        self.states = len(self.others)
        sizes = [n + 1 for n in slots[1:]]
        self.shift = (0, *(math.prod(sizes[at + 1 :]) for at in range(len(sizes))))

    def used(self, ranks: int) -> Ints:
        """Return by state the ranks of each group among the first ``ranks``; impossible ones are out of range."""
        first = ranks - self.others.sum(axis=1, keepdims=True)
        return np.concatenate([first, self.others], axis=1)

    def possible(self, ranks: int) -> Mask:
        """Return which states the first ``ranks`` ranks can be in."""
        used = self.used(ranks)
        return np.asarray((used >= 0).all(axis=1) & (used <= np.array(self.slots)).all(axis=1))

    def after(self, values: NDArray[np.int64], group: int, missing: int) -> NDArray[np.int64]:
        """Return values by state (first axis) at the state that one more rank on ``group`` leads to."""
        shift = self.shift[group]
        if not shift:
            return values
        found = np.full_like(values, missing)
        found[:-shift] = values[shift:]
        return found

    def before(self, values: NDArray[np.int64], group: int, missing: int) -> NDArray[np.int64]:
        """Return values by state (first axis) at the state that one rank on ``group`` less led from."""
        shift = self.shift[group]
        if not shift:
            return values
        found = np.full_like(values, missing)
        found[shift:] = values[:-shift]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedTables:
    """Integers by stage, group, state, offset of the lower cut and offset of the upper cut.

    Attributes:
        usage: The states.
        low: Lowest position by cut and state; offsets count from it. Beyond the last offset a range is not legal.
        legal: Whether the group has a rank left and the range fits it.
        forward, backward, weight, finish: Nanoseconds without waits and ties; meaningless where not legal.
    """

    usage: Usage
    low: Ints
    legal: Mask
    forward: Ints
    backward: Ints
    weight: Ints
    finish: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWindows:
    """Lowest and highest position by cut and state; where a state cannot occur the lowest is above the highest.

    ``tables`` and ``open`` are those of each group over all ranges, and which ranges fit and may stay below the cutoff.
    """

    usage: Usage
    whole: Windows
    low: Ints
    high: Ints
    tables: Sequence[StageTables]
    open: Mask

    def cuts(self) -> list[tuple[int, int]]:
        """Return lowest and highest position of each cut over all its states."""
        lives = self.low <= self.high
        low, high = np.where(lives, self.low, NEVER), np.where(lives, self.high, -1)
        return list(zip(low.min(axis=1).tolist(), high.max(axis=1).tolist(), strict=True))


def state_windows(given: MixedCoefficients, cutoff_ns: float) -> StateWindows | None:
    """Return the windows of all placements that fit and may take less than the cutoff; None where there are none.

    Raises:
        OverflowError: The tables of ranges would be too large.
    """
    ranks, layers = given.shape.ranks, given.layers
    if layers < ranks or sum(given.slots) < ranks:
        return None
    whole, usage = whole_windows(layers, ranks), Usage(given.slots)
    if whole.ranges > MOST_ENTRIES:
        raise OverflowError("too many ranges of layers for tables")
    tables = [stage_tables(item, whole) for item in given.by_group]
    open_ = np.stack([_open(given, table, cutoff_ns) for table in tables])
    low, high = _Reach(usage, whole, open_, layers).windows()
    if not (low <= high).any(axis=1).all():
        return None
    return StateWindows(usage=usage, whole=whole, low=low, high=high, tables=tables, open=open_)


def mixed_tables(given: MixedCoefficients, cutoff_ns: float) -> MixedTables | None:
    """Return the tables of all placements that fit and may take less than the cutoff; None where there are none.

    Raises:
        OverflowError: The tables would be too large.
    """
    windows = state_windows(given, cutoff_ns)
    return None if windows is None else _gathered(windows)


def _open(given: MixedCoefficients, table: StageTables, cutoff_ns: float) -> Mask:
    busy = given.shape.microbatches * (table.forward + table.backward) + table.finish
    return np.asarray(table.legal & (busy < cutoff_ns))


class _Reach:
    """Windows of positions by cut and state."""

    def __init__(self, usage: Usage, windows: Windows, open_: Mask, layers: int) -> None:
        self.usage, self.base, self.layers = usage, windows.low, layers
        self.groups, self.stages, self.width = open_.shape[:3]
        # Highest upper offset from each lower offset, or any before it; -1 where there is none.
        offsets = np.arange(self.width)
        highest = np.where(open_, offsets, -1).max(axis=3)
        self.top = np.maximum.accumulate(highest, axis=2)

    def windows(self) -> tuple[Ints, Ints]:
        """Return lowest and highest position; the lowest is above the highest where a state cannot occur."""
        usage, stages = self.usage, self.stages
        low = np.full((stages + 1, usage.states), self.layers + 1)
        high = np.full((stages + 1, usage.states), -1)
        low[0, 0] = high[0, 0] = 0
        for stage in range(stages):
            high[stage + 1] = self._highest(stage, high[stage])
        last = high[stages] == self.layers
        low[stages] = np.where(last, self.layers, self.layers + 1)
        high[stages] = np.where(last, self.layers, -1)
        for stage in reversed(range(stages)):
            low[stage] = self._lowest(stage, low[stage + 1])
        dead = low > high
        return np.where(dead, self.layers + 1, low), np.where(dead, -1, high)

    def _highest(self, stage: int, high: Ints) -> Ints:
        """Return the highest position of the next cut by state."""
        best = np.full(self.usage.states, -1)
        offset = high - self.base[stage]
        for group in range(self.groups):
            inside = (offset >= 0) & self._room(stage, group)
            reach = self.top[group, stage][np.clip(offset, 0, self.width - 1)]
            # A table's offsets beyond the model all stand for its end.
            end = np.minimum(reach + self.base[stage + 1], self.layers)
            position = np.where(inside & (reach >= 0), end, -1)
            best = np.maximum(best, self.usage.before(position, group, -1))
        return np.where(self.usage.possible(stage + 1), best, -1)

    def _lowest(self, stage: int, low: Ints) -> Ints:
        """Return the lowest position from which a group reaches the next cut's window, by state."""
        best = np.full(self.usage.states, self.layers + 1)
        for group in range(self.groups):
            wanted = self.usage.after(low, group, self.layers + 1) - self.base[stage + 1]
            offset = np.searchsorted(self.top[group, stage], wanted, side="left")
            lies = (offset < self.width) & self._room(stage, group)
            best = np.minimum(best, np.where(lies, offset + self.base[stage], self.layers + 1))
        return np.where(self.usage.possible(stage), best, self.layers + 1)

    def _room(self, stage: int, group: int) -> Mask:
        return np.asarray(self.usage.used(stage)[:, group] < self.usage.slots[group])


def _gathered(given: StateWindows) -> MixedTables:
    """Look the tables of ranges up by state and offset."""
    usage, windows, tables = given.usage, given.whole, given.tables
    open_, low, high = given.open, given.low, given.high
    groups, stages = len(tables), len(low) - 1
    width = int((high - low).max(where=high >= low, initial=0)) + 1
    if stages * groups * usage.states * width * width > MOST_ENTRIES:
        raise OverflowError("too many states, positions and stages for tables")
    alive = np.arange(width) <= (high - low)[:, :, None]
    at = low[:, :, None] + np.arange(width)
    shape = (groups, stages, usage.states, width)
    stop, ends = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
    for group in range(groups):
        for stage in range(stages):
            stop[group, stage] = usage.after(at[stage + 1], group, 0)
            room = usage.used(stage)[:, group] < usage.slots[group]
            living = usage.after(alive[stage + 1].astype(np.int64), group, 0) > 0
            ends[group, stage] = living & room[:, None]
    i = np.clip(at[:-1] - windows.low[:-1, None, None], 0, open_.shape[2] - 1)[None, :, :, :, None]
    j = np.clip(stop - windows.low[None, 1:, None, None], 0, open_.shape[3] - 1)[:, :, :, None, :]
    g = np.arange(groups)[:, None, None, None, None]
    s = np.arange(stages)[None, :, None, None, None]
    legal = open_[g, s, i, j] & alive[None, :-1, :, :, None] & ends[:, :, :, None, :]

    def of(name: str) -> Ints:
        stacked = np.stack([getattr(table, name) for table in tables])
        return np.asarray(np.swapaxes(np.where(legal, stacked[g, s, i, j], 0), 0, 1))

    return MixedTables(
        usage=usage,
        low=low,
        legal=np.swapaxes(legal, 0, 1),
        forward=of("forward"),
        backward=of("backward"),
        weight=of("weight"),
        finish=of("finish"),
    )
