"""What a placement on given device groups costs, remembered stage by stage: planner.stage_values for several groups."""

from collections.abc import Sequence
from dataclasses import replace

from costmodel.simulator import iteration_ns
from costmodel.timeline import PipelineWork
from planner.coefficients import Arrangement
from planner.mixed.coefficients import Assignment, MixedCoefficients
from planner.stage_values import StageValue, StageValues


class GroupValues:
    """Evaluates placements of a strategy with one chunk a rank on any assignment of its ranks to groups."""

    def __init__(self, given: MixedCoefficients) -> None:
        self.given = given
        self.by_group = tuple(StageValues(item) for item in given.by_group)

    def on(self, groups: Sequence[int]) -> "AssignedValues":
        """Return the values of placements whose ranks are on ``groups``."""
        return AssignedValues(self, tuple(groups))

    def work(self, chosen: Assignment) -> PipelineWork | None:
        """Return what the simulator executes; None if a stage does not fit."""
        return self.on(chosen.groups).work(chosen.cuts)

    def arrangement(self, chosen: Assignment) -> Arrangement:
        """Return the placement with the fewest recomputed layers."""
        return self.on(chosen.groups).arrangement(chosen.cuts)


class AssignedValues(StageValues):
    """Stage values with the group of every rank given, so that the local search works on them."""

    def __init__(self, shared: GroupValues, groups: tuple[int, ...]) -> None:
        given = shared.given
        super().__init__(replace(given.by_group[groups[0]], transfer_ns=given.transfers_ns(groups)))
        self._shared, self._groups = shared, groups

    def value(self, stage: int, start: int, stop: int) -> StageValue | None:
        """Return what ``stage`` costs with layers ``start`` to before ``stop``; None if it cannot fit."""
        groups, given = self._groups, self._shared.given
        own = groups[stage]
        found = self._shared.by_group[own].value(stage, start, stop)
        if found is None:
            return None
        last = len(groups) - 1
        forward = given.wait_ns[own][groups[stage + 1]] if stage < last else 0
        backward = given.wait_ns[own][groups[stage - 1]] if stage else 0
        ends = given.ends_ns(groups) if last else (0, 0)
        finish = ends[0] * (stage == 0) + ends[1] * (stage == last)
        return found._replace(
            forward=found.forward + forward,
            backward=found.backward + backward,
            finish=found.finish + finish,
        )


def simulated_ns(values: GroupValues, chosen: Assignment) -> int | None:
    """Return the iteration of a placement; None if a stage does not fit."""
    work = values.work(chosen)
    return None if work is None else iteration_ns(work)
