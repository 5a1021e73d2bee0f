"""Integer prices of many strategies as columns: all distinct combinations of fields are priced at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.cost import Finish, MemoryMoment
from costmodel.schedules import Shape
from costmodel.strategy import RECOMPUTES, Strategy
from planner.coefficients import Coefficients, Linear, MemoryRow, kibibytes, nanoseconds, to_ns
from planner.columns import Columns, IntColumn
from planner.pricer import PricerLike

Item = TypeVar("Item")

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

    @classmethod
    def of_lanes(cls, item: Linear, rows: int) -> Self:
        """Return the rows of a Linear with lanes."""
        scalars, vectors = item[:3], item[3:]
        return cls(
            *(np.array(np.broadcast_to(value, rows), dtype=np.float64) for value in scalars),
            *(
                np.stack([np.broadcast_to(value, rows) for value in values], axis=1) * 1.0
                for values in vectors
            ),
        )

    def at(self, rows: IntColumn) -> "LinearColumns":
        """Return the rows that an index array or mask selects."""
        return LinearColumns(*(column[rows] for column in self))

    def linear(self, row: int) -> Linear:
        """Return one row."""
        fixed, first, last = (int(column[row]) for column in self[:3])
        layer, recomputed = (tuple(map(int, values[row].tolist())) for values in self[3:])
        return Linear(fixed, first, last, layer, recomputed)


class MemoryColumns(NamedTuple):
    """One MemoryRow for each row, of one moment."""

    name: str
    kept: LinearColumns
    flight: LinearColumns
    recompute_once: Floats

    @classmethod
    def of(cls, items: Sequence[MemoryRow]) -> Self:
        """Stack one MemoryRow a row."""
        kept = LinearColumns.of([item.kept for item in items])
        flight = LinearColumns.of([item.flight for item in items])
        once = np.array([item.recompute_once for item in items], dtype=np.float64)
        return cls(items[0].name, kept, flight, once)

    @classmethod
    def of_lanes(cls, item: MemoryRow, rows: int) -> Self:
        """Return the rows of a MemoryRow with lanes."""
        kept, flight = (LinearColumns.of_lanes(part, rows) for part in (item.kept, item.flight))
        once = np.array(np.broadcast_to(item.recompute_once, rows), dtype=np.float64)
        return cls(item.name, kept, flight, once)

    def at(self, rows: IntColumn) -> "MemoryColumns":
        """Return the rows that an index array or mask selects."""
        once = self.recompute_once[rows]
        return MemoryColumns(self.name, self.kept.at(rows), self.flight.at(rows), once)

    def row(self, row: int) -> MemoryRow:
        """Return one row."""
        once = int(self.recompute_once[row])
        return MemoryRow(self.name, self.kept.linear(row), self.flight.linear(row), once)


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
        self._blocks, self._finish = _Store(len(columns)), _Store(len(columns))
        self._memory = _Store(len(columns))

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
        blocks = self._linears(columns, self.pricer.floor_fields, self._floor_of)
        return self._rows(columns, blocks, np.zeros(len(columns)))

    def _floor_of(self, strategy: Strategy) -> tuple[Linear, ...]:
        *passes, weight = self.pricer.block(strategy)
        kept = [
            [term for term in terms if term.name in self.pricer.floor_terms] for terms in passes
        ]
        # Weight gradients are subtracted in some bounds, so nothing of them may be left out.
        return tuple(nanoseconds(terms, self.kinds) for terms in (*kept, weight))

    def time(self, rows: IntColumn) -> TimeRows:
        """Return blocks and transfers of ``rows``; the finish is priced later, where it matters."""
        *blocks, hop = self._blocks.at(rows, self._priced_blocks)
        return self._rows(self.columns.take(rows), blocks, hop.fixed)

    def _priced_blocks(self, rows: IntColumn) -> list[LinearColumns]:
        columns, fields = self.columns.take(rows), self.pricer.block_fields
        blocks = self._linears(columns, fields, self._block)
        return [*blocks, *self._linears(columns, self.pricer.transfer_fields, self._hop)]

    def _rows(self, columns: Columns, blocks: Sequence[LinearColumns], hop: Floats) -> TimeRows:
        forward, backward, weight = blocks
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

    def _hop(self, strategy: Strategy) -> tuple[Linear, ...]:
        nothing = (0,) * self.kinds
        return (Linear(to_ns(self.pricer.least_transfer(strategy)), 0, 0, nothing, nothing),)

    def finish(self, rows: IntColumn) -> tuple[LinearColumns, ...]:
        """Return the alternatives for the end of the iteration of ``rows``."""
        return self._finish.at(rows, self._priced_finish)

    def _priced_finish(self, rows: IntColumn) -> list[LinearColumns]:
        return self._linears(self.columns.take(rows), self.pricer.finish_fields, self._finish_of)

    def _finish_of(self, strategy: Strategy) -> tuple[Linear, ...]:
        alternatives: Sequence[Finish] = self.pricer.finish(strategy)
        return tuple(nanoseconds(item.terms, self.kinds) for item in alternatives)

    def memory(self, rows: IntColumn) -> tuple[MemoryColumns, ...]:
        """Return the memory of ``rows`` by moment."""
        return self._memory.at(rows, self._priced_memory)

    def _priced_memory(self, rows: IntColumn) -> list[MemoryColumns]:
        columns, fields = self.columns.take(rows), self.pricer.memory_fields
        return self._distinct(columns, fields, self._memory_of, MemoryColumns)

    def _memory_of(self, strategy: Strategy) -> tuple[MemoryRow, ...]:
        moments: Sequence[MemoryMoment] = self.pricer.memory(strategy)
        return tuple(kibibytes(moment, self.kinds) for moment in moments)

    def coefficients(self, row: int, limit_kib: int) -> Coefficients:
        """Return everything about one row."""
        strategy = self.columns.strategy(row)
        at, (*blocks, _) = self._blocks.holding(row, self._priced_blocks)
        forward, backward, weight = (block.linear(at) for block in blocks)
        end, finish = self._finish.holding(row, self._priced_finish)
        held, memory = self._memory.holding(row, self._priced_memory)
        transfer = self.pricer.transfer(strategy) or (0.0,) * strategy.pp
        return Coefficients(
            strategy=strategy,
            shape=Shape(strategy.schedule, strategy.pp, strategy.vpp, strategy.microbatches),
            layer_kinds=self.pricer.layer_kinds,
            forward=forward,
            backward=backward,
            weight=weight,
            transfer_ns=tuple(map(to_ns, transfer)),
            finish=tuple(item.linear(end) for item in finish),
            memory=tuple(item.row(held) for item in memory),
            fixed_ns=to_ns(self.pricer.fixed_s(strategy)),
            recompute_all=strategy.recompute == "full",
            limit_kib=limit_kib,
        )

    def _linears(
        self,
        columns: Columns,
        names: Sequence[str],
        price: Callable[[Strategy], tuple[Linear, ...]],
    ) -> list[LinearColumns]:
        return self._distinct(columns, names, price, LinearColumns)

    def _distinct(
        self,
        columns: Columns,
        names: Sequence[str],
        price: Callable[[Strategy], tuple[Item, ...]],
        kind: type[LinearColumns] | type[MemoryColumns],
    ) -> list[Any]:
        """Price each distinct combination of ``names`` once and return the prices of all rows."""
        representatives, group = columns.groups(names)
        distinct = columns.take(representatives)
        make = self._by_lanes if self.pricer.prices_lanes else self._one_by_one
        return [item.at(group) for item in make(distinct, price, kind)]

    @staticmethod
    def _one_by_one(
        columns: Columns, price: Callable[[Strategy], tuple[Any, ...]], kind: Any
    ) -> list[Any]:
        priced = [price(columns.strategy(row)) for row in range(len(columns))]
        return [kind.of(items) for items in zip(*_padded(priced), strict=True)]

    @staticmethod
    def _by_lanes(
        columns: Columns, price: Callable[[Strategy], tuple[Any, ...]], kind: Any
    ) -> list[Any]:
        parts, rows = [], []
        for order in np.unique(columns.placement_order):
            chosen = np.flatnonzero(columns.placement_order == order)
            items = price(columns.take(chosen).lanes())
            parts.append([kind.of_lanes(item, len(chosen)) for item in items])
            rows.append(chosen)
        back = np.argsort(np.concatenate(rows))
        return [_joined(items).at(back) for items in zip(*_padded(parts), strict=True)]


class _Store:
    """Columns of the rows that were priced so far, in that order."""

    def __init__(self, rows: int) -> None:
        self._place = np.full(rows, -1, dtype=np.int64)
        self._priced = 0
        self._columns: Sequence[Any] = ()

    def at(self, rows: IntColumn, price: Callable[[IntColumn], Sequence[Any]]) -> tuple[Any, ...]:
        """Return the columns of ``rows``; those not priced yet are now."""
        self._price(np.unique(rows[self._place[rows] < 0]), price)
        return tuple(item.at(self._place[rows]) for item in self._columns)

    def holding(
        self, row: int, price: Callable[[IntColumn], Sequence[Any]]
    ) -> tuple[int, Sequence[Any]]:
        """Return where ``row`` stands in the columns, and these."""
        if self._place[row] < 0:
            self._price(np.array([row]), price)
        return int(self._place[row]), self._columns

    def _price(self, new: IntColumn, price: Callable[[IntColumn], Sequence[Any]]) -> None:
        if len(new):
            parts = [self._columns, price(new)] if self._priced else [price(new)]
            self._columns = [_joined(items) for items in zip(*_padded(parts), strict=True)]
            self._place[new] = self._priced + np.arange(len(new))
            self._priced += len(new)


def _padded(rows: Sequence[Sequence[Item]]) -> list[list[Item]]:
    """Return rows of one length; the last entry of a short row is repeated. Empty rows stay empty together."""
    longest = max(map(len, rows), default=0)
    if not all(rows):
        return [[] for _ in rows]
    return [[*row, *[row[-1]] * (longest - len(row))] for row in rows]


def _joined(parts: Sequence[Any]) -> Any:
    """Return columns, or named tuples of columns, one after the other."""
    first = parts[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    if isinstance(first, str):
        return first
    return type(first)(*map(_joined, zip(*parts, strict=True)))
