"""Even placements on several device groups, and lower bounds of them for many strategies at once.

Interleaved strategies, and frameworks that only split evenly, have few placements: the ranks of each group stand
together, in any order of the groups, and all chunks of a group's ranks hold equally many layers. What does not divide
goes to the chunks of one group, one layer each, from the front, from the back or spread. On one group alone the
placements are those of planner.even_cuts. The bounds are the rows of planner.even_rows, each rank at its group's
prices; what it costs to cross between groups is left out.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from costmodel.strategy import SCHEDULES
from planner.coefficients import Ints
from planner.columns import IntColumn
from planner.even_bounds import applies_to, even_cuts
from planner.even_rows import even_rows
from planner.mixed.blocks import blocks
from planner.mixed.coefficients import Assignment
from planner.priced_rows import Floats, LinearColumns, TimeRows

_MOST_ENTRIES = 1_000_000
"""Entries of an array over rows, placements and virtual stages at most."""
_APPLICABLE = [code for code, name in enumerate(SCHEDULES) if applies_to(name)]


class _Shape(NamedTuple):
    """What the even placements of a strategy depend on."""

    layers: int
    ranks: int
    chunks: int
    slots: tuple[int, ...]
    uneven: bool


def even_assignments(
    layers: int, ranks: int, chunks: int, slots: tuple[int, ...], *, uneven: bool
) -> tuple[Assignment, ...]:
    """Return every even placement with its groups, whatever its memory."""
    return _assignments(_Shape(layers, ranks, chunks, slots, uneven))


@lru_cache(maxsize=1024)
def _assignments(shape: _Shape) -> tuple[Assignment, ...]:
    return tuple(
        Assignment(cuts, groups)
        for groups in blocks(shape.slots, shape.ranks)
        for cuts in _cuts(shape, groups)
    )


def _cuts(shape: _Shape, groups: tuple[int, ...]) -> Sequence[tuple[int, ...]]:
    stages = groups * shape.chunks
    if len(set(groups)) == 1 or not shape.uneven:
        return even_cuts(shape.layers, len(stages), shape.uneven)
    return tuple(dict.fromkeys(_group_cuts(shape.layers, stages)))


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


class GroupTimes(NamedTuple):
    """Times and finish alternatives of rows on each group; no alternatives where they are not priced."""

    times: Sequence[TimeRows]
    finish: Sequence[tuple[LinearColumns, ...]]

    def at(self, rows: IntColumn) -> "GroupTimes":
        """Return the selected rows."""
        return GroupTimes(
            [item.at(rows) for item in self.times],
            [tuple(way.at(rows) for way in ways) for ways in self.finish],
        )


def grouped_even_bounds(
    given: GroupTimes, part: TimeRows, slots: IntColumn, *, uneven: bool
) -> IntColumn:
    """Return for each row the least bound over its even placements; 0 where others count as well.

    Args:
        given: Prices of each group.
        part: Prices at their smallest.
        slots: How many ranks each group can hold, by row and group.
        uneven: Whether strategies with one chunk a rank have free cuts.
    """
    best = np.zeros(len(slots), dtype=np.int64)
    applies = slots.any(axis=1) & np.isin(part.schedule, _APPLICABLE)
    applies &= (part.chunks > 1) if uneven else True
    keys = np.column_stack([part.ranks, part.chunks, slots])
    for key in np.unique(keys[applies], axis=0):
        chosen = np.flatnonzero(applies & (keys == key).all(axis=1))
        ranks, chunks, *held = (int(value) for value in key)
        shape = _Shape(len(part.kinds), ranks, chunks, tuple(held), uneven)
        if not _assignments(shape):
            continue
        size = max(1, _MOST_ENTRIES // (ranks * chunks * len(_assignments(shape))))
        for at in range(0, len(chosen), size):
            some = chosen[at : at + size]
            best[some] = _Bounds(given.at(some), part, some, shape).least()
    return best


class _Bounds:
    """Arrays over (row, placement, chunk, rank); all rows have the same even placements."""

    def __init__(self, given: GroupTimes, part: TimeRows, some: Ints, shape: _Shape) -> None:
        self.shape, found = shape, _assignments(shape)
        self.microbatches = part.microbatches[some]
        self.hops = np.repeat(part.hop[some][:, None, None], shape.ranks, axis=2)
        self.again = part.recompute_all[some]
        self.times, self.finish = given
        counts = _prefix_counts(part.kinds)
        cuts = np.array([item.cuts for item in found], dtype=np.int64)
        groups = np.array([item.groups for item in found], dtype=np.int64)
        self.groups = groups[:, None, :]
        held = counts[cuts[:, 1:]] - counts[cuts[:, :-1]]
        self.held = held.reshape(len(cuts), shape.chunks, shape.ranks, -1)

    def least(self) -> IntColumn:
        """Return the smallest of the placements' bounds by row."""
        forward = self._of([item.forward for item in self.times], self.held)
        backward = self._of([item.backward for item in self.times], self.held)
        whole = self.held.sum(axis=1, keepdims=True)
        ways = [self._of(way, whole)[:, :, 0] for way in zip(*self.finish, strict=True)]
        nothing = np.zeros((len(forward), len(self.held), self.shape.ranks))
        bounds = even_rows(
            forward,
            backward,
            np.maximum.reduce(ways) if ways else nothing,
            self.hops,
            self.microbatches[:, None],
        )
        return np.asarray(np.floor(bounds.min(axis=1) * (1 - 1e-12)) - 1, dtype=np.int64)

    def _of(self, by_group: Sequence[LinearColumns], held: Floats) -> Floats:
        """Return a function of what each chunk holds at the prices of its rank's group."""
        total = np.zeros((len(self.again), *held.shape[:3]))
        for group, linear in enumerate(by_group):
            again = np.where(self.again[:, None], linear.recomputed, 0)
            value = np.einsum("pcrk,nk->npcr", held, linear.layer + again)
            value += linear.fixed[:, None, None, None]
            value[:, :, 0, 0] += linear.first[:, None]
            value[:, :, -1, -1] += linear.last[:, None]
            total = np.where(self.groups == group, value, total)
        return total


@lru_cache(maxsize=64)
def _prefix_counts(kinds: tuple[int, ...]) -> Floats:
    counts = np.zeros((len(kinds) + 1, max(kinds) + 1))
    counts[np.arange(1, len(kinds) + 1), np.array(kinds)] = 1
    return np.asarray(counts.cumsum(axis=0))
