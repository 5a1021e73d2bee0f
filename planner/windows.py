"""Which positions a cut can take at all, given memory and a time that must not be reached.

Stage s from cut a to cut b obeys linear budgets U_s(b) - V_s(a) <= room_s, with U and V growing sums over layers. With
W(x) the time of one micro-batch in the layers before x, S in all stages, and t = W(b) - W(a) + the stage's ends:

    memory       M(b) - M(a) <= room at each moment, every layer recomputing
    1F1B         W(a) + m t <= T;  and S + (S - W(b)) + (m - w_s) t <= T where m > w_s (both idle brackets)
    GPipe        S + (m - 1) t <= T
    ZB-H1        m t <= T, also without flush

and the same with t + q (M(x) - room) in the place of t, when recomputing a layer frees a KiB for at least q
nanoseconds. A stage holds e_s layers without recomputing, or as many as its time allows if these are fewer; each
further one takes at least k nanoseconds. So S grows by k (L - sum e), W(a) by k (a - sum_{j<s} e_j) and S - W(b) by
k (L - b - sum_{j>s} e_j). T is less the least finish. How far a stage reaches from a cut follows, and from that both ends of every window.
"""

import math
from bisect import bisect_left, bisect_right
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.coefficients import Coefficients, Ints
from planner.stage_memory import stage_memory

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


class _Extra(NamedTuple):
    """Recomputation forced on other stages: in all, and by stage as ``rate * position - offset`` before and after it.

    The rates are 0 where nothing is forced.
    """

    total: float
    before: Floats
    before_offset: Floats
    after: Floats
    after_offset: Floats


