"""Stages that may belong to a plan below a ceiling: their least seconds, first as a bound, then exactly.

Layers are equal, so a stage that holds neither the first operators of the model nor the last is priced once for all the layers that it
may start in. A stage is bounded for each of its degrees by the duals of its recomputation, and priced exactly when a plan may need it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.operator_cut.definition import Floats, Operators
from planner.operator_cut.recomputation import Choice, Recomputation
from planner.operator_cut.runs import SIZE

Indices = NDArray[np.intp]
_CHUNK = 512  # stages bounded at once: the work arrays stay within a processor's cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to run the operators of a stage on its GPUs."""

    tp: int
    dp: int
    operators: Operators
    recomputation: Recomputation

    def choice(self, first: int, end: int, in_flight: int, memory_mib: float) -> Choice | None:
        """Return the cheapest recomputation with which a stage fits, None if none does."""
        excess = float(self.operators.plain_memory_mib(first, end, in_flight)) - memory_mib
        return self.recomputation.cheapest(first, end, excess, in_flight)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStage:
    """A stage of a path: operators ``first`` to ``end`` (exclusive), and whether ``seconds`` is exact or a bound."""

    first: int
    end: int
    gpus: int
    option: Option
    seconds: float
    exact: bool


class _Grouped:
    """Stages grouped by a place at one of their ends."""

    __slots__ = ("_order", "_places", "_starts")

    def __init__(self, places: Indices) -> None:
        self._order = np.argsort(places, kind="stable")
        self._places, self._starts = np.unique(places[self._order], return_index=True)

    def lower(self, values: Floats, offered: Floats) -> None:
        """Lower ``values`` (any, place) to the least that the stages at a place offer (any, stage)."""
        least = np.minimum.reduceat(offered[:, self._order], self._starts, axis=1)
        values[:, self._places] = np.minimum(values[:, self._places], least)


class Stages:
    """Stages with ``in_flight`` micro-batches on ``gpus`` GPUs, by first operator and end.

    Attributes:
        first, end: Of each stage.
    """

    def __init__(
        self,
        options: Sequence[Option],
        in_flight: int,
        memory_mib: float,
        first: Indices,
        end: Indices,
        cap_s: float,
    ) -> None:
        self._options, self._in_flight, self._memory_mib = options, in_flight, memory_mib
        count = options[0].operators.count
        inside = (first > 0) & (end < count - 1)
        shift = np.where(inside, (first - 1) // SIZE * SIZE, 0)
        codes, at = np.unique((first - shift) * (count + 1) + end - shift, return_inverse=True)
        self._first, self._end = np.divmod(codes, count + 1)
        self._seconds = np.full((len(codes), len(options)), np.inf)
        for number in range(len(options)):
            self._bound(number, cap_s)
        self._exact = np.zeros(len(codes), dtype=bool)
        self.first, self.end, self._at = first, end, at
        self.keep(self._least[at] <= cap_s)

    @property
    def ends(self) -> tuple[Indices, Indices]:
        """First operators and ends."""
        return self.first, self.end

    @property
    def _least(self) -> Floats:
        least: Floats = self._seconds.min(axis=1)
        return least

    @property
    def seconds(self) -> Floats:
        """Seconds of each stage: at least these, or exactly."""
        return self._least[self._at]

    @property
    def exact(self) -> NDArray[np.bool_]:
        """Which stages are priced exactly."""
        exact: NDArray[np.bool_] = self._exact[self._at]
        return exact

    def keep(self, wanted: NDArray[np.bool_]) -> None:
        """Drop all but the wanted stages."""
        self.first, self.end, self._at = self.first[wanted], self.end[wanted], self._at[wanted]
        self.by_first, self.by_end = _Grouped(self.first), _Grouped(self.end)

    def stage(self, number: int) -> PathStage:
        """Return stage ``number`` at its fastest option."""
        at = self._at[number]
        option = self._options[int(self._seconds[at].argmin())]
        return PathStage(
            first=int(self.first[number]),
            end=int(self.end[number]),
            gpus=option.tp * option.dp,
            option=option,
            seconds=float(self._seconds[at].min()),
            exact=bool(self._exact[at]),
        )

    def _bound(self, option: int, cap_s: float) -> None:
        """Bound the stages for one option, infinite where no choice is below ``cap_s``."""
        found = self._options[option].operators
        plain = found.plain_seconds(self._first, self._end)
        rows = np.flatnonzero(plain <= cap_s)
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            least = plain[chunk] + self._bounds(option, chunk).min(axis=1)
            self._seconds[chunk, option] = np.where(least <= cap_s, least, np.inf)

    def _excess(self, option: int, rows: Indices) -> Floats:
        found = self._options[option].operators
        memory = found.plain_memory_mib(self._first[rows], self._end[rows], self._in_flight)
        return memory - self._memory_mib

    def _bounds(self, option: int, rows: Indices) -> Floats:
        """Return by stage and cap the seconds of recomputation at least."""
        excess = self._excess(option, rows)
        costs = np.zeros((len(rows), 1))
        over = excess > 0
        if over.any():
            bounds = self._options[option].recomputation.bounds(
                self._first[rows[over]], self._end[rows[over]], excess[over], self._in_flight
            )
            costs = np.zeros((len(rows), bounds.shape[1]))
            costs[over] = bounds
        return costs

    def price(self, wanted: NDArray[np.bool_], cap_s: float) -> int:
        """Price the wanted stages exactly, those above ``cap_s`` as infinite; return how many were priced."""
        rows = np.unique(self._at[wanted])
        rows = rows[~self._exact[rows]]
        for option in range(len(self._options)):
            self._price(option, rows[self._seconds[rows, option] <= cap_s], cap_s)
        self._exact[rows] = True
        self._seconds[rows] = np.where(self._seconds[rows] <= cap_s, self._seconds[rows], np.inf)
        return len(rows)

    def _price(self, option: int, rows: Indices, cap_s: float) -> None:
        found = self._options[option]
        plain = found.operators.plain_seconds(self._first[rows], self._end[rows])
        excess, bounds = self._excess(option, rows), self._bounds(option, rows)
        for number in np.flatnonzero(excess > 0):
            row = rows[number]
            choice = found.recomputation.cheapest_within(
                bounds[number],
                int(self._first[row]),
                int(self._end[row]),
                float(excess[number]),
                self._in_flight,
                cap_s - float(plain[number]),
            )
            plain[number] = np.inf if choice is None else plain[number] + choice.cost_s
        self._seconds[rows, option] = plain
