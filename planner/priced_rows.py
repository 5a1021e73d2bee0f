"""Integer prices of many strategies as columns: each distinct combination of fields is priced once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.cost import Finish, MemoryMoment
from costmodel.strategy import RECOMPUTES, Strategy
from planner.coefficients import Linear, MemoryRow, kibibytes, nanoseconds, to_ns
from planner.columns import Columns, IntColumn
from planner.pricer import PricerLike

Item = TypeVar("Item")
Part = TypeVar("Part")

Floats = NDArray[np.float64]
"""Integers up to 2^53, exact; floats only because bounds divide."""


class LinearColumns(NamedTuple):
    """One Linear for each row; ``layer`` and ``recomputed`` have a column for each kind."""

    fixed: Floats
    first: Floats
    last: Floats
    layer: Floats
    recomputed: Floats

    @classmethod
    def of(cls, items: Sequence[Linear]) -> Self:
        """Stack one Linear a row."""
        return cls(*(np.array(column, dtype=np.float64) for column in zip(*items, strict=True)))

    def at(self, rows: IntColumn) -> "LinearColumns":
        """Return the rows that an index array or mask selects."""
        return LinearColumns(*(column[rows] for column in self))


class MemoryColumns(NamedTuple):
    """One MemoryRow for each row, of one moment."""

    kept: LinearColumns
    flight: LinearColumns

    @classmethod
    def of(cls, items: Sequence[MemoryRow]) -> Self:
        """Stack one MemoryRow a row."""
        kept = LinearColumns.of([item.kept for item in items])
        return cls(kept, LinearColumns.of([item.flight for item in items]))

    def at(self, rows: IntColumn) -> "MemoryColumns":
        """Return the rows that an index array or mask selects."""
        return MemoryColumns(self.kept.at(rows), self.flight.at(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRows:
    """What the closed-form bounds need of each strategy.

    Attributes:
        ranks, chunks, microbatches, schedule: By row.
        recompute_all: Whether every layer recomputes.
        kinds: Kind index of each layer of the model.
        forward, backward, weight: Nanoseconds of a chunk.
        hop: The fastest pipeline boundary.
        finish: Alternatives; empty while not priced.
    """

    ranks: IntColumn
    chunks: IntColumn
    microbatches: IntColumn
    schedule: IntColumn
    recompute_all: NDArray[np.bool_]
    kinds: tuple[int, ...]
    forward: LinearColumns
    backward: LinearColumns
    weight: LinearColumns
    hop: Floats
    finish: tuple[LinearColumns, ...] = ()

    def at(self, rows: IntColumn, finish: tuple[LinearColumns, ...] = ()) -> "TimeRows":
        """Return the selected rows with the given finish."""
        return TimeRows(
            ranks=self.ranks[rows],
            chunks=self.chunks[rows],
            microbatches=self.microbatches[rows],
            schedule=self.schedule[rows],
            recompute_all=self.recompute_all[rows],
            kinds=self.kinds,
            forward=self.forward.at(rows),
            backward=self.backward.at(rows),
            weight=self.weight.at(rows),
            hop=self.hop[rows],
            finish=finish,
        )


class RowPricer:
    """Prices columns of strategies part by part, and remembers what searches over them found.

    ``known_ns`` holds by row the best lower bound found so far under limits of at least ``known_limit_kib``: less
    memory only removes placements, so it holds under every smaller limit as well.
    """

    def __init__(self, pricer: PricerLike, columns: Columns) -> None:
        self.pricer, self.columns = pricer, columns
        self.known_ns: IntColumn = np.zeros(len(columns), dtype=np.int64)
        self.known_limit_kib: float = np.inf
        self.kinds = max(pricer.layer_kinds) + 1
        self._blocks: dict[tuple[int, ...], tuple[Linear, ...]] = {}
        self._hops: dict[tuple[int, ...], tuple[int]] = {}
        self._finish: dict[tuple[int, ...], tuple[Linear, ...]] = {}
        self._memory: dict[tuple[int, ...], tuple[MemoryRow, ...]] = {}

    def remembered(self, limit_kib: int) -> IntColumn:
        """Return what is known under ``limit_kib``, and forget it first if it was found with less memory."""
        if limit_kib > self.known_limit_kib:
            self.known_ns[:] = 0
        self.known_limit_kib = limit_kib
        return self.known_ns

    @cached_property
    def floor(self) -> TimeRows:
        """A lower bound of the blocks of all rows, from few distinct prices; hops count as nothing."""
        columns = self.columns
        representatives, group = columns.groups(self.pricer.floor_fields)
        blocks = [self._floor_of(columns.strategy(int(row))) for row in representatives]
        return self._rows(columns, blocks, group, np.zeros(len(columns)))

    def _floor_of(self, strategy: Strategy) -> tuple[Linear, ...]:
        *passes, weight = self.pricer.block(strategy)
        kept = [
            [term for term in terms if term.name in self.pricer.floor_terms] for terms in passes
        ]
        # Weight gradients are subtracted in some bounds, so nothing of them may be left out.
        return tuple(nanoseconds(terms, self.kinds) for terms in (*kept, weight))

    def time(self, rows: IntColumn) -> TimeRows:
        """Return blocks and transfers of ``rows``; the finish is priced later, where it matters."""
        blocks, group = self._distinct(rows, self.pricer.block_fields, self._blocks, self._block)
        hops, at = self._distinct(rows, self.pricer.transfer_fields, self._hops, self._hop)
        hop = np.array([float(pair[0]) for pair in hops])[at]
        return self._rows(self.columns.take(rows), blocks, group, hop)

    def _rows(
        self, columns: Columns, blocks: Sequence[tuple[Linear, ...]], group: IntColumn, hop: Floats
    ) -> TimeRows:
        forward, backward, weight = (
            LinearColumns.of(items).at(group) for items in zip(*blocks, strict=True)
        )
        return TimeRows(
            ranks=columns.pp,
            chunks=columns.vpp,
            microbatches=columns.microbatches,
            schedule=columns.schedule,
            recompute_all=columns.recompute == RECOMPUTES.index("full"),
            kinds=self.pricer.layer_kinds,
            forward=forward,
            backward=backward,
            weight=weight,
            hop=hop,
        )

    def _block(self, strategy: Strategy) -> tuple[Linear, ...]:
        return tuple(nanoseconds(terms, self.kinds) for terms in self.pricer.block(strategy))

    def _hop(self, strategy: Strategy) -> tuple[int]:
        return (min(map(to_ns, self.pricer.transfer(strategy)[:-1]), default=0),)

    def finish(self, rows: IntColumn) -> tuple[LinearColumns, ...]:
        """Return the alternatives for the end of the iteration of ``rows``."""
        fields, group = self._distinct(
            rows, self.pricer.finish_fields, self._finish, self._finish_of
        )
        return tuple(LinearColumns.of(items).at(group) for items in _padded(fields))

    def _finish_of(self, strategy: Strategy) -> tuple[Linear, ...]:
        alternatives: Sequence[Finish] = self.pricer.finish(strategy)
        return tuple(nanoseconds(item.terms, self.kinds) for item in alternatives)

    def memory(self, rows: IntColumn) -> tuple[MemoryColumns, ...]:
        """Return the memory of ``rows`` by moment."""
        fields, group = self._distinct(
            rows, self.pricer.memory_fields, self._memory, self._memory_of
        )
        return tuple(MemoryColumns.of(items).at(group) for items in _padded(fields))

    def _memory_of(self, strategy: Strategy) -> tuple[MemoryRow, ...]:
        moments: Sequence[MemoryMoment] = self.pricer.memory(strategy)
        return tuple(kibibytes(moment, self.kinds) for moment in moments)

    def _distinct(
        self,
        rows: IntColumn,
        names: Sequence[str],
        known: dict[tuple[int, ...], Part],
        price: Callable[[Strategy], Part],
    ) -> tuple[list[Part], IntColumn]:
        """Return the prices of each distinct combination of ``names`` in ``rows``, and each row's."""
        part = self.columns.take(rows)
        representatives, group = part.groups(names)
        values = np.stack([part.column(name)[representatives] for name in names], axis=1)
        keys = [tuple(key) for key in values.tolist()]
        for key, row in zip(keys, representatives.tolist(), strict=True):
            if key not in known:
                known[key] = price(part.strategy(row))
        return [known[key] for key in keys], group


def _padded(rows: Sequence[tuple[Item, ...]]) -> list[tuple[Item, ...]]:
    """Return columns of rows that may differ in length; the last entry of a short row is repeated."""
    longest = max(map(len, rows), default=0)
    full = [row + (row[-1],) * (longest - len(row)) for row in rows if row]
    return list(zip(*full, strict=True)) if len(full) == len(rows) else []
