"""All placements, with the groups of their ranks, whose rows stay below a cutoff: planner.enumeration for several groups.

Partial placements grow stage by stage, all at once, with exact times before the stage; those whose rows, or the least
rows ahead, reach the cutoff are dropped. Whole placements keep their exact stage times, so that a critical path bounds
all of them at once.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from costmodel.timeline import CriticalPath
from planner.coefficients import Ints
from planner.enumeration import MOST_PLACEMENTS
from planner.mixed.coefficients import Assignment
from planner.mixed.rows import MixedRows
from planner.stage_tables import Mask


class _Frontier(NamedTuple):
    """Partial placements, one a row; the last axis of two-dimensional arrays runs over stages or cuts so far."""

    before_group: Ints
    group: Ints
    state: Ints
    offset: Ints
    before: Ints
    forward_before: Ints
    bound: Ints
    ending: Ints
    cuts: Ints
    groups: Ints
    forward: Ints
    backward: Ints
    weight: Ints
    finish: Ints
    hops: Ints

    def take(self, rows: Ints) -> "_Frontier":
        return _Frontier(*(column[rows] for column in self))


@dataclass(slots=True)
class Placements:
    """Placements that may be faster than a cutoff, with their exact stage times.

    Attributes:
        found: Cuts, groups and times by placement.
        bound: Lower bound of each in nanoseconds.
    """

    found: _Frontier
    bound: Ints
    split: bool

    def __len__(self) -> int:
        return len(self.bound)

    def at(self, index: int) -> Assignment:
        """Return one placement."""
        cuts, groups = self.found.cuts[index].tolist(), self.found.groups[index].tolist()
        return Assignment(tuple(cuts), tuple(groups))

    def raise_bounds(self, path: CriticalPath) -> None:
        """Raise every bound to the length of a path."""
        found = self.found
        back = found.backward - found.weight if self.split else found.backward
        lengths = found.forward @ np.array(path.forward) + back @ np.array(path.backward)
        if self.split:
            lengths = lengths + found.weight @ np.array(path.weight)
        lengths = lengths + found.hops[:, :-1] @ np.array(path.transfer[:-1], dtype=np.int64)
        self.bound = np.maximum(self.bound, lengths + found.finish[:, path.rank])

    def keep_below(self, goal_ns: int) -> None:
        """Drop the placements whose bound reaches the goal."""
        keep = np.flatnonzero(self.bound < goal_ns)
        self.found, self.bound = self.found.take(keep), self.bound[keep]


def enumerate_assignments(rows: MixedRows, cutoff_ns: int) -> Placements | None:
    """Return every placement whose rows stay below ``cutoff_ns``; None where there are too many."""
    frontier = _start(rows)
    for stage in range(rows.stages):
        parts = [_grow(rows, frontier, stage, group, cutoff_ns) for group in rows.groups]
        grown = [part for part in parts if part is not None]
        if len(grown) < len(parts) or sum(map(_size, grown)) > MOST_PLACEMENTS:
            return None
        frontier = _joined(grown)
    frontier = _with_ends(rows, frontier)
    return Placements(frontier, frontier.bound, rows.split)


def _size(frontier: _Frontier) -> int:
    return len(frontier.bound)


def _joined(parts: list[_Frontier]) -> _Frontier:
    return _Frontier(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _start(rows: MixedRows) -> _Frontier:
    group = np.array(rows.groups)
    nothing = np.zeros_like(group)
    empty = np.zeros((len(group), 0), dtype=np.int64)
    return _Frontier(
        *(group, group, nothing, nothing, nothing, nothing, nothing, nothing),
        *(nothing[:, None], empty, empty, empty, empty, empty, empty),
    )


def _grow(
    rows: MixedRows, frontier: _Frontier, stage: int, group: int, cutoff_ns: int
) -> _Frontier | None:
    """Add every upper cut of ``stage`` and group behind it to the partial placements that put it on ``group``."""
    old = frontier.take(np.flatnonzero(frontier.group == group))
    width = rows.tables.legal.shape[4]
    if _size(old) * width * len(rows.groups) > 40 * MOST_PLACEMENTS:
        return None
    growth = _Growth(rows, old, stage, group)
    bound, ending = growth.bounds()
    source, after, offset = np.nonzero(growth.open(cutoff_ns) & (bound < cutoff_ns))
    if len(source) > MOST_PLACEMENTS:
        return None
    picked = bound[source, after, offset], ending[source, 0, offset]
    return growth.grown(source, after, offset, *picked)


class _Growth:
    """Partial placements times groups behind the next stage times its upper cuts; times are exact."""

    def __init__(self, rows: MixedRows, old: _Frontier, stage: int, group: int) -> None:
        self.rows, self.old, self.stage, self.group = rows, old, stage, group
        at, wait, tables = (stage, group, old.state, old.offset), rows.wait[group], rows.tables
        self.legal = tables.legal[at][:, None, :]
        self.forward = tables.forward[at][:, None, :] + wait[None, :, None]
        back = tables.backward[at] + wait[old.before_group][:, None]
        self.backward, self.weight = back[:, None, :], tables.weight[at][:, None, :]
        self.finish = tables.finish[at][:, None, :]
        self.state = old.state + rows.usage.shift[group]
        self.inside = self.state < rows.usage.states
        self.reached = np.minimum(self.state, rows.usage.states - 1)

    def _behind(self, values: Ints) -> Ints:
        """Return values of the next cut by partial placement, group behind it and offset."""
        behind = values[self.stage + 1][self.group][:, self.reached]
        return np.asarray(behind.swapaxes(0, 1))

    def open(self, cutoff_ns: int) -> Mask:
        """Return which are legal and lead on to something below the cutoff."""
        leads_on = self._behind(self.rows.ahead) < cutoff_ns
        return np.asarray(self.legal & self.inside[:, None, None] & leads_on)

    def bounds(self) -> tuple[Ints, Ints]:
        """Return the largest row so far, and the finish at the end of the way back (Q of planner.rows)."""
        old, left = self.old, self._behind(self.rows.following)
        to_first, to_own = self.rows.parts(
            self.stage, self.forward, self.backward, self.weight, self.finish, left
        )
        below = (old.before - old.forward_before)[:, None, None]
        ending = np.maximum(old.ending[:, None, None], self.finish - below)
        back = old.before[:, None, None] + to_first + ending
        own = old.forward_before[:, None, None] + to_own
        return np.maximum(old.bound[:, None, None], np.maximum(back, own)), ending

    def grown(
        self, source: Ints, after: Ints, offset: Ints, bound: Ints, ending: Ints
    ) -> _Frontier:
        """Return the chosen ones as partial placements with one stage more."""
        rows, kept, state = self.rows, self.old.take(source), self.state[source]
        hop = rows.hops[self.stage + 1, self.group, after, state]
        forward, backward = self.forward[source, after, offset], self.backward[source, 0, offset]
        weight, finish = self.weight[source, 0, offset], self.finish[source, 0, offset]
        step = forward + backward - (weight if rows.split else 0)
        own = np.full(len(source), self.group)
        return _Frontier(
            before_group=own,
            group=after,
            state=state,
            offset=offset,
            before=kept.before + rows.flushes * (step + 2 * hop),
            forward_before=kept.forward_before + rows.flushes * (forward + hop),
            bound=bound,
            ending=ending,
            cuts=_with(kept.cuts, rows.tables.low[self.stage + 1, state] + offset),
            groups=_with(kept.groups, own),
            forward=_with(kept.forward, forward),
            backward=_with(kept.backward, backward),
            weight=_with(kept.weight, weight),
            finish=_with(kept.finish, finish),
            hops=_with(kept.hops, hop),
        )


def _with(columns: Ints, column: Ints) -> Ints:
    return np.asarray(np.column_stack([columns, column]))


def _with_ends(rows: MixedRows, found: _Frontier) -> _Frontier:
    """Add to the finish of the ends what they take more because of each other's group."""
    if rows.stages == 1:
        return found
    tied = np.array(rows.given.tied_ns, dtype=np.int64)
    first, last = found.groups[:, 0], found.groups[:, -1]
    finish = found.finish.copy()
    finish[:, 0] += tied[first, last]
    finish[:, -1] += tied[last, first]
    return found._replace(finish=finish)
