"""The best plan over operator cuts, GPUs and degrees of each stage, recomputation of each operator, micro-batch: exact.

Every plan whose iteration is below a ceiling has stages below a ceiling of their own, so cuts have narrow windows. From the last stage to
the first, all stages within the windows are bounded; what the slowest stage and the sum of a plan are at least, up to a cut and from
it on, leaves few stages through which a plan below the ceiling may run, and these are priced exactly. The ceiling starts at a bound no
plan beats and rises until a round finds plans; the best of that round is then optimal, since the round looked at everything below its
ceiling.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from costmodel.importers.operators import OperatorKey, OperatorRow
from costmodel.table import Table
from planner.operator_cut.definition import Operators, iteration_seconds, operators
from planner.operator_cut.paths import Path, Paths
from planner.operator_cut.recomputation import Recomputation
from planner.operator_cut.stages import Option, PathStage

_RISE = 1.03  # of the ceiling, from round to round
_DEGREES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is searched.

    Attributes:
        memory_mib: Limit of a GPU.
        micro_batches: Sizes to try.
    """

    model: str
    layers: int
    gpus: int
    memory_mib: float
    global_batch: int
    micro_batches: tuple[int, ...] = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStage:
    """Operators ``first`` to ``end`` (exclusive) on ``tp * dp`` GPUs."""

    first: int
    end: int
    tp: int
    dp: int
    recomputed: tuple[bool, ...]
    seconds: float
    memory_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPlan:
    """The optimal plan.

    Attributes:
        iteration_s: Under Aceso's definition.
        lower_bound_s: No plan of the space is faster; equal to ``iteration_s`` where that is proved optimal.
        priced: Stages that were priced exactly on the way.
    """

    micro_batch: int
    stages: tuple[CutStage, ...]
    iteration_s: float
    lower_bound_s: float
    priced: int


def best_plan(
    problem: Problem, rows: Mapping[OperatorKey, OperatorRow], transfers: Table
) -> CutPlan | None:
    """Return the optimal plan, None if nothing fits the memory.

    The space: any number of stages that use all GPUs together, each on 1, 2, 4 or 8 of them with one tensor-parallel
    size for all its operators, its data-parallel ranks sharing each micro-batch evenly; cuts at any operator, any
    operators recomputed. Outside: degrees that change within a stage, transfers between nodes.
    """
    plan = _best(problem, rows, transfers, strict=False)
    if plan is None or all(stage.memory_mib <= problem.memory_mib + 1e-6 for stage in plan.stages):
        return plan
    bound_s = plan.iteration_s
    plan = _best(problem, rows, transfers, strict=True)
    return replace(plan, lower_bound_s=bound_s) if plan else None


def _best(
    problem: Problem,
    rows: Mapping[OperatorKey, OperatorRow],
    transfers: Table,
    *,
    strict: bool,
) -> CutPlan | None:
    @cache
    def option(tp: int, local: int) -> tuple[Operators, Recomputation]:
        found = operators(rows, transfers, problem.model, problem.layers, tp, local)
        return found, Recomputation(found, strict=strict)

    sizes = [size for size in problem.micro_batches if problem.global_batch % size == 0]
    searches = [_Search(problem, _options(problem, size, option), size) for size in sizes]
    ceiling, last = min(search.paths.floor_s for search in searches), False
    for number in itertools.count():
        ceiling *= _RISE**2**number
        last = ceiling > max(search.paths.limit_s for search in searches)
        plan = _below(searches, math.inf if last else ceiling)
        if plan is not None or last:
            return plan
    return None


