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
    tables, width = rows.tables, rows.tables.legal.shape[4]
    if _size(old) * width * len(rows.groups) > 40 * MOST_PLACEMENTS:
        return None
    at = (stage, group, old.state, old.offset)
    wait = rows.wait[group]
    forward = tables.forward[at][:, None, :] + wait[None, :, None]
    backward = (tables.backward[at] + wait[old.before_group][:, None])[:, None, :]
    weight, finish = tables.weight[at][:, None, :], tables.finish[at][:, None, :]
    next_state = old.state + rows.usage.shift[group]
    inside = next_state < rows.usage.states
    reached = np.minimum(next_state, rows.usage.states - 1)
    left = rows.following[stage + 1][group][:, reached].swapaxes(0, 1)
    to_first, to_own = rows.parts(stage, forward, backward, weight, finish, left)
    below = old.before - old.forward_before
    ending = np.maximum(old.ending[:, None, None], finish - below[:, None, None])
    row = np.maximum(
        old.before[:, None, None] + to_first + ending,
        old.forward_before[:, None, None] + to_own,
    )
    bound = np.maximum(old.bound[:, None, None], row)
    ahead = rows.ahead[stage + 1][group][:, reached].swapaxes(0, 1)
    legal = (tables.legal[at] & inside[:, None])[:, None, :]
    source, after, offset = np.nonzero(legal & (ahead < cutoff_ns) & (bound < cutoff_ns))
    if len(source) > MOST_PLACEMENTS:
        return None
    kept = old.take(source)
    state = next_state[source]
    hop = rows.hops[stage + 1, group, after, state]
    own = forward[source, after, offset]
    back = np.broadcast_to(backward, bound.shape)[source, after, offset]
    gradient, end = weight[source, 0, offset], finish[source, 0, offset]
    step = own + back - (gradient if rows.split else 0)

    def grown(name: str, column: Ints) -> Ints:
        return np.column_stack([getattr(kept, name), column])

    return _Frontier(
        before_group=np.full(len(source), group),
        group=after,
        state=state,
        offset=offset,
        before=kept.before + rows.flushes * (step + 2 * hop),
        forward_before=kept.forward_before + rows.flushes * (own + hop),
        bound=bound[source, after, offset],
        ending=np.broadcast_to(ending, bound.shape)[source, after, offset],
        cuts=grown("cuts", tables.low[stage + 1, state] + offset),
        groups=grown("groups", np.full(len(source), group)),
        forward=grown("forward", own),
        backward=grown("backward", back),
        weight=grown("weight", gradient),
        finish=grown("finish", end),
        hops=grown("hops", hop),
    )


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
