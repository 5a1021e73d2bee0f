"""Variables of the placement of one strategy with one chunk a rank."""

from itertools import pairwise
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from planner.coefficients import Coefficients, Ints, Linear
from planner.stage_tables import StageTables

Expression = Any
"""An integer, variable or linear expression of CP-SAT."""


class PlacementVariables:
    """Where the cuts are, how many layers recompute, and the stage times that follow.

    Attributes:
        cuts: Position of each cut, 0 and the number of layers at the ends.
        recomputed: Recomputed layers of each stage.
        held, again: Layers and recomputed layers by stage and kind.
        forward, backward, weight, finish: Nanoseconds by stage.
        before, forward_before: Sums over the stages before each cut, with transfers (both ways, and there only).
        iteration: Upper bound of every row; what is minimised.
    """

    def __init__(
        self, model: cp_model.CpModel, given: Coefficients, tables: StageTables, cutoff_ns: int
    ) -> None:
        self.model, self.given, self.tables = model, given, tables
        self.stages = range(given.shape.ranks)
        self.recomputes = bool(tables.recomputed[tables.legal].any())
        self.cuts = self._cuts()
        self.recomputed = [self._recomputed(stage) for stage in self.stages]
        starts = [self._counts(cut) for cut in self.cuts]
        self.held = [_difference(a, b) for a, b in pairwise(starts)]
        self.again = [self._again(stage, starts[stage]) for stage in self.stages]
        self.forward = self._times(given.forward, tables.forward)
        self.backward = self._times(given.backward, tables.backward)
        self.weight = self._times(given.weight, tables.weight)
        self.finish = [self._finish(stage) for stage in self.stages]
        self.before = self._sums([self.forward, self.backward], 2)
        self.forward_before = self._sums([self.forward], 1)
        self.iteration = model.new_int_var(0, cutoff_ns - 1, "iteration")

    def _cuts(self) -> list[Expression]:
        low, high = self.tables.windows
        return [
            self.model.new_int_var(int(a), int(b), f"cut{at}") if a < b else int(a)
            for at, (a, b) in enumerate(zip(low, high, strict=True))
        ]

    def _recomputed(self, stage: int) -> Expression:
        if self.given.recompute_all:
            return self.cuts[stage + 1] - self.cuts[stage]
        legal = self.tables.recomputed[stage][self.tables.legal[stage]]
        most = int(legal.max(initial=0))
        return self.model.new_int_var(0, most, f"recomputed{stage}") if most else 0

    def _counts(self, position: Expression) -> list[Expression]:
        """Return layers by kind before ``position``.

        The kinds of the first i layers are looked up, except that the last kind is what the others leave.
        """
        table = self.given.counts
        if isinstance(position, int):
            return list(table[position])
        counts = [self._looked_up(position, [row[k] for row in table]) for k in self._free_kinds()]
        return [*counts, position - sum(counts)]

    def _free_kinds(self) -> range:
        return range(self.given.kinds - 1)

    def _looked_up(self, position: Expression, values: list[int]) -> Expression:
        most = values[-1]
        count = self.model.new_int_var(0, most, "")
        if values == [min(at, most) for at in range(len(values))]:
            # These layers come first, so the count is the smaller of position and their number.
            self.model.add_min_equality(count, [position, most])
        else:
            self.model.add_element(position, values, count)
        return count

    def _again(self, stage: int, start: list[Expression]) -> list[Expression]:
        if self.given.recompute_all:
            return self.held[stage]
        if isinstance(self.recomputed[stage], int):
            return [0] * self.given.kinds
        if self.given.kinds == 1:
            return [self.recomputed[stage]]
        end = self.model.new_int_var(0, len(self.given.layer_kinds), "")
        self.model.add(end == self.cuts[stage] + self.recomputed[stage])
        return _difference(start, self._counts(end))

    def value(self, linear: Linear, stage: int) -> Expression:
        """Return a function of what ``stage`` holds."""
        first, last = stage == 0, stage == self.stages[-1]
        fixed = linear.fixed + linear.first * first + linear.last * last
        pairs = [*zip(linear.layer, self.held[stage], strict=True)]
        pairs += zip(linear.recomputed, self.again[stage], strict=True)
        return fixed + sum(price * count for price, count in pairs if price)

    def _times(self, linear: Linear, table: Ints) -> list[Expression]:
        """Return one variable for each stage that equals ``linear``."""
        times = []
        for stage in self.stages:
            legal = table[stage][self.tables.legal[stage]]
            # A placement of the model may recompute more than it must.
            slack = sum(max(0, price) for price in linear.recomputed) * len(self.given.layer_kinds)
            low, high = int(legal.min(initial=0)), int(legal.max(initial=0)) + slack
            time = self.model.new_int_var(low, high, "")
            self.model.add(time == self.value(linear, stage))
            times.append(time)
        return times

    def _finish(self, stage: int) -> Expression:
        """Return what a rank pays in the end: at least each of its alternatives."""
        ways = [self.value(linear, stage) for linear in self.given.finish]
        if len(ways) <= 1:
            return self.given.fixed_ns + sum(ways)
        worst = self.model.new_int_var(0, int(np.int64(1) << 50), "")
        for way in ways:
            self.model.add(worst >= way)
        return self.given.fixed_ns + worst

    def _sums(self, parts: list[list[Expression]], hops: int) -> list[Expression]:
        sums: list[Expression] = [0]
        transfer = self.given.transfer_ns
        for stage in self.stages:
            total = self.model.new_int_var(0, int(np.int64(1) << 50), "")
            hop = hops * transfer[stage] if stage < self.stages[-1] else 0
            self.model.add(total == sums[-1] + sum(part[stage] for part in parts) + hop)
            sums.append(total)
        return sums


def _difference(low: list[Expression], high: list[Expression]) -> list[Expression]:
    return [b - a for a, b in zip(low, high, strict=True)]
