"""Exact proof by enumeration, where few placements are left within the cutoff.

Placements grow stage by stage, all at once; those whose rows, now with exact times before the stage, reach the cutoff
are dropped. What remains is a table of stage times, over which every critical path is one product: simulate the
placement with the smallest bound, raise the bounds of all by its path, drop what reaches the goal, repeat.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from costmodel.timeline import CriticalPath
from planner.coefficients import Ints
from planner.rows import Rows
from planner.stage_tables import Mask

MOST_PLACEMENTS = 60_000
"""Placements enumerated at most: their table times one path then costs milliseconds."""


class _Frontier(NamedTuple):
    """Partial placements: offset of the last cut, choices so far, sums before, largest row, Q of planner.rows."""

    offset: Ints
    chosen: Ints
    before: Ints
    forward_before: Ints
    bound: Ints
    finish: Ints


@dataclass(slots=True)
class Enumerated:
    """All placements that may be faster than the cutoff.

    Attributes:
        offsets: Offsets of the cuts into their windows, by placement and cut.
        bound: Lower bound of each in nanoseconds.
    """

    rows: Rows
    cutoff_ns: int
    offsets: Ints
    bound: Ints

    def __len__(self) -> int:
        return len(self.bound)

    def at(self, index: int) -> tuple[int, ...]:
        """Return one placement as positions of its cuts."""
        return tuple((self.offsets[index] + self.rows.tables.windows.low).tolist())

    def raise_bounds(self, path: CriticalPath) -> None:
        """Raise every bound to the length of a path."""
        tables = self.rows.tables
        stage = np.arange(tables.stages)
        table = np.array(path.forward)[:, None, None] * tables.forward
        table += np.array(path.backward)[:, None, None] * tables.backward
        if self.rows.split:
            rest = np.array(path.weight) - np.array(path.backward)
            table += rest[:, None, None] * tables.weight
        table[path.rank] += tables.finish[path.rank]
        lengths = table[stage, self.offsets[:, :-1], self.offsets[:, 1:]].sum(axis=1)
        transfer = self.rows.given.transfer_ns
        lengths += sum(count * hop for count, hop in zip(path.transfer, transfer, strict=True))
        self.bound = np.maximum(self.bound, lengths)

    def keep_below(self, goal_ns: int) -> None:
        """Drop the placements whose bound reaches the goal."""
        keep = self.bound < goal_ns
        self.offsets, self.bound = self.offsets[keep], self.bound[keep]


def enumerate_placements(rows: Rows, cutoff_ns: int) -> Enumerated | None:
    """Return every placement whose rows stay below ``cutoff_ns``; None where there are too many."""
    ahead = _ahead(rows)
    nothing = np.zeros(1, dtype=np.int64)
    frontier = _Frontier(nothing, nothing.reshape(1, 1), nothing, nothing, nothing, nothing)
    for stage in range(rows.stages):
        grown = _grow(rows, frontier, stage, ahead[stage + 1] < cutoff_ns, cutoff_ns)
        if grown is None:
            return None
        frontier = grown
    return Enumerated(rows, cutoff_ns, frontier.chosen, frontier.bound)


def _ahead(rows: Rows) -> Ints:
    """Return the smallest possible maximum of the rows of the stages after each cut, by its position."""
    values = rows.values()
    ahead = [np.zeros(values.shape[1], dtype=np.int64)]
    for value in values[::-1]:
        ahead.append(np.maximum(value, ahead[-1][None, :]).min(axis=1))
    return np.stack(ahead[::-1])


def _grow(
    rows: Rows, old: _Frontier, stage: int, leads_on: Mask, cutoff_ns: int
) -> _Frontier | None:
    """Add every legal upper cut of ``stage`` that ``leads_on`` to every partial placement."""
    tables = rows.tables
    count, width = len(old.offset), tables.legal.shape[2]
    if count * width > 40 * MOST_PLACEMENTS:
        return None
    at = old.offset
    below = old.before - old.forward_before
    finish = np.maximum(old.finish[:, None], tables.finish[stage][at] - below[:, None])
    to_first, to_own = rows.parts(stage)
    row = np.maximum(
        old.before[:, None] + to_first[at] + finish,
        old.forward_before[:, None] + to_own[at],
    )
    bound = np.maximum(old.bound[:, None], row)
    open_ = tables.legal[stage][at] & leads_on
    source, offset = np.nonzero(open_ & (bound < cutoff_ns))
    if len(source) > MOST_PLACEMENTS:
        return None
    lower = at[source]
    # Without flush nothing precedes a stage.
    step, forward = rows.step[stage, lower, offset], tables.forward[stage, lower, offset]
    hop = int(rows.hops[stage])
    return _Frontier(
        offset=offset,
        chosen=np.column_stack([old.chosen[source], offset]),
        before=old.before[source] + rows.flushes * (step + 2 * hop),
        forward_before=old.forward_before[source] + rows.flushes * (forward + hop),
        bound=bound[source, offset],
        finish=finish[source, offset],
    )
