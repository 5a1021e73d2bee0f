"""Interleaved strategies, and frameworks that only split evenly, on several device groups: simulate what may be best."""

from itertools import pairwise

import numpy as np

from costmodel.simulator import iteration_ns
from planner.coefficients import Arrangement, Ints
from planner.even_bounds import applies_to
from planner.even_search import chain_ns
from planner.mixed.candidate import MixedCandidate
from planner.mixed.coefficients import Assignment, MixedCoefficients
from planner.mixed.even_bounds import even_assignments


def settle_mixed_even(candidate: MixedCandidate, goal_ns: float, *, uneven: bool) -> bool:
    """Simulate the even placements that may beat ``goal_ns`` and close ``candidate``.

    Returns:
        Whether a placement fits, or may fit but cannot beat the goal.
    """
    given, least = candidate.mixed, float("inf")
    for chosen in placements(given, uneven=uneven):
        limit = min(goal_ns, float("inf") if candidate.time_ns is None else candidate.time_ns)
        bound = _busiest(given, chosen)
        if bound < limit:
            arrangement = with_recomputation(given, chosen)
            if arrangement is None:
                continue
            work = given.work(arrangement, chosen.groups)
            bound = max(bound, chain_ns(work) if applies_to(given.shape.schedule) else 0)
            if bound < limit:
                candidate.simulated += 1
                bound = iteration_ns(work)
                if candidate.time_ns is None or bound < candidate.time_ns:
                    candidate.placed = arrangement
                candidate.take(chosen, bound)
        least = min(least, bound)
    if least < float("inf"):
        candidate.close(int(least))
    return least < float("inf")


def placements(given: MixedCoefficients, *, uneven: bool) -> tuple[Assignment, ...]:
    """Return the even placements of a strategy with their groups, whatever their memory."""
    shape = given.shape
    return even_assignments(given.layers, shape.ranks, shape.chunks, given.slots, uneven=uneven)


def _busiest(given: MixedCoefficients, chosen: Assignment) -> int:
    """Return a lower bound at once: what the busiest rank computes, without recomputation."""
    ranks, m = given.shape.ranks, given.shape.microbatches
    totals = [0] * ranks
    for stage, (start, stop) in enumerate(pairwise(chosen.cuts)):
        item = given.by_group[chosen.groups[stage % ranks]]
        held = item.between(start, stop)
        none = (0,) * len(held)
        for linear in (item.forward, item.backward):
            totals[stage % ranks] += m * linear.value(held, none, False, False)
    return max(totals)


def with_recomputation(given: MixedCoefficients, chosen: Assignment) -> Arrangement | None:
    """Return the placement with the fewest recomputed layers that fits; None if none does.

    All chunks of a rank recompute equally many layers, or all of theirs where they have fewer.
    """
    sizes = np.diff(np.array(chosen.cuts)).reshape(given.shape.chunks, given.shape.ranks)
    low = np.zeros(given.shape.ranks, dtype=np.int64)
    high = sizes.max(axis=0)

    def arrangement(counts: Ints) -> Arrangement:
        return Arrangement(chosen.cuts, tuple(np.minimum(sizes, counts).ravel().tolist()))

    def fits(counts: Ints) -> Ints:
        return np.asarray(given.over_kib(arrangement(counts), chosen.groups) <= 0)

    if given.recompute_all:
        return arrangement(high) if fits(high).all() else None
    high = np.where(fits(low), 0, high)
    if not fits(high).all():
        return None
    while (low < high).any():
        middle = (low + high) // 2
        good = fits(middle)
        low, high = np.where(good | (low >= high), low, middle + 1), np.where(good, middle, high)
    return arrangement(low)
