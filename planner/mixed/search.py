"""The certified search over strategies whose pipeline ranks run on several device groups.

The same tiers and the same order as planner.engine, best first over strategies; a strategy's placement now says as well
which rank runs on which group. Strategies without a pipeline that no group can hold are priced, as a whole, on the
slowest group and spread over all of them.
"""

import math
import time
from collections import defaultdict
from itertools import islice, pairwise

import numpy as np

from costmodel.schedules import Shape
from planner.candidate import Candidate, settle_bound
from planner.coefficients import KIB, Arrangement, limit_kib
from planner.columns import Columns, IntColumn
from planner.engine import EngineResult, Limits, MemoryShortage, Search
from planner.mixed.candidate import (
    MixedCandidate,
    candidates_for_memory,
    settle_mixed_bound,
    settle_mixed_placement,
)
from planner.mixed.coefficients import Assignment, MixedCoefficients
from planner.mixed.even import bound_mixed_even, simulate_mixed_even
from planner.mixed.prices import GroupPrices
from planner.mixed.proof import prove_mixed
from planner.mixed.relaxed import RelaxedRows
from planner.priced_rows import TimeRows

_OTHERS = 4
"""Best placements of strategies of the same shape that are tried on a new one."""

_STEPS = 1
"""Candidates advanced after each refinement, for each plan that is asked for."""


def search_mixed(
    columns: Columns,
    prices: GroupPrices,
    *,
    memory_limit_bytes: float,
    top: int = 1,
    tolerance: float = 1e-3,
    time_limit_s: float | None = None,
    uneven: bool = True,
    rows: RelaxedRows | None = None,
) -> EngineResult:
    """Return the ``top`` fastest plans over the given strategies, all their placements and assignments.

    Args:
        columns: Legal strategies.
        prices: Prices them on each group.
        memory_limit_bytes: What a GPU may hold, where its group has that much.
        top: How many strategies to rank.
        tolerance: Relative gap at which the ranking counts as proved; 0 is exact.
        time_limit_s: Wall seconds after which the best so far is returned; None is no limit.
        uneven: Whether stages may differ; if not, they are equal but for embedding and head.
        rows: Prices and bounds of an earlier search over the same columns and prices.

    The placements of interleaved strategies are those of planner.mixed.even.
    """
    deadline = math.inf if time_limit_s is None else time.monotonic() + time_limit_s
    limits = Limits(limit_kib(memory_limit_bytes), top, tolerance, deadline, uneven)
    if not len(columns):
        return EngineResult()
    run = MixedSearch(rows or RelaxedRows(prices, columns), limits)
    run.explore()
    return run.result()


class MixedSearch(Search):
    """State of one search."""

    def __init__(self, prices: RelaxedRows, limits: Limits) -> None:
        super().__init__(prices, limits)
        self.relaxed = prices
        self.best: dict[Shape, list[Assignment]] = defaultdict(list)

    def _refine(self, rows: IntColumn) -> None:
        """Refine, then advance some of what is best so far.

        Floors are far below full prices where groups differ: without a time to beat, most rows would be priced.
        """
        floors = self.relaxed.even_floors(rows, uneven=self.limits.uneven)
        self.keys[rows] = np.maximum(self.keys[rows], floors)
        super()._refine(rows)
        steps = _STEPS * self.limits.top
        while steps and self._heap_key() < self._goal():
            self._advance()
            steps -= 1

    def _even_bounds(self, rows: IntColumn, part: TimeRows) -> IntColumn:
        return self.relaxed.bounds(rows, part, uneven=self.limits.uneven)

    def _bound(self, candidate: Candidate, cutoff_ns: int | None) -> bool:
        if not isinstance(candidate, MixedCandidate):
            return settle_bound(candidate, cutoff_ns)
        if self.even[candidate.row]:
            return bound_mixed_even(candidate, uneven=self.limits.uneven)
        return settle_mixed_bound(candidate, cutoff_ns)

    def _candidate(self, row: int, key: int) -> Candidate:
        limit = self.limits.memory_kib
        if not self.relaxed.slots[:, row].any():
            given = self.relaxed.spread(row, limit)
            return Candidate(row=row, given=given, lower_ns=key, paths=self.paths[given.shape])
        mixed = self.relaxed.mixed(row, limit)
        given = mixed.by_group[0]
        paths = self.paths[given.shape]
        return MixedCandidate(row=row, given=given, lower_ns=key, paths=paths, mixed=mixed)

    def _simulate(self, candidate: Candidate) -> None:
        if not isinstance(candidate, MixedCandidate):
            super()._simulate(candidate)
            return
        if candidate.choices:
            simulate_mixed_even(candidate)
            return
        best = self.best[candidate.mixed.shape]
        settle_mixed_placement(candidate, self.limits.tolerance, islice(reversed(best), _OTHERS))
        if candidate.incumbent is not None:
            best.append(Assignment(candidate.incumbent.cuts, candidate.groups))

    def _proved(self, candidate: Candidate) -> bool:
        if not isinstance(candidate, MixedCandidate):
            return super()._proved(candidate)
        found = any(item is candidate for item in self.found)
        limits = self.limits
        done = prove_mixed(candidate, limits.tolerance, self.worst, limits.deadline)
        if not found:
            self._note(candidate, known=False)
        return done

    def _shortage(self, row: int) -> MemoryShortage | None:
        """Return the worst rank of the best of a few placements with every layer recomputing; None where spread."""
        if not self.relaxed.slots[:, row].any():
            return None
        mixed = self.relaxed.mixed(row, self.limits.memory_kib)
        found = [_shortage(mixed, chosen) for chosen in candidates_for_memory(mixed)]
        known = [item for item in found if item is not None]
        return min(known, key=lambda item: item.over_bytes, default=None)


def _shortage(given: MixedCoefficients, chosen: Assignment) -> MemoryShortage | None:
    """Return the rank that exceeds its limit most when every layer recomputes; None if those of several groups do."""
    sizes = tuple(stop - start for start, stop in pairwise(chosen.cuts))
    everything = Arrangement(chosen.cuts, sizes)
    over = given.over_kib(everything, chosen.groups)
    if len({group for group, lack in zip(chosen.groups, over, strict=True) if lack > 0}) > 1:
        return None
    rank = int(over.argmax())
    group = chosen.groups[rank]
    demand, moment = given.by_group[group].demand_kib(rank, everything)
    return MemoryShortage(
        strategy=given.by_group[group].strategy,
        rank=rank,
        moment=moment,
        demand_bytes=demand * KIB,
        over_bytes=int(over[rank]) * KIB,
        group=group,
    )
