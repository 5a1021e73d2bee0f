"""Which positions a cut can take at all, given memory and a time that must not be reached.

Stage s from cut a to cut b obeys linear budgets U_s(b) - V_s(a) <= room_s, with U and V growing sums over layers. With
W(x) the time of one micro-batch in the layers before x, S in all stages, and t = W(b) - W(a) + the stage's ends:

    memory       M(b) - M(a) <= room at each moment, every layer recomputing
    1F1B         W(a) + m t <= T;  and S + (S - W(b)) + (m - w_s) t <= T where m > w_s (both idle brackets)
    GPipe        S + (m - 1) t <= T
    ZB-H1        m t <= T, also without flush

and the same with t + q (M(x) - room) in the place of t, when recomputing a layer frees a KiB for at least q
nanoseconds. How far a stage reaches from a cut follows, and from that both ends of every window.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.coefficients import Coefficients, Ints

Floats = NDArray[np.float64]


_CLOSE = 2e-3
"""Relative error of the smallest cutoff, small against the width of the windows it leaves."""


class Windows(NamedTuple):
    """Lowest and highest position of each cut, stages + 1 of each."""

    low: Ints
    high: Ints

    @property
    def ranges(self) -> int:
        """Entries of a table over stages and pairs of positions."""
        width = int((self.high - self.low).max()) + 1
        return (len(self.low) - 1) * width * width


def whole_windows(layers: int, stages: int) -> Windows:
    """Return the windows in which every stage holds at least one layer."""
    cuts = np.arange(stages + 1, dtype=np.int64)
    low, high = cuts.copy(), layers - stages + cuts
    low[-1], high[0] = layers, 0
    return Windows(low, high)


class _Budget(NamedTuple):
    """U_s(b) - V_s(a) <= room_s: prices of a layer in U and V by stage and kind, room by stage."""

    upper: Floats
    lower: Floats
    room: Floats


class _Load(NamedTuple):
    """What counts as the time of a stage: price of a layer by stage and kind, and a constant by stage."""

    price: Floats
    ends: Floats


class Budgets:
    """Linear budgets of the stages of a strategy with one chunk a rank."""

    def __init__(self, given: Coefficients) -> None:
        self.given, self.stages = given, given.shape.ranks
        self.layers, self.m = len(given.layer_kinds), given.shape.microbatches
        self.memory: list[_Budget] = []
        self.loads = [self._time()]
        for index in range(len(given.memory)):
            self._add_memory(index)
        price, ends = self.loads[0]
        self.price = price[0]
        self.whole = float(given.count_table[-1] @ self.price + ends.sum())
        self.before = np.concatenate([[0.0], ends.cumsum()])

    def _time(self) -> _Load:
        given = self.given
        price = np.array(given.forward.layer, dtype=np.float64) + np.array(given.backward.layer)
        if given.recompute_all:
            price = price + np.array(given.backward.recomputed)
        ends = np.full(self.stages, given.forward.fixed + given.backward.fixed, dtype=np.float64)
        ends[0] += given.forward.first + given.backward.first
        ends[-1] += given.forward.last + given.backward.last
        return _Load(np.broadcast_to(price, (self.stages, len(price))), ends)

    def _add_memory(self, index: int) -> None:
        """Add the budget of a moment, and the time with the recomputation that it forces."""
        given, row = self.given, self.given.memory[index]
        chunks = [rank[0] for rank in given.chunk_memory[index]]
        held = np.array([chunk.layer for chunk in chunks], dtype=np.float64)
        saved = -np.array([chunk.recomputed for chunk in chunks], dtype=np.float64)
        fixed = [row.kept.fixed + chunk.fixed for chunk in chunks]
        room = given.limit_kib - np.array(fixed, dtype=np.float64)
        room[0] -= chunks[0].first
        room[-1] -= chunks[-1].last
        cost = held - (saved if given.recompute_all else np.maximum(saved, 0))
        self.memory.append(_Budget(cost, cost, room))
        price = np.array(given.backward.recomputed, dtype=np.float64)
        rate = (price / np.maximum(saved, 1e-9)).min(axis=1)
        if not given.recompute_all and (saved > 0).all() and (rate > 0).any():
            base = self.loads[0]
            load = base.price + rate[:, None] * held
            self.loads.append(_Load(load, base.ends - rate * room))

    def _budgets(self, cutoff_ns: float) -> list[_Budget]:
        budgets = list(self.memory)
        if cutoff_ns != np.inf:
            left = cutoff_ns - 1 - self.given.fixed_ns
            for load in self.loads:
                budgets += self._times(load, left)
        return budgets

    def _times(self, load: _Load, left: float) -> list[_Budget]:
        """Return the time budgets of the schedule for one way to count the time of a stage."""
        price, ends = load
        m, schedule = self.m, self.given.shape.schedule
        if schedule in ("zero_bubble", "no_flush") or m == 1:
            return [_Budget(m * price, m * price, left - m * ends)]
        if schedule == "gpipe":
            room = left - self.whole - (m - 1) * ends
            return [_Budget((m - 1) * price, (m - 1) * price, room)]
        chain = _Budget(m * price, m * price - self.price, left - m * ends - self.before[:-1])
        more = (m - np.minimum(m, self.stages - np.arange(self.stages))).astype(np.float64)
        # Where m is not above w_s the second row does not hold: its room is made endless.
        endless = np.where(more > 0, 0.0, np.inf)
        after = self.whole - self.before[1:]
        both = left - self.whole - after - more * ends + endless
        often = more[:, None]
        return [chain, _Budget(often * price - self.price * (often > 0), often * price, both)]

    def narrow(self, cutoff_ns: float) -> Windows | None:
        """Return the windows of all placements that fit and can take less than ``cutoff_ns``."""
        if self.layers < self.stages:
            return None
        windows = whole_windows(self.layers, self.stages)
        low, high = windows.low.tolist(), windows.high.tolist()
        reach = _Reach(self.given, self._budgets(cutoff_ns))
        for stage in range(self.stages):
            high[stage + 1] = min(high[stage + 1], reach.up(stage, high[stage]))
            if high[stage + 1] < low[stage + 1]:
                return None
        for stage in reversed(range(self.stages)):
            low[stage] = max(low[stage], reach.down(stage, low[stage + 1]))
            if high[stage] < low[stage]:
                return None
        return Windows(np.array(low, dtype=np.int64), np.array(high, dtype=np.int64))

    def least_cutoff(self, above_ns: float, below_ns: float) -> float:
        """Return about the smallest cutoff between two with a placement within its budgets."""
        low = high = above_ns
        step = 0.01
        while high < below_ns and self.narrow(high) is None:
            low, high = high, min(high * (1 + step), below_ns)
            step *= 2
        while high - low > _CLOSE * low:
            middle = (low + high) / 2
            low, high = (low, middle) if self.narrow(middle) is not None else (middle, high)
        return high


class _Reach:
    """How far a stage can extend from a cut."""

    def __init__(self, given: Coefficients, budgets: list[_Budget]) -> None:
        self.layers = len(given.layer_kinds)
        # Budgets are floats; a slightly larger room only widens windows.
        self.rooms = [(b.room + 1e-9 * np.abs(b.room) + 1e-3).tolist() for b in budgets]
        table = given.count_table.T.astype(np.float64)
        self.single = given.kinds == 1
        self.upper = [b.upper[:, 0].tolist() if self.single else b.upper @ table for b in budgets]
        self.lower = [b.lower[:, 0].tolist() if self.single else b.lower @ table for b in budgets]

    def up(self, stage: int, start: int) -> int:
        """Return the highest upper cut of ``stage`` whose lower cut is at most ``start``."""
        reach = self.layers
        for upper, lower, rooms in zip(self.upper, self.lower, self.rooms, strict=True):
            room, layer = rooms[stage], upper[stage]
            if self.single:
                if layer > 0 and room < math.inf:
                    reach = min(reach, math.floor((room + lower[stage] * start) / layer))
            elif room < math.inf:
                limit = room + lower[stage][start]
                reach = min(reach, int(np.searchsorted(layer, limit, "right")) - 1)
        return reach

    def down(self, stage: int, stop: int) -> int:
        """Return the lowest lower cut of ``stage`` whose upper cut is at least ``stop``."""
        reach = 0
        for upper, lower, rooms in zip(self.upper, self.lower, self.rooms, strict=True):
            room, layer = rooms[stage], lower[stage]
            if self.single:
                if layer > 0 and room < math.inf:
                    reach = max(reach, math.ceil((upper[stage] * stop - room) / layer))
            elif room < math.inf:
                limit = upper[stage][stop] - room
                reach = max(reach, int(np.searchsorted(layer, limit, "left")))
        return reach
