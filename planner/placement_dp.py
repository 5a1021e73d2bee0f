"""Lower bound and a good placement of one strategy, by dynamic programming over cut positions.

Every row of the bound (planner.rows) is the time of one stage plus lower bounds of what comes before and after it, so
the smallest possible maximum over stages is found stage by stage: a bottleneck path through the cut positions. It
works for any sequence of layer kinds and respects the memory of each stage.
"""

from dataclasses import dataclass

import numpy as np

from planner.coefficients import Arrangement, Coefficients, Ints
from planner.rows import Rows
from planner.stage_tables import NEVER, stage_tables
from planner.windows import Budgets, Windows

_MANY_RANGES = 200_000
"""Ranges of layers from which tables cost more than finding a tighter cutoff first."""
_STEP = 0.003
"""Relative distance of the first cutoff to the smallest with a placement; doubled while none is found."""
_STATE = 200_000
"""Entries of a stage's table over levels of the finish and ranges, at most."""
_REFINEMENTS, _FINE = 3, 2e-4
"""How often levels are refined, and the share of the bound below which their distance does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementBound:
    """What the dynamic programme found.

    Attributes:
        bound_ns: No placement within the windows is faster.
        arrangement: A placement that attains the smallest maximum of the rows.
    """

    bound_ns: int
    arrangement: Arrangement


def placement_bound(
    given: Coefficients, cutoff_ns: int | None = None, lower_ns: int = 0
) -> PlacementBound | None:
    """Bound the iteration of every placement of a strategy with one chunk a rank.

    Args:
        given: The strategy's coefficients.
        cutoff_ns: Placements known to take at least this long need not be looked at.
        lower_ns: A bound that is known already.

    Returns:
        None where no placement fits, or none takes less than the cutoff.
    """
    budgets = Budgets(given)
    cutoff = np.inf if cutoff_ns is None else float(cutoff_ns)
    windows = budgets.narrow(cutoff)
    if windows is None:
        return None
    if windows.ranges > _MANY_RANGES:
        found = _within_tight_cutoffs(given, budgets, cutoff, lower_ns)
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
    given: Coefficients, budgets: Budgets, cutoff: float, lower_ns: int
) -> PlacementBound | None:
    """Try cutoffs from just above the smallest possible one: they leave narrow windows.

    What is found below a trial cutoff is the bound over all placements, as the others reach the cutoff. What is found
    above it is a cutoff with which the next trial finds the bound, since wider windows only lower the rows.
    """
    busy = given.shape.microbatches * budgets.whole
    least = max(busy / given.shape.ranks / 2, float(lower_ns))
    trial = budgets.least_cutoff(least, min(cutoff, 4 * busy + given.fixed_ns))
    step = _STEP
    while True:
        trial = min(trial * (1 + step), cutoff)
        windows = budgets.narrow(trial)
        found = None if windows is None else _within(given, windows)
        if found is not None and found.bound_ns < trial:
            return found
        if trial >= min(cutoff, 16 * busy + given.fixed_ns):
            return found
        if found is None:
            step *= 2
        else:
            trial, step = found.bound_ns + 1.0, 0.0


def smallest_maximum(rows: Rows, *, most_levels: int = 1) -> tuple[int, list[int]] | None:
    """Return the bound and the positions of the cuts that attain the smallest maximum of the rows.

    Q, the finish at the end of the way back, grows from stage to stage with what the stages hold. With several
    levels it is part of the state, rounded down to a level, and the levels are refined around the best one.
    """
    if max(rows.total, rows.least_finish) >= NEVER:
        return None
    best = _one_level(rows) if most_levels == 1 else _refined(rows, most_levels)
    if best is None:
        return None
    low = rows.tables.windows.low
    cuts = [int(low[cut]) + offset for cut, offset in enumerate(best[1])]
    return max(best[0], rows.textbook()), cuts


def _one_level(rows: Rows) -> tuple[int, list[int]] | None:
    """Return bound and offsets of the cuts with the least finish as Q."""
    reached = np.full(rows.tables.legal.shape[1], NEVER)
    reached[0] = 0
    steps = []
    for stage in range(rows.stages):
        value = np.maximum(reached[:, None], rows.larger(stage))
        steps.append(value)
        reached = value.min(axis=0)
    offsets = [0]
    for value in reversed(steps):
        offsets.append(int(value[:, offsets[-1]].argmin()))
    bound = int(reached[0])
    return (bound, offsets[::-1]) if bound < NEVER else None


def _refined(rows: Rows, most_levels: int) -> tuple[int, list[int]] | None:
    """Return bound and offsets of the cuts with levels of Q, refined around the best one."""
    legal = rows.tables.legal
    most = int(rows.ending.max(initial=rows.least_finish, where=legal))
    size = legal.shape[1] * legal.shape[2]
    count = max(1, min(most_levels, _STATE // size))
    levels = _spread(rows.least_finish, most, count)
    best: tuple[int, list[int]] | None = None
    for _ in range(_REFINEMENTS):
        bound, cuts, level = _bottleneck(rows, levels)
        if bound >= NEVER:
            return None
        if best is None or bound > best[0]:
            best = bound, cuts
        above = levels[min(level + 1, len(levels) - 1)]
        if count == 1 or above - levels[level] < _FINE * bound:
            break
        around = _spread(int(levels[max(level - 1, 0)]), int(above), count // 2)
        levels = np.unique(np.concatenate([levels, around]))
    return best


def _spread(low: int, high: int, count: int) -> Ints:
    return np.unique(np.linspace(low, max(low, high), count).astype(np.int64))


def _bottleneck(rows: Rows, levels: Ints) -> tuple[int, list[int], int]:
    """Return bound, offsets of the cuts and level of Q of the smallest maximum; Q counts as its level."""
    reached = np.full((len(levels), rows.tables.legal.shape[1]), NEVER)
    reached[0, 0] = 0
    at = np.arange(len(levels))[:, None, None]
    steps = []
    for stage in range(rows.stages):
        level = np.searchsorted(levels, rows.ending[stage], side="right") - 1
        # A state of level q comes from the same level if the stage ends below it, from any lower one if at it.
        lowest = np.minimum.accumulate(reached, axis=0)[:, :, None]
        source = np.where(level < at, reached[:, :, None], np.where(level == at, lowest, NEVER))
        source[0] = np.where(level <= 0, reached[0][:, None], NEVER)
        back, own = rows.stage(stage)
        value = np.maximum(source, np.maximum(back + (levels - levels[0])[:, None, None], own))
        steps.append((reached, level, value.argmin(axis=1)))
        reached = value.min(axis=1)
    best = int(reached[:, 0].argmin())
    bound = min(int(reached[best, 0]), int(NEVER))
    return bound, _offsets(steps, best) if bound < NEVER else [], best


def _offsets(steps: list[tuple[Ints, Ints, Ints]], level: int) -> list[int]:
    """Walk back from the last cut at the given level."""
    offset, offsets = 0, [0]
    for reached, ends, choice in reversed(steps):
        start = int(choice[level, offset])
        if ends[start, offset] == level:
            level = int(reached[: level + 1, start].argmin())
        offset = start
        offsets.append(offset)
    return offsets[::-1]


def _arrangement(rows: Rows, cuts: list[int]) -> Arrangement:
    """Return the placement with these cuts and the fewest recomputed layers."""
    tables = rows.tables
    at = [cut - int(tables.windows.low[index]) for index, cut in enumerate(cuts)]
    again = [int(tables.recomputed[s, at[s], at[s + 1]]) for s in range(tables.stages)]
    return Arrangement(tuple(cuts), tuple(again))
