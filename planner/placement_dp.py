"""Lower bound and a good placement of one strategy, by dynamic programming over cut positions.

Every row of the bound (planner.rows) is the time of one stage plus lower bounds of what comes before and after it, so
the smallest possible maximum over stages is found stage by stage: a bottleneck path through the cut positions. It
works for any sequence of layer kinds and respects the memory of each stage.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from planner.coefficients import Arrangement, Coefficients
from planner.rows import Rows
from planner.stage_tables import NEVER, stage_tables
from planner.windows import Budgets, Windows

_MANY_RANGES = 200_000
"""Ranges of layers from which tables cost more than finding a tighter cutoff first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementBound:
    """What the dynamic programme found.

    Attributes:
        bound_ns: No placement within the windows is faster.
        arrangement: A placement that attains the smallest maximum of the rows.
    """

    bound_ns: int
    arrangement: Arrangement


def placement_bound(given: Coefficients, cutoff_ns: int | None = None) -> PlacementBound | None:
    """Bound the iteration of every placement of a strategy with one chunk a rank.

    Args:
        given: The strategy's coefficients.
        cutoff_ns: Placements known to take at least this long need not be looked at.

    Returns:
        None where no placement fits, or none takes less than the cutoff.
    """
    budgets = Budgets(given)
    cutoff = np.inf if cutoff_ns is None else float(cutoff_ns)
    windows = budgets.narrow(cutoff)
    if windows is None:
        return None
    if windows.ranges > _MANY_RANGES:
        found = _within_tight_cutoffs(given, budgets, cutoff)
    else:
        found = _within(given, windows)
    if found is None or (cutoff_ns is not None and found.bound_ns >= cutoff_ns):
        return None
    return found


def _within(given: Coefficients, windows: Windows) -> PlacementBound | None:
    rows = Rows(given, stage_tables(given, windows))
    found = smallest_maximum(rows)
    if found is None:
        return None
    return PlacementBound(bound_ns=found[0], arrangement=_arrangement(rows, found[1]))


def _within_tight_cutoffs(
    given: Coefficients, budgets: Budgets, cutoff: float
) -> PlacementBound | None:
    """Try cutoffs from just above the smallest possible one: they leave narrow windows.

    What is found below a trial cutoff is the bound over all placements, as the others reach the cutoff.
    """
    busy = given.shape.microbatches * budgets.whole
    trial = budgets.least_cutoff(
        busy / given.shape.ranks / 2, min(cutoff, 4 * busy + given.fixed_ns)
    )
    step = 0.01
    while True:
        trial = min(trial * (1 + step), cutoff)
        windows = budgets.narrow(trial)
        found = None if windows is None else _within(given, windows)
        if found is not None and found.bound_ns < trial:
            return found
        if trial >= min(cutoff, 16 * busy + given.fixed_ns):
            return found
        step *= 2


def smallest_maximum(rows: Rows) -> tuple[int, list[int]] | None:
    """Return the bound and the positions of the cuts that attain the smallest maximum of the rows.

    Paths that end on rank 0 add its finish, which depends on the first cut: intervals of first cuts are
    bounded with the least finish in them, and the interval with the smallest bound is halved until it is one cut.
    """
    if rows.total >= NEVER:
        return None
    width = rows.tables.legal.shape[2]
    heap = [(0, 0, width)]
    while True:
        _, low, high = heapq.heappop(heap)
        found = _bottleneck(rows, low, high)
        if high - low == 1 and (not heap or found[0] <= heap[0][0]):
            break
        middle = (low + high) // 2
        for part in ((low, middle), (middle, high)) if high - low > 1 else ((low, high),):
            heapq.heappush(heap, (_bottleneck(rows, *part)[0], *part))
    if found[0] >= NEVER:
        return None
    low_cuts = rows.tables.windows.low
    return found[0], [int(low_cuts[cut]) + offset for cut, offset in enumerate(found[1])]


def _bottleneck(rows: Rows, low: int, high: int) -> tuple[int, list[int]]:
    """Return bound and offsets of the cuts when the first cut is at an offset from ``low`` to before ``high``."""
    finish = rows.finish_of_first(low, high)
    if finish >= NEVER:
        return int(NEVER), []
    values = rows.values(finish)
    values[0, :, :low] = values[0, :, high:] = NEVER
    reached, back = np.zeros(values.shape[1], dtype=np.int64), []
    for value in values:
        worst = np.maximum(value, reached[:, None])
        back.append(worst.argmin(axis=0))
        reached = worst.min(axis=0)
    offset, offsets = 0, [0]
    for choice in reversed(back):
        offset = int(choice[offset])
        offsets.append(offset)
    bound = max(int(reached[0]), rows.textbook(finish))
    return min(bound, int(NEVER)), offsets[::-1]


def _arrangement(rows: Rows, cuts: list[int]) -> Arrangement:
    """Return the placement with these cuts and the fewest recomputed layers."""
    tables = rows.tables
    at = [cut - int(tables.windows.low[index]) for index, cut in enumerate(cuts)]
    again = [int(tables.recomputed[s, at[s], at[s + 1]]) for s in range(tables.stages)]
    return Arrangement(tuple(cuts), tuple(again))
