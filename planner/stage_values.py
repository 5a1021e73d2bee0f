"""What one stage costs for one range of layers, remembered: the scalar twin of the stage tables."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from costmodel.simulator import iteration_ns
from costmodel.timeline import PipelineWork
from planner.coefficients import Arrangement, Coefficients, Linear


class StageValue(NamedTuple):
    """Fewest recomputed layers of a range on a stage, and its nanoseconds."""

    recomputed: int
    forward: int
    backward: int
    weight: int
    finish: int


class StageValues:
    """Evaluates placements of a strategy with one chunk a rank, stage by stage."""

    def __init__(self, given: Coefficients) -> None:
        self.given = given
        self.simulated = 0
        self._memory: dict[int, list[Linear]] = {}
        self._known: dict[tuple[int, int, int], StageValue | None] = {}

    @cached_property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.given.layer_kinds)

    def value(self, stage: int, start: int, stop: int) -> StageValue | None:
        """Return what ``stage`` costs with layers ``start`` to before ``stop``; None if it cannot fit."""
        key = (stage, start, stop)
        if key not in self._known:
            self._known[key] = self._evaluate(stage, start, stop)
        return self._known[key]

    def _evaluate(self, stage: int, start: int, stop: int) -> StageValue | None:
        given = self.given
        first, last = stage == 0, stage == given.shape.ranks - 1
        held = given.between(start, stop)
        fewest = self._fewest(stage, start, stop, held)
        if fewest is None:
            return None
        again = given.between(start, start + fewest)
        return StageValue(
            fewest,
            given.forward.value(held, again, first, last),
            given.backward.value(held, again, first, last),
            given.weight.value(held, again, first, last),
            given.finish_ns(held, again, first, last),
        )

    def _fewest(self, stage: int, start: int, stop: int, held: Sequence[int]) -> int | None:
        if self.given.recompute_all:
            size = stop - start
            return size if self._fits(stage, held, held) else None
        for again in range(stop - start + 1):
            if self._fits(stage, held, self.given.between(start, start + again)):
                return again
        return None

    def _fits(self, stage: int, held: Sequence[int], again: Sequence[int]) -> bool:
        given = self.given
        first, last = stage == 0, stage == given.shape.ranks - 1
        if stage not in self._memory:
            flight = given.in_flight[stage][0]
            self._memory[stage] = [row.of_chunk(flight) for row in given.memory]
        for row, chunk in zip(given.memory, self._memory[stage], strict=True):
            total = row.kept.fixed + chunk.value(held, again, first, last)
            if total + row.recompute_once * any(again) > given.limit_kib:
                return False
        return True

    def stages(self, cuts: Sequence[int]) -> list[StageValue] | None:
        """Return the values of all stages; None if one does not fit."""
        found = []
        for stage in range(self.given.shape.ranks):
            value = self.value(stage, cuts[stage], cuts[stage + 1])
            if value is None:
                return None
            found.append(value)
        return found

    def work(self, cuts: Sequence[int]) -> PipelineWork | None:
        """Return what the simulator executes for these cuts; None if a stage does not fit."""
        values = self.stages(cuts)
        if values is None:
            return None
        return PipelineWork(
            shape=self.given.shape,
            forward_ns=tuple(value.forward for value in values),
            backward_ns=tuple(value.backward for value in values),
            weight_ns=tuple(value.weight for value in values),
            transfer_ns=self.given.transfer_ns,
            finish_ns=tuple(value.finish for value in values),
        )

    def simulate(self, work: PipelineWork) -> int:
        """Return the iteration of ``work``, counting the effort."""
        self.simulated += 1
        return iteration_ns(work)

    def arrangement(self, cuts: Sequence[int]) -> Arrangement:
        """Return the placement with these cuts, which fit, and the fewest recomputed layers."""
        values = self.stages(cuts) or []
        return Arrangement(tuple(cuts), tuple(value.recomputed for value in values))
