"""Many strategies as columns of integers: what rules mask and the search bounds, without an object each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from costmodel.strategy import RECOMPUTES, SCHEDULES, Strategy

IntColumn = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Equal-length columns, named like the fields of Strategy.

    ``schedule`` and ``recompute`` are positions in SCHEDULES and RECOMPUTES; shares are in percent in
    ``offload_optimizer`` and ``offload_activations``; ``placement_order`` is a position in ``orders``.
    """

    dp: IntColumn
    tp: IntColumn
    pp: IntColumn
    cp: IntColumn
    ep: IntColumn
    etp: IntColumn
    vpp: IntColumn
    micro_batch: IntColumn
    microbatches: IntColumn
    schedule: IntColumn
    zero: IntColumn
    zero_group: IntColumn
    sequence_parallel: IntColumn
    recompute: IntColumn
    offload_optimizer: IntColumn
    offload_activations: IntColumn
    placement_order: IntColumn
    orders: tuple[str, ...] = (Strategy().placement_order,)

    def __post_init__(self) -> None:
        if len({len(self.column(name)) for name in COLUMN_NAMES}) != 1:
            raise ValueError("columns differ in length")

    def __len__(self) -> int:
        return len(self.dp)

    @property
    def pipelined(self) -> IntColumn:
        """As Strategy.pipelined, by row."""
        return np.minimum(self.pp, 2)

    @property
    def interleaves(self) -> IntColumn:
        """As Strategy.interleaves, by row."""
        return np.minimum(self.vpp, 2)

    @property
    def pipeline_span(self) -> IntColumn:
        """As Strategy.pipeline_span, by row."""
        spans = []
        for order in self.orders:
            names = [name for name in order.split("-") if name != "ep"]
            inside = names[: names.index("pp") + 1]
            spans.append(np.prod([self.column(name) for name in inside], axis=0))
        return np.asarray(np.choose(self.placement_order, spans), dtype=np.int64)

    @property
    def sharded_stage(self) -> IntColumn:
        """As Strategy.sharded_stage, by row."""
        return np.where(self.zero >= 2, self.zero, 0)

    @property
    def sharded_dp(self) -> IntColumn:
        """As Strategy.sharded_dp, by row."""
        return np.where(self.zero >= 2, self.dp, 1)

    def column(self, name: str) -> IntColumn:
        """Return the column called ``name``, a field or a property of Strategy."""
        column: IntColumn = getattr(self, name)
        return column

    @classmethod
    def of(cls, given: Mapping[str, IntColumn]) -> Self:
        """Return columns with Strategy's defaults where a column is not given (at least one is)."""
        length = len(next(iter(given.values())))
        default = columns_of([Strategy()])
        filled: dict[str, Any] = {
            name: given[name] if name in given else np.repeat(default.column(name), length)
            for name in COLUMN_NAMES
        }
        return cls(**filled)

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the rows that a boolean mask or index array selects."""
        chosen: dict[str, Any] = {name: self.column(name)[rows] for name in COLUMN_NAMES}
        return type(self)(**chosen, orders=self.orders)

    def strategy(self, row: int) -> Strategy:
        """Return one row as a strategy."""
        values: dict[str, Any] = {name: int(self.column(name)[row]) for name in COLUMN_NAMES}
        values["schedule"] = SCHEDULES[values["schedule"]]
        values["recompute"] = RECOMPUTES[values["recompute"]]
        values["sequence_parallel"] = bool(values["sequence_parallel"])
        values["placement_order"] = self.orders[values["placement_order"]]
        for share in ("offload_optimizer", "offload_activations"):
            values[share] /= 100
        return Strategy(**values)

    def lanes(self) -> Strategy:
        """Return all rows, which share one placement order, as one strategy with a lane for each (costmodel.lanes)."""
        values: dict[str, Any] = {name: self.column(name) for name in COLUMN_NAMES}
        values["schedule"] = SCHEDULES[0]  # no price depends on it
        values["recompute"] = np.array(RECOMPUTES)[self.recompute]
        values["sequence_parallel"] = self.sequence_parallel > 0
        values["placement_order"] = self.orders[int(self.placement_order[0])]
        for share in ("offload_optimizer", "offload_activations"):
            values[share] = self.column(share) / 100
        return Strategy(**values)

    def groups(self, names: Iterable[str]) -> tuple[IntColumn, IntColumn]:
        """Return a representative row of each distinct combination of ``names``, and each row's group."""
        code = np.zeros(len(self), dtype=np.int64)
        for name in names:
            place = _numbered(self.column(name))
            # Renumbering after each column keeps codes far below the range of an integer.
            code = _numbered(code * (int(place.max(initial=0)) + 1) + place)
        first = np.zeros(int(code.max(initial=-1)) + 1, dtype=np.int64)
        first[code[::-1]] = np.arange(len(self))[::-1]
        return first, code


def _numbered(values: IntColumn) -> IntColumn:
    """Return for each of non-negative values its position among the distinct ones."""
    span = int(values.max(initial=0)) + 1
    if span > 8 * len(values) + 1024:
        return np.unique(values, return_inverse=True)[1].astype(np.int64)
    present = np.zeros(span, dtype=np.int64)
    present[values] = 1
    return np.asarray((present.cumsum() - 1)[values])


COLUMN_NAMES: tuple[str, ...] = tuple(
    field.name for field in fields(Columns) if field.name != "orders"
)


def columns_of(strategies: Iterable[Strategy]) -> Columns:
    """Return given strategies as columns."""
    rows = list(strategies)
    orders = tuple(dict.fromkeys(row.placement_order for row in rows))
    values = {name: [getattr(row, name) for row in rows] for name in COLUMN_NAMES}
    values["schedule"] = [SCHEDULES.index(row.schedule) for row in rows]
    values["recompute"] = [RECOMPUTES.index(row.recompute) for row in rows]
    values["placement_order"] = [orders.index(row.placement_order) for row in rows]
    for share in ("offload_optimizer", "offload_activations"):
        values[share] = [round(100 * value) for value in values[share]]
    arrays: dict[str, Any] = {name: np.array(values[name], dtype=np.int64) for name in COLUMN_NAMES}
    return Columns(**arrays, orders=orders or (Strategy().placement_order,))
