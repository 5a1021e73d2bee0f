"""The certified search: best first over tiers that cost more and tell more.

Every strategy has a key, a lower bound of its iteration. The strategy with the smallest key is looked at more closely:
closed-form bound with its finish and memory -> bound over all placements -> simulation -> exact proof. The search ends
when the smallest key reaches the K-th best simulated plan (within the tolerance): no plan that was not looked at can
then belong to the first K.
"""

import heapq
import math
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from costmodel.schedules import Shape
from costmodel.strategy import Strategy
from costmodel.timeline import CriticalPath
from planner.bounds import time_bounds
from planner.candidate import (
    Candidate,
    Tier,
    settle_bound,
    settle_placement,
)
from planner.coefficients import KIB, Arrangement, Coefficients, coefficients, limit_kib
from planner.columns import Columns, IntColumn
from planner.even_bounds import grouped_even_bounds
from planner.even_cuts import balanced_cuts
from planner.even_search import bound_even, simulate_even
from planner.memory_test import memory_verdict
from planner.plans import Placement
from planner.priced_rows import Floats, RowPricer, TimeRows
from planner.pricer import PricerLike
from planner.proof import prove

_FIRST_ROWS, _MOST_ROWS = 64, 4096
"""Rows refined at a time: few at first, when most searches end, then doubling."""
_NEAREST = 12
"""Strategies that do not fit whose exact demand is compared."""
_NEVER = 1 << 62
"""Above every time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlan:
    """A strategy with its best placement; everything else follows from its coefficients."""

    strategy: Strategy
    placement: Placement
    arrangement: Arrangement
    iteration_ns: int
    lower_bound_ns: int
    peak_kib: int
    coefficients: Coefficients


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShortage:
    """By how many bytes a rank of a strategy exceeds the limit with every layer recomputing; on which device group."""

    strategy: Strategy
    rank: int
    moment: str
    demand_bytes: int
    over_bytes: int
    group: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineResult:
    """The ranked plans and how sure the ranking is.

    Attributes:
        ranked: Best first; ties by peak memory, then by row.
        lower_bound_ns: No plan of the space simulates faster; 0 while nothing is known.
        proved: Whether the first ``top`` plans are proved within the tolerance.
        strategies, solved, simulated: Rows, solver calls, simulations.
        rejected_by_memory: How many strategies were found not to fit (of those looked at).
        nearest: Of these the one that lacks least, where no plan fits.
    """

    ranked: tuple[RankedPlan, ...] = ()
    lower_bound_ns: int = 0
    proved: bool = True
    strategies: int = 0
    solved: int = 0
    simulated: int = 0
    rejected_by_memory: int = 0
    nearest: MemoryShortage | None = None


def search(
    columns: Columns,
    pricer: PricerLike,
    *,
    memory_limit_bytes: float,
    top: int = 1,
    tolerance: float = 1e-3,
    time_limit_s: float | None = None,
    uneven: bool = True,
    rows: RowPricer | None = None,
) -> EngineResult:
    """Return the ``top`` fastest plans over the given strategies and all their placements.

    Args:
        columns: Legal strategies.
        pricer: Prices them.
        memory_limit_bytes: What a GPU may hold.
        top: How many strategies to rank.
        tolerance: Relative gap at which the ranking counts as proved; 0 is exact.
        time_limit_s: Wall seconds after which the best so far is returned; None is no limit.
        uneven: Whether stages may differ; if not, they are equal but for embedding and head.
        rows: Prices and bounds of an earlier search over the same columns and pricer.

    The placements of interleaved strategies are the balanced ones of planner.even_cuts.
    """
    deadline = math.inf if time_limit_s is None else time.monotonic() + time_limit_s
    limits = Limits(limit_kib(memory_limit_bytes), top, tolerance, deadline, uneven)
    if not len(columns):
        return EngineResult()
    run = Search(rows or RowPricer(pricer, columns), limits)
    run.explore()
    return run.result()


_Entry = tuple[int, int, Candidate | None]
"""Key, row and, once it was looked at, the candidate."""


class Limits(NamedTuple):
    """What bounds a search."""

    memory_kib: int
    top: int
    tolerance: float
    deadline: float
    uneven: bool


class Search:
    """State of one search."""

    def __init__(self, prices: RowPricer, limits: Limits) -> None:
        self.columns, self.pricer, self.limits = prices.columns, prices.pricer, limits
        self.prices = prices
        self.floors = prices.floor
        self.known = prices.remembered(limits.memory_kib)
        self.keys = np.maximum(time_bounds(self.floors), self.known)
        self.order = np.argsort(self.keys, kind="stable")
        self.next = 0
        self.even = self.columns.vpp > 1 if limits.uneven else self.columns.vpp > 0
        self.others: list[_Entry] = []
        self.evens: list[_Entry] = []
        self.found: list[Candidate] = []
        self.worst: float = math.inf
        self.closed_ns: float = math.inf
        self.solved = self.simulated = self.unfit = 0
        self.nearest: list[tuple[float, int]] = []
        self.paths: dict[Shape, dict[CriticalPath, None]] = defaultdict(dict)
        self.best_cuts: dict[Shape, list[tuple[int, ...]]] = defaultdict(list)
        self.open: list[Candidate] = []
        self.unproved = False

    def explore(self) -> None:
        """Run until the ranking is proved, nothing is left or the time is up."""
        size = _FIRST_ROWS
        while self._next_key() < self._goal():
            if self._late():
                return
            if self._untouched_key() <= self._heap_key():
                self._refine(self.order[self.next : self.next + size])
                self.next, size = self.next + size, min(2 * size, _MOST_ROWS)
            else:
                self._advance()
        while self.open and not self._late():
            self._prove()

    def _late(self) -> bool:
        if time.monotonic() > self.limits.deadline:
            self.unproved = True
        return self.unproved and time.monotonic() > self.limits.deadline

    def _untouched_key(self) -> float:
        if self.next >= len(self.order):
            return math.inf
        return int(self.keys[self.order[self.next]])

    def _heap_key(self) -> float:
        return min((heap[0][0] for heap in (self.others, self.evens) if heap), default=math.inf)

    def _next_key(self) -> float:
        return min(self._untouched_key(), self._heap_key())

    def _note(self, candidate: Candidate, known: bool) -> None:
        """Keep the time of the K-th best plan; it is infinite while there are fewer."""
        if candidate.time_ns is None:
            return
        if not known:
            self.found.append(candidate)
        if len(self.found) >= self.limits.top:
            self.worst = self._ranked()[self.limits.top - 1].time_ns or math.inf

    def _ranked(self) -> list[Candidate]:
        return sorted(self.found, key=lambda item: (item.time_ns or 0, item.row))

    def _goal(self) -> float:
        """Return the key from which on nothing can belong to the first K, within the tolerance."""
        return _within(self.worst, self.limits.tolerance)

    def _refine(self, rows: IntColumn) -> None:
        """Price memory and, of rows that may fit, the finish; put them on the heap."""
        rows = self._open(rows, self.keys[rows])
        fits, shortage = memory_verdict(
            self.floors.at(rows), self.prices.memory(rows), self.limits.memory_kib
        )
        self._reject(rows[~fits], shortage[~fits])
        rows = rows[fits]
        if not len(rows):
            return
        part = self.prices.time(rows)
        rows = self._open(rows, keys := np.maximum(time_bounds(part), self.keys[rows]))
        part = part.at(np.flatnonzero(keys < self._goal()), self.prices.finish(rows))
        keys = np.maximum(time_bounds(part), self.keys[rows])
        keys = np.maximum(keys, self._even_bounds(rows, part))
        self.known[rows] = np.maximum(self.known[rows], keys)
        for key, row in zip(keys.tolist(), rows.tolist(), strict=True):
            self._push(key, row, None)

    def _even_bounds(self, rows: IntColumn, part: TimeRows) -> IntColumn:
        """Return bounds of ``rows``, priced as ``part``, where only even placements count."""
        memory, limits = self.prices.memory(rows), self.limits
        return grouped_even_bounds(part, memory, limits.memory_kib, uneven=limits.uneven)

    def _open(self, rows: IntColumn, keys: IntColumn) -> IntColumn:
        """Return the rows whose keys may still matter; the others are closed at their keys."""
        opened = keys < self._goal()
        self.closed_ns = min(self.closed_ns, keys[~opened].min(initial=_NEVER))
        return rows[opened]

    def _reject(self, rows: IntColumn, lacks: Floats) -> None:
        self.unfit += len(rows)
        self.known[rows] = _NEVER
        if not self.found:
            listed = zip(lacks.tolist(), rows.tolist(), strict=True)
            self.nearest = heapq.nsmallest(_NEAREST, [*self.nearest, *listed])

    def _advance(self) -> None:
        """Take the most promising candidate one tier further."""
        key, row, candidate = self._pop()
        if candidate is None:
            candidate = self._new(row, key)
        else:
            self._place(candidate)
        self.known[row] = max(int(self.known[row]), candidate.lower_ns)
        if candidate.tier is Tier.CLOSED:
            self.closed_ns = min(self.closed_ns, candidate.lower_ns)
        elif candidate.tier is Tier.OPEN:
            self.open.append(candidate)
        elif candidate.tier is Tier.PLACED:
            self._push(candidate.lower_ns, row, candidate)

    def _push(self, key: int, row: int, candidate: Candidate | None) -> None:
        heapq.heappush(self.evens if self.even[row] else self.others, (key, row, candidate))

    def _pop(self) -> _Entry:
        """Take the smallest key; while there is no goal, of the strategies whose placements are few if there are any.

        These cost least, and their times make a goal, with which the others cost less as well.
        """
        if not self.evens or not self.others:
            return heapq.heappop(self.evens or self.others)
        even = math.isinf(self.worst) or self.evens[0] < self.others[0]
        return heapq.heappop(self.evens if even else self.others)

    def _new(self, row: int, key: int) -> Candidate:
        candidate, goal = self._candidate(row, key), self._goal()
        fits = self._bound(candidate, None if math.isinf(goal) else int(goal))
        self.simulated += candidate.simulated
        if not fits:
            self._reject(np.array([row]), np.zeros(1))
        self._note(candidate, known=False)
        return candidate

    def _candidate(self, row: int, key: int) -> Candidate:
        given = self.prices.coefficients(row, self.limits.memory_kib)
        return Candidate(row=row, given=given, lower_ns=key, paths=self.paths[given.shape])

    def _bound(self, candidate: Candidate, cutoff_ns: int | None) -> bool:
        """Bound a new candidate; return whether a placement within the cutoff may exist."""
        if self.even[candidate.row]:
            return bound_even(candidate, uneven=self.limits.uneven)
        return settle_bound(candidate, cutoff_ns)

    def _place(self, candidate: Candidate) -> None:
        """Simulate a bounded candidate, unless its bound suffices."""
        known, before = candidate.time_ns is not None, candidate.simulated
        if candidate.lower_ns >= self._goal():
            candidate.close(candidate.lower_ns)
            return
        self._simulate(candidate)
        self.simulated += candidate.simulated - before
        self._note(candidate, known)

    def _simulate(self, candidate: Candidate) -> None:
        """Simulate the most promising placement of a bounded candidate, or what its bound and others suggest."""
        if candidate.even:
            simulate_even(candidate)
            return
        cuts = self.best_cuts[candidate.given.shape]
        settle_placement(candidate, cuts)
        if candidate.incumbent is not None:
            cuts.append(candidate.incumbent.cuts)

    def _prove(self) -> None:
        """Refine, then prove, the open candidate with the smallest bound."""
        candidate = min(self.open, key=lambda item: (item.lower_ns, item.row))
        before = (candidate.simulated, candidate.solved)
        refining = candidate.tier is Tier.OPEN
        done = self._proved(candidate)
        self.simulated += candidate.simulated - before[0]
        self.solved += candidate.solved - before[1]
        self.known[candidate.row] = max(int(self.known[candidate.row]), candidate.lower_ns)
        self._note(candidate, known=True)
        if done or not refining:
            self.unproved |= not done
            self.open.remove(candidate)
            self.closed_ns = min(self.closed_ns, candidate.lower_ns)

    def _proved(self, candidate: Candidate) -> bool:
        """Work on the proof of ``candidate``; return whether its bound suffices."""
        limits, first = self.limits, self._ranked()[0].time_ns or math.inf
        return prove(candidate, limits.tolerance, self.worst, limits.deadline, first)

    def result(self) -> EngineResult:
        """Return what was found."""
        plans = [_plan(candidate) for candidate in self._ranked()[: self.limits.top + 8]]
        plans.sort(key=lambda plan: (plan.iteration_ns, plan.peak_kib))
        return EngineResult(
            ranked=tuple(plans[: self.limits.top]),
            lower_bound_ns=self._lower_bound(),
            proved=not self.unproved,
            strategies=len(self.columns),
            solved=self.solved,
            simulated=self.simulated,
            rejected_by_memory=self.unfit,
            nearest=None if self.found else self._least_shortage(),
        )

    def _lower_bound(self) -> int:
        best = min((item.time_ns or 0 for item in self.found), default=math.inf)
        unproved = min((item.lower_ns for item in self.open), default=math.inf)
        bound = min(best, self.closed_ns, self._next_key(), unproved)
        return 0 if math.isinf(bound) else max(0, int(bound))

    def _least_shortage(self) -> MemoryShortage | None:
        shortages = [self._shortage(row) for _, row in self.nearest]
        known = [shortage for shortage in shortages if shortage is not None]
        return min(known, key=lambda item: item.over_bytes, default=None)

    def _shortage(self, row: int) -> MemoryShortage | None:
        """Return the worst rank of the balanced placement with every layer recomputing."""
        strategy = self.columns.strategy(row)
        given = coefficients(self.pricer.cost(strategy), self.limits.memory_kib * KIB)
        cuts = next(iter(balanced_cuts(len(given.layer_kinds), strategy.pp * strategy.vpp)), None)
        if cuts is None:
            return None
        sizes = tuple(stop - start for start, stop in pairwise(cuts))
        everything = Arrangement(cuts, sizes)
        demands = [(*given.demand_kib(rank, everything), rank) for rank in range(strategy.pp)]
        demand, moment, rank = max(demands)
        return MemoryShortage(
            strategy=strategy,
            rank=rank,
            moment=moment,
            demand_bytes=demand * KIB,
            over_bytes=(demand - self.limits.memory_kib) * KIB,
        )


def _within(worst: float, tolerance: float) -> float:
    """Return the least bound that is within ``tolerance`` of a time."""
    return worst if math.isinf(worst) else math.ceil(worst * (1 - tolerance))


def _plan(candidate: Candidate) -> RankedPlan:
    given, arrangement = candidate.given, candidate.arrangement
    if arrangement is None or candidate.time_ns is None:
        raise ValueError("only candidates with a placement are ranked")
    return RankedPlan(
        strategy=given.strategy,
        placement=candidate.placement(arrangement),
        arrangement=arrangement,
        iteration_ns=candidate.time_ns,
        lower_bound_ns=candidate.lower_ns,
        peak_kib=candidate.peak_kib(arrangement),
        coefficients=given,
    )