class Budgets:
    """Linear budgets of the stages of a strategy with one chunk a rank."""

    def __init__(self, given: Coefficients) -> None:
        self.given, self.stages = given, given.shape.ranks
        self.layers, self.m = len(given.layer_kinds), given.shape.microbatches
        self.memory: list[_Budget] = []
        self.loads = [self._time()]
        self.forcing: list[tuple[Floats, Floats]] = []
        for index in range(len(given.memory)):
            self._add_memory(index)
        price, ends = self.loads[0]
        self.price = price[0]
        self.whole = float(given.count_table[-1] @ self.price + ends.sum())
        self.before = np.concatenate([[0.0], ends.cumsum()])
        self.least_finish = given.fixed_ns + self._least_finish()

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
        given, memory = self.given, stage_memory(self.given, index)
        held, saved = memory.layer.astype(np.float64), -memory.recomputed.astype(np.float64)
        room = given.limit_kib - memory.fixed.astype(np.float64)
        cost = held - (saved if given.recompute_all else np.maximum(saved, 0))
        self.memory.append(_Budget(cost, cost, room))
        price = np.array(given.backward.recomputed, dtype=np.float64)
        rate = (price / np.maximum(saved, 1e-9)).min(axis=1)
        if not given.recompute_all and (saved > 0).all() and (rate > 0).any():
            base = self.loads[0]
            load = base.price + rate[:, None] * held
            self.loads.append(_Load(load, base.ends - rate * room))
            least = held.min(axis=1)
            if (least > 0).all():
                self.forcing.append((np.maximum(room, 0) / least, rate * least))

    def _least_finish(self) -> float:
        """Return what the rank that ends last pays at least: with one layer, the first one where it is rank 0."""
        given, first = self.given, self.given.shape.schedule in ("1f1b", "gpipe")
        found = [0.0]
        for way in given.finish:
            prices = np.array(way.layer, dtype=np.float64)
            if given.recompute_all:
                prices = prices + np.array(way.recomputed)
            layer = prices[given.layer_kinds[0]] if first else prices.min()
            found.append(float(way.fixed + way.first * first + layer))
        return max(found)

    def _budgets(self, cutoff_ns: float) -> list[_Budget]:
        budgets = list(self.memory)
        if cutoff_ns != np.inf:
            left = cutoff_ns - 1 - self.least_finish
            extra = self._extra(left)
            for load in self.loads:
                budgets += self._times(load, left, extra)
        return budgets

    def _extra(self, left: float) -> _Extra:
        """Return the recomputation that memory forces on stages whose time is within ``left``."""
        nothing, positions = (
            np.zeros(self.stages),
            np.arange(self.stages + 1) * self.layers / self.stages,
        )
        most = (left - self.m * self.loads[0].ends) / (self.m * max(float(self.price.min()), 1.0))
        best = _Extra(0.0, nothing, nothing, nothing, nothing)
        for free, prices in self.forcing:
            held = np.minimum(free, most)
            over = free < most
            rate = float(prices.min(initial=math.inf, where=over)) if over.any() else 0.0
            total = rate * max(0.0, self.layers - float(held.sum()))
            if total > best.total:
                sums = np.concatenate([[0.0], held.cumsum()])
                before = np.where(positions[:-1] > sums[:-1], rate, 0.0)
                behind = sums[-1] - sums[1:]
                after = np.where(self.layers - positions[1:] > behind, rate, 0.0)
                best = _Extra(total, before, before * sums[:-1], after, after * behind)
        return best

    def _times(self, load: _Load, left: float, extra: _Extra) -> list[_Budget]:
        """Return the time budgets of the schedule for one way to count the time of a stage."""
        price, ends = load
        m, schedule = self.m, self.given.shape.schedule
        if schedule in ("zero_bubble", "no_flush") or m == 1:
            return [_Budget(m * price, m * price, left - m * ends)]
        whole = self.whole + extra.total
        if schedule == "gpipe":
            room = left - whole - (m - 1) * ends
            return [_Budget((m - 1) * price, (m - 1) * price, room)]
        before, after = self.price + extra.before[:, None], self.price + extra.after[:, None]
        room = left - m * ends - self.before[:-1] + extra.before_offset
        chain = _Budget(m * price, m * price - before, room)
        more = (m - np.minimum(m, self.stages - np.arange(self.stages))).astype(np.float64)
        # Where m is not above w_s the second row does not hold: its room is made endless.
        endless = np.where(more > 0, 0.0, np.inf)
        behind = self.whole - self.before[1:] + extra.after * self.layers - extra.after_offset
        both = left - whole - behind - more * ends + endless
        often = more[:, None]
        return [chain, _Budget(often * price - after * (often > 0), often * price, both)]

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
        rooms = np.stack([b.room + 1e-9 * np.abs(b.room) + 1e-3 for b in budgets], axis=1)
        self.single = given.kinds == 1
        if self.single:
            upper = np.stack([b.upper[:, 0] for b in budgets], axis=1)
            lower = np.stack([b.lower[:, 0] for b in budgets], axis=1)
            self.ahead = _lines(rooms, lower, upper, math.inf)
            self.behind = _lines(-rooms, upper, lower, -math.inf)
        else:
            table = given.count_table.T.astype(np.float64)
            self.rooms = rooms.T.tolist()
            self.upper = [(b.upper @ table).tolist() for b in budgets]
            self.lower = [(b.lower @ table).tolist() for b in budgets]

    def up(self, stage: int, start: int) -> int:
        """Return the highest upper cut of ``stage`` whose lower cut is at most ``start``."""
        if self.single:
            constants, rates = self.ahead
            pairs = zip(constants[stage], rates[stage], strict=True)
            return math.floor(min(self.layers, *[room + rate * start for room, rate in pairs]))
        reach = self.layers
        for upper, lower, rooms in zip(self.upper, self.lower, self.rooms, strict=True):
            if rooms[stage] < math.inf:
                limit = rooms[stage] + lower[stage][start]
                reach = min(reach, bisect_right(upper[stage], limit) - 1)
        return reach

    def down(self, stage: int, stop: int) -> int:
        """Return the lowest lower cut of ``stage`` whose upper cut is at least ``stop``."""
        if self.single:
            constants, rates = self.behind
            pairs = zip(constants[stage], rates[stage], strict=True)
            return math.ceil(max(0, *[room + rate * stop for room, rate in pairs]))
        reach = 0
        for upper, lower, rooms in zip(self.upper, self.lower, self.rooms, strict=True):
            if rooms[stage] < math.inf:
                limit = upper[stage][stop] - rooms[stage]
                reach = max(reach, bisect_left(lower[stage], limit))
        return reach


def _lines(
    room: Floats, price: Floats, other: Floats, never: float
) -> tuple[list[list[float]], list[list[float]]]:
    """Return room / other and price / other by stage and budget; ``never`` and 0 where nothing follows."""
    kept = (other > 0) & np.isfinite(room)
    divisor = np.where(kept, other, 1.0)
    constants = np.where(kept, np.where(kept, room, 0.0) / divisor, never)
    return constants.tolist(), np.where(kept, price / divisor, 0.0).tolist()
