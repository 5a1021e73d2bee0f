"""Strategies whose placements are few: interleaving, and frameworks that only split evenly."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from costmodel.simulator import iteration_ns
from costmodel.strategy import SCHEDULES
from planner.candidate import Candidate
from planner.coefficients import Arrangement, Coefficients, Linear
from planner.even_bounds import applies_to, even_bounds, even_cuts
from planner.local_search import Incumbent
from planner.priced_rows import LinearColumns, TimeRows

Ints = NDArray[np.int64]


def settle_even(candidate: Candidate, goal_ns: float, *, uneven: bool) -> bool:
    """Simulate the even placements that may beat ``goal_ns`` and close ``candidate``.

    Returns:
        Whether a placement fits, or may fit but cannot beat the goal.
    """
    given = candidate.given
    stages = given.shape.ranks * given.shape.chunks
    choices = even_cuts(len(given.layer_kinds), stages, uneven)
    bounds = _bounds(given, len(choices), uneven)
    best_ns: float = math.inf
    for index in np.argsort(bounds, kind="stable"):
        if bounds[index] >= min(goal_ns, best_ns):
            candidate.close(int(min(bounds[index], best_ns)))
            return True
        arrangement = with_recomputation(given, choices[index])
        if arrangement is None:
            continue
        candidate.simulated += 1
        time_ns = iteration_ns(given.work(arrangement))
        if time_ns < best_ns:
            best_ns = time_ns
            candidate.placed = arrangement
            candidate.incumbent = Incumbent(cuts=arrangement.cuts, time_ns=time_ns)
    if candidate.incumbent is not None:
        candidate.close(candidate.incumbent.time_ns)
    return candidate.incumbent is not None


def _bounds(given: Coefficients, choices: int, uneven: bool) -> NDArray[np.float64]:
    if not choices or not applies_to(given.shape.schedule):
        return np.zeros(choices)
    bounds = even_bounds(one_row(given), uneven=uneven)[0]
    return np.asarray(np.floor(bounds * (1 - 1e-12)) - 1)


def one_row(given: Coefficients) -> TimeRows:
    """Return a single strategy as columns."""
    return TimeRows(
        ranks=np.array([given.shape.ranks]),
        chunks=np.array([given.shape.chunks]),
        microbatches=np.array([given.shape.microbatches]),
        schedule=np.array([SCHEDULES.index(given.shape.schedule)]),
        recompute_all=np.array([given.recompute_all]),
        kinds=given.layer_kinds,
        forward=LinearColumns.of([given.forward]),
        backward=LinearColumns.of([given.backward]),
        weight=LinearColumns.of([given.weight]),
        hop=np.array([float(min(given.transfer_ns[:-1], default=0))]),
        finish=tuple(LinearColumns.of([item]) for item in given.finish),
    )


def with_recomputation(given: Coefficients, cuts: Sequence[int]) -> Arrangement | None:
    """Return the placement with the fewest recomputed layers that fits; None if none does.

    All chunks of a rank recompute equally many layers, or all of theirs where they have fewer.
    """
    sizes = [stop - start for start, stop in pairwise(cuts)]
    again = list(sizes) if given.recompute_all else [0] * len(sizes)
    arrangement = Arrangement(tuple(cuts), tuple(again))
    demand = demands_kib(given, arrangement).max(axis=0)
    for rank in np.flatnonzero(demand > given.limit_kib).tolist():
        if given.recompute_all or not _relieve(given, cuts, sizes, again, rank):
            return None
    return Arrangement(tuple(cuts), tuple(again))


def _relieve(
    given: Coefficients, cuts: Sequence[int], sizes: list[int], again: list[int], rank: int
) -> bool:
    """Raise the recomputed layers of a rank in ``again`` until it fits; return whether it does."""
    own = slice(rank, None, given.shape.ranks)
    for count in range(1, max(sizes[own]) + 1):
        again[own] = [min(count, size) for size in sizes[own]]
        arrangement = Arrangement(tuple(cuts), tuple(again))
        if given.demand_kib(rank, arrangement)[0] <= given.limit_kib:
            return True
    return False


def demands_kib(given: Coefficients, arrangement: Arrangement) -> Ints:
    """Return the KiB of every rank by moment: ``Coefficients.demand_kib`` for all at once."""
    ranks, chunks = given.shape.ranks, given.shape.chunks
    counts, cuts = np.array(given.counts, dtype=np.int64), np.array(arrangement.cuts)
    again = counts[cuts[:-1] + np.array(arrangement.recomputed)] - counts[cuts[:-1]]
    held = counts[cuts[1:]] - counts[cuts[:-1]]
    flight = np.array(given.in_flight, dtype=np.int64).T
    recomputes = (again.reshape(chunks, ranks, -1).sum(axis=(0, 2)) > 0).astype(np.int64)

    def of(linear: Linear) -> Ints:
        value = held @ np.array(linear.layer) + again @ np.array(linear.recomputed)
        value[0] += linear.first
        value[-1] += linear.last
        return np.asarray(value.reshape(chunks, ranks))

    return np.stack(
        [
            row.kept.fixed
            + of(row.kept).sum(axis=0)
            + (flight * (of(row.flight) + row.flight.fixed)).sum(axis=0)
            + row.recompute_once * recomputes
            for row in given.memory
        ]
    )
