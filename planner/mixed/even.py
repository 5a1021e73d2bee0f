"""Interleaved strategies, and frameworks that only split evenly, on several device groups.

Their placements are few: the ranks of each group stand together, in any order of the groups, and all chunks of a
group's ranks hold equally many layers. What does not divide goes to the chunks of one group, one layer each, from the
front, from the back or spread. On one group alone the placements are those of planner.even_cuts.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from costmodel.simulator import iteration_ns
from planner.coefficients import Arrangement, Ints
from planner.even_bounds import applies_to, even_cuts
from planner.even_search import chain_ns
from planner.mixed.candidate import MixedCandidate, blocks
from planner.mixed.coefficients import Assignment, MixedCoefficients


def settle_mixed_even(candidate: MixedCandidate, goal_ns: float, *, uneven: bool) -> bool:
    """Simulate the even placements that may beat ``goal_ns`` and close ``candidate``.

    Returns:
        Whether a placement fits, or may fit but cannot beat the goal.
    """
    given, least = candidate.mixed, float("inf")
    for chosen in even_assignments(given, uneven=uneven):
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


def even_assignments(given: MixedCoefficients, *, uneven: bool) -> Iterator[Assignment]:
    """Yield every even placement with its groups, whatever its memory."""
    chunks = given.shape.chunks
    for groups in blocks(given.slots, given.shape.ranks):
        stages = groups * chunks
        if len(set(groups)) == 1 or not uneven:
            found = even_cuts(given.layers, len(stages), uneven)
        else:
            found = tuple(dict.fromkeys(_group_cuts(given.layers, stages)))
        for cuts in found:
            yield Assignment(cuts, groups)


def _group_cuts(layers: int, stages: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield cuts in which the chunks of a group are as equal as they can be; ``stages`` are groups of chunks."""
    used = sorted(set(stages))
    counts = [stages.count(group) for group in used]
    for sizes in _sizes(layers, counts):
        rest = layers - sum(map(int.__mul__, sizes, counts))
        each = dict(zip(used, sizes, strict=True))
        for group, count in zip(used, counts, strict=True):
            if rest >= count:
                continue
            for more in _spreads(rest, count):
                places = iter(more)
                held = [each[own] + (next(places) if own == group else 0) for own in stages]
                yield tuple(np.cumsum([0, *held]).tolist())


def _sizes(layers: int, counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield layers of a chunk by group, at least one, that leave fewer layers than the largest group has chunks."""
    first, *others = counts
    if not others:
        if layers >= first:
            yield (layers // first,)
        return
    for size in range(1, (layers - sum(others)) // first + 1):
        for more in _last_sizes(layers - size * first, others, max(counts)):
            yield (size, *more)


def _last_sizes(layers: int, counts: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    first, *others = counts
    for size in range(1, (layers - sum(others)) // first + 1):
        left = layers - size * first
        if others:
            yield from ((size, *more) for more in _last_sizes(left, others, most))
        elif left < most:
            yield (size,)


def _spreads(rest: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Return ways to give ``rest`` of ``count`` chunks one layer more."""
    front = tuple(int(at < rest) for at in range(count))
    spread = tuple((at + 1) * rest // count - at * rest // count for at in range(count))
    return tuple(dict.fromkeys((front, front[::-1], spread)))


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
