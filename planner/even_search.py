"""Strategies whose placements are few: interleaving, and frameworks that only split evenly."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from costmodel.simulator import iteration_ns
from costmodel.strategy import SCHEDULES
from costmodel.timeline import PipelineWork
from planner.candidate import Candidate
from planner.coefficients import Arrangement, Coefficients, Ints
from planner.even_bounds import applies_to, even_bounds, even_cuts
from planner.local_search import Incumbent
from planner.priced_rows import LinearColumns, TimeRows


def settle_even(candidate: Candidate, goal_ns: float, *, uneven: bool) -> bool:
    """Simulate the even placements that may beat ``goal_ns`` and close ``candidate``.

    Returns:
        Whether a placement fits, or may fit but cannot beat the goal.
    """
    given = candidate.given
    stages = given.shape.ranks * given.shape.chunks
    choices = even_cuts(len(given.layer_kinds), stages, uneven)
    bounds = _bounds(given, len(choices), uneven)
    best_ns = least = math.inf
    for index in np.argsort(bounds, kind="stable"):
        if bounds[index] >= min(goal_ns, best_ns):
            least = min(least, bounds[index])
            break
        arrangement = with_recomputation(given, choices[index])
        if arrangement is None:
            continue
        work = given.work(arrangement)
        bound = chain_ns(work) if applies_to(given.shape.schedule) else 0
        if bound >= min(goal_ns, best_ns):
            least = min(least, bound)
            continue
        candidate.simulated += 1
        time_ns = iteration_ns(work)
        if time_ns < best_ns:
            best_ns = time_ns
            candidate.placed = arrangement
            candidate.incumbent = Incumbent(cuts=arrangement.cuts, time_ns=time_ns)
    lower = min(least, best_ns)
    if not math.isinf(lower):
        candidate.close(int(lower))
    return not math.isinf(lower)


def chain_ns(work: PipelineWork) -> int:
    """Return a lower bound of an iteration: the rows of planner.even_bounds for known durations."""
    ranks, m = work.shape.ranks, work.shape.microbatches
    there = back = best = 0
    for rank in range(ranks):
        busy = m * (sum(work.forward_ns[rank::ranks]) + sum(work.backward_ns[rank::ranks]))
        ends = max(back + work.finish_ns[0], work.finish_ns[rank])
        best = max(best, there + busy + ends)
        there += work.forward_ns[rank] + work.transfer_ns[rank]
        back += work.backward_ns[rank] + work.transfer_ns[rank]
    return best


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
    again = sizes if given.recompute_all else [0] * len(sizes)
    arrangement = Arrangement(tuple(cuts), tuple(again))
    over = np.flatnonzero(given.demands_kib(arrangement).max(axis=0) > given.limit_kib)
    if not len(over):
        return arrangement
    return None if given.recompute_all else _relieved(given, arrangement, over)


def _relieved(given: Coefficients, full: Arrangement, over: Ints) -> Arrangement | None:
    """Return ``full`` with the fewest recomputed layers on the ranks that are ``over``, all searched at once."""
    ranks, chunks = given.shape.ranks, given.shape.chunks
    sizes = np.diff(np.array(full.cuts)).reshape(chunks, ranks)
    low, high = np.zeros(ranks, dtype=np.int64), np.zeros(ranks, dtype=np.int64)
    low[over], high[over] = 1, sizes.max(axis=0)[over]

    def arrangement(counts: Ints) -> Arrangement:
        return Arrangement(full.cuts, tuple(np.minimum(sizes, counts).ravel().tolist()))

    if (given.demands_kib(arrangement(high)) > given.limit_kib).any():
        return None
    while (low < high).any():
        middle = (low + high) // 2
        fits = given.demands_kib(arrangement(middle)).max(axis=0) <= given.limit_kib
        low, high = np.where(fits | (low >= high), low, middle + 1), np.where(fits, middle, high)
    return arrangement(low)
