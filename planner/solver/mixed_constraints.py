"""Rules of a placement on several device groups; those that do not name a group are planner.solver.constraints."""

from collections.abc import Iterable, Sequence

from costmodel.timeline import CriticalPath
from planner.solver.constraints import Constraints
from planner.solver.mixed_variables import MixedVariables
from planner.solver.variables import Expression


class MixedConstraints(Constraints):
    """Adds the rules to a model. Symbols are those of Constraints; on_sg says that stage s runs on group g."""

    def __init__(self, variables: MixedVariables, paths: Iterable[CriticalPath]) -> None:
        super().__init__(variables, paths)
        self.mixed = variables

    def memory_fits(self) -> None:
        """kept_sg(n, r) + w_s flight_sg(n, r) + once_g [r_s > 0] <= limit_g, at every moment, if on_sg."""
        for stage in self.stages:
            once = self._recomputes(stage)
            for group, given in enumerate(self.mixed.mixed.by_group):
                on = self.mixed.on[stage][group]
                for row, chunks in zip(given.memory, given.chunk_memory, strict=True):
                    held = self.mixed.value_on(chunks[stage][0], stage, group)
                    extra = row.recompute_once * (once - 1 + on)
                    self._require(held + extra <= (given.limit_kib - row.kept.fixed) * on)

    def _recomputes(self, stage: int) -> Expression:
        """u_s in {0, 1} with r_s <= L u_s."""
        if self.given.recompute_all:
            return 1
        once = self.model.new_bool_var("")
        layers = len(self.given.layer_kinds)
        self.model.add(self.variables.recomputed[stage] <= layers * once)
        return once

    def mean_stage(self) -> None:
        """Nothing: the mean of stages on different groups says little."""

    def _hops(self) -> Sequence[Expression]:
        return [*self.mixed.hops, 0]
