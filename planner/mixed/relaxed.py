"""Columns of prices that no assignment of ranks to groups undercuts, for the closed-form bounds and memory tests.

Each coefficient is the smallest over the groups that can hold a rank of the strategy. A simulated iteration grows with
every duration, so a bound at these prices is a bound for every assignment. Slow ranks count as fast there, so
planner.mixed.together bounds as well what the groups can do together.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.units import KIB
from planner.coefficients import Coefficients
from planner.columns import Columns, IntColumn
from planner.mixed.coefficients import MixedCoefficients
from planner.mixed.even_bounds import GroupTimes, grouped_even_bounds
from planner.mixed.prices import GroupPrices
from planner.mixed.together import together
from planner.priced_rows import Floats, LinearColumns, MemoryColumns, RowPricer, TimeRows

Mask = NDArray[np.bool_]


class RelaxedRows(RowPricer):
    """Prices of all groups as the smallest of each; strategies that no group can hold have those of the slowest."""

    def __init__(self, prices: GroupPrices, columns: Columns) -> None:
        super().__init__(prices.groups[prices.slowest].pricer, columns)
        self.prices = prices
        self.by_group = [RowPricer(group.pricer, columns) for group in prices.groups]
        each = columns.tp * columns.cp * columns.dp
        self.slots = np.stack([np.minimum(columns.pp, g.gpus // each) for g in prices.groups])
        slowest = np.arange(len(self.slots))[:, None] == prices.slowest
        self.counts = np.where(self.slots.any(axis=0), self.slots > 0, slowest)

    def remembered(self, limit_kib: int) -> IntColumn:
        """Return what is known under ``limit_kib``, at least what the groups can do together."""
        known = super().remembered(limit_kib)
        np.maximum(known, self._together, out=known)
        return known

    @cached_property
    def floor(self) -> TimeRows:
        """As RowPricer.floor."""
        return self._least([rows.floor for rows in self.by_group], np.arange(len(self.columns)))

    def time(self, rows: IntColumn) -> TimeRows:
        """As RowPricer.time."""
        return self._least([item.time(rows) for item in self.by_group], rows)

    def finish(self, rows: IntColumn) -> tuple[LinearColumns, ...]:
        """As RowPricer.finish; alternative by alternative, as all groups have the same ones."""
        found = [item.finish(rows) for item in self.by_group]
        return tuple(self._smallest(ways, rows) for ways in zip(*found, strict=True))

    def memory(self, rows: IntColumn) -> tuple[MemoryColumns, ...]:
        """As RowPricer.memory; what a group's limit lacks to that of the search counts as held."""
        found = []
        limit = int(self.known_limit_kib)
        for at, item in enumerate(self.by_group):
            lacking = limit - self.group_limit_kib(at, limit)
            found.append([_raised(moment, lacking) for moment in item.memory(rows)])
        return tuple(
            MemoryColumns(
                moments[0].name,
                self._smallest([moment.kept for moment in moments], rows),
                self._smallest([moment.flight for moment in moments], rows),
                _least([moment.recompute_once for moment in moments], self.counts[:, rows]),
            )
            for moments in zip(*found, strict=True)
        )

    def _smallest(self, items: Sequence[LinearColumns], rows: IntColumn) -> LinearColumns:
        counts = self.counts[:, rows]
        return LinearColumns(*(_least(columns, counts) for columns in zip(*items, strict=True)))

    def _least(self, items: Sequence[TimeRows], rows: IntColumn) -> TimeRows:
        """Return the least durations; of a backward that schedules may split, its two parts."""
        weight = self._smallest([item.weight for item in items], rows)
        rest = self._smallest([_minus(item.backward, item.weight) for item in items], rows)
        return replace(
            items[0],
            forward=self._smallest([item.forward for item in items], rows),
            backward=LinearColumns(*(a + b for a, b in zip(rest, weight, strict=True))),
            weight=weight,
            hop=_least([item.hop for item in items], self.counts[:, rows]),
        )

    @cached_property
    def _together(self) -> IntColumn:
        """What the groups can do together at their floors, by row."""
        return together(self.floor, [item.floor for item in self.by_group], (), self.slots)

    def mixed(self, row: int, limit_kib: int) -> MixedCoefficients:
        """Return everything about one row."""
        by_group = tuple(
            item.coefficients(row, self.group_limit_kib(at, limit_kib))
            for at, item in enumerate(self.by_group)
        )
        return self.prices.joined(self.columns.strategy(row), by_group)

    def spread(self, row: int, limit_kib: int) -> Coefficients:
        """Return everything about a row that no group can hold: the slowest group's prices, the least limit."""
        least = min(self.group_limit_kib(at, limit_kib) for at in range(len(self.by_group)))
        return self.by_group[self.prices.slowest].coefficients(row, least)

    def group_limit_kib(self, group: int, limit_kib: int) -> int:
        """Return what a GPU of a group may hold under the limit of a search."""
        return int(self.prices.groups[group].limit_bytes(limit_kib * KIB) // KIB)

    def bounds(self, rows: IntColumn, part: TimeRows, *, uneven: bool) -> IntColumn:
        """Return bounds of ``rows`` at full prices, of which ``part`` are the smallest: together, or over even placements."""
        times = [item.time(rows) for item in self.by_group]
        finish = [item.finish(rows) for item in self.by_group]
        slots = self.slots[:, rows]
        even = grouped_even_bounds(GroupTimes(times, finish), part, slots.T, uneven=uneven)
        return np.maximum(even, together(part, times, finish, slots))

    def even_floors(self, rows: IntColumn, *, uneven: bool) -> IntColumn:
        """Return bounds of ``rows`` over even placements at their floors."""
        floors = [item.floor.at(rows) for item in self.by_group]
        given = GroupTimes(floors, [()] * len(floors))
        slots = self.slots[:, rows].T
        return grouped_even_bounds(given, self.floor.at(rows), slots, uneven=uneven)


def _least(values: Sequence[Floats], counts: Mask) -> Floats:
    stacked = np.stack(values)
    mask = counts.reshape(*counts.shape, *(1,) * (stacked.ndim - 2))
    return np.asarray(np.where(mask, stacked, np.inf).min(axis=0))


def _minus(whole: LinearColumns, part: LinearColumns) -> LinearColumns:
    return LinearColumns(*(a - b for a, b in zip(whole, part, strict=True)))


def _raised(moment: MemoryColumns, kib: float) -> MemoryColumns:
    return moment._replace(kept=moment.kept._replace(fixed=moment.kept.fixed + kib))