def _options(
    problem: Problem,
    micro_batch: int,
    option: Callable[[int, int], tuple[Operators, Recomputation]],
) -> dict[int, list[Option]]:
    """Return the ways to run a stage by its number of GPUs: those that share the micro-batch evenly."""
    options: dict[int, list[Option]] = {}
    for gpus, tp in itertools.product(_DEGREES, _DEGREES):
        if gpus <= problem.gpus and gpus % tp == 0 and micro_batch * tp % gpus == 0:
            found, recomputation = option(tp, micro_batch * tp // gpus)
            ways = options.setdefault(gpus, [])
            ways.append(Option(tp=tp, dp=gpus // tp, operators=found, recomputation=recomputation))
    return options


def _below(searches: Sequence["_Search"], ceiling_s: float) -> CutPlan | None:
    """Return the best plan below the ceiling, None if there is none."""
    for search in searches:
        search.paths.open(ceiling_s)
    best = None
    for search in sorted(searches, key=lambda search: search.bound_s):
        plan = search.below(ceiling_s)
        if plan is not None:
            best, ceiling_s = plan, plan.iteration_s
    return best and replace(best, priced=sum(search.paths.priced for search in searches))


class _Search:
    """All plans of one micro-batch."""

    def __init__(
        self, problem: Problem, options: Mapping[int, Sequence[Option]], micro_batch: int
    ) -> None:
        self.problem, self.micro_batch = problem, micro_batch
        self.microbatches = problem.global_batch // micro_batch
        self.paths = Paths(options, problem.gpus, problem.memory_mib, self.microbatches)

    @property
    def bound_s(self) -> float:
        """No path is faster."""
        return self.paths.least_slowest_s() * self.microbatches

    def below(self, ceiling_s: float) -> CutPlan | None:
        """Return the best plan below the ceiling, None if there is none."""
        paths = self.paths
        paths.prune(ceiling_s)
        best = self._first(ceiling_s)
        if not best:
            return None
        ceiling_s = min(ceiling_s, paths.iteration_s(best))
        paths.prune(ceiling_s)
        paths.price_all(ceiling_s)
        paths.prune(ceiling_s)
        best = self._least(best)
        return self._plan(best)

    def _first(self, ceiling_s: float) -> Path:
        """Return the path of least slowest stage, then of least sum, both exact: bounds on the way become so."""
        path = self.paths.least_sum(self.paths.least_slowest_s())
        while not all(stage.exact for stage in path):
            self.paths.price(path, ceiling_s)
            path = self.paths.least_sum(self.paths.least_slowest_s())
        return path

    def _least(self, best: Path) -> Path:
        """Return the fastest path of exact stages: for each slowest stage that a faster path may have, that of least sum."""
        slowest = self.paths.seconds()
        slowest = slowest[slowest >= self.paths.least_slowest_s()]

        @cache
        def found(number: int) -> Path:
            return self.paths.least_sum(float(slowest[number]))

        pending = [(0, len(slowest) - 1)] if slowest.size else []
        while pending:
            low, high = pending.pop()
            best = min(best, found(low), found(high), key=self.paths.iteration_s)
            least_s, most_s = (_sum(found(number)) for number in (high, low))
            bound_s = slowest[min(low + 1, high)] * (self.microbatches - 1) + least_s
            if high - low > 1 and most_s > least_s and bound_s < self.paths.iteration_s(best):
                middle = (low + high) // 2
                pending += [(middle, high), (low, middle)]
        return best

    def _plan(self, path: Path) -> CutPlan:
        """Write the stages out and judge them by the definition itself."""
        stages = [self._written(stage, len(path) - at) for at, stage in enumerate(path)]
        iteration_s = iteration_seconds([s.seconds for s in stages], self.microbatches)
        return CutPlan(
            micro_batch=self.micro_batch,
            stages=tuple(stages),
            iteration_s=iteration_s,
            lower_bound_s=iteration_s,
            priced=self.paths.priced,
        )

    def _written(self, stage: PathStage, in_flight: int) -> CutStage:
        first, end, option = stage.first, stage.end, stage.option
        choice = option.choice(first, end, in_flight, self.problem.memory_mib)
        nothing = (False,) * (end - first)
        flags = option.recomputation.flags(first, end, choice) if choice else nothing
        return CutStage(
            first=first,
            end=end,
            tp=option.tp,
            dp=option.dp,
            recomputed=flags,
            seconds=option.operators.seconds(first, end, flags),
            memory_mib=option.operators.memory_mib(first, end, flags, in_flight),
        )


def _sum(path: Path) -> float:
    return sum(stage.seconds for stage in path)
