"""The best plan over operator cuts, GPUs and degrees of each stage, recomputation of each operator, micro-batch: exact.

Every plan whose iteration is below a ceiling has stages below a ceiling of their own, so cuts have narrow windows. Stage by stage, labels
(slowest stage so far, sum so far) are kept that no other label at the same cut and GPUs beats, and that can still end below the ceiling. The
ceiling starts at a bound no plan beats and rises until a round finds plans; the best of that round is then optimal, since the round
looked at everything below its ceiling.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from costmodel.importers.operators import OperatorKey, OperatorRow
from costmodel.table import Table
from planner.operator_cut.definition import Floats, Operators, iteration_seconds, operators
from planner.operator_cut.recomputation import Choice, Recomputation

_RISE = 1.005  # of the ceiling, from round to round
_MARGIN = 1.03  # beyond a stage's ceiling up to which it is priced at once, for the rounds to come
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


_Priced = tuple[float, int, int]
"""Seconds of a stage, tp, dp."""
_Option = tuple[int, int, Operators, Recomputation]
"""tp, dp, their operators and the recomputation of these."""
_NOWHERE: _Priced = (math.inf, 0, 0)


@dataclass(frozen=True, slots=True)
class _Label:
    slowest: float
    total: float
    stages: tuple[tuple[int, int, int, int], ...]  # first, end, tp, dp


def best_plan(
    problem: Problem, rows: Mapping[OperatorKey, OperatorRow], transfers: Table
) -> CutPlan | None:
    """Return the optimal plan, None if nothing fits the memory."""
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
    searches = [
        _Search(problem, rows, transfers, micro_batch, strict=strict)
        for micro_batch in problem.micro_batches
        if problem.global_batch % micro_batch == 0
    ]
    ceiling, last = min(search.floor_s for search in searches), False
    while not last:
        ceiling *= _RISE
        last = ceiling > max(search.limit_s for search in searches)
        found = [search.below(math.inf if last else ceiling) for search in searches]
        plans = [plan for plan in found if plan is not None]
        if plans:
            return min(plans, key=lambda plan: plan.iteration_s)
    return None


class _Search:
    """All plans of one micro-batch."""

    def __init__(
        self,
        problem: Problem,
        rows: Mapping[OperatorKey, OperatorRow],
        transfers: Table,
        micro_batch: int,
        *,
        strict: bool,
    ) -> None:
        self.problem, self.micro_batch = problem, micro_batch
        self.microbatches = problem.global_batch // micro_batch

        @cache
        def option(tp: int, local: int) -> tuple[Operators, Recomputation]:
            found = operators(rows, transfers, problem.model, problem.layers, tp, local)
            return found, Recomputation(found, strict=strict)

        self.options = {
            gpus: [
                (tp, gpus // tp, *option(tp, micro_batch * tp // gpus))
                for tp in _DEGREES
                if gpus % tp == 0 and micro_batch * tp % gpus == 0
            ]
            for gpus in _DEGREES
            if gpus <= problem.gpus
        }
        self.options = {gpus: found for gpus, found in self.options.items() if found}
        self.least = {gpus: _least(found) for gpus, found in self.options.items()}
        self.count = len(next(iter(self.least.values()))) - 1
        self.work = np.min([gpus * least for gpus, least in self._rests()], axis=0)
        self._priced: dict[tuple[int, int, int, int], _Priced] = {}
        self._bounds: dict[tuple[int, int, int, int], float] = {}

    def _rests(self) -> list[tuple[int, Floats]]:
        """Return for each number of GPUs the least seconds of all operators from each on."""
        return [(gpus, least[-1] - least) for gpus, least in self.least.items()]

    @property
    def floor_s(self) -> float:
        """No plan is faster: all GPUs are busy all the time, at the best degree of each operator."""
        share = float(self.work[0]) / self.problem.gpus
        return share * self.microbatches

    @property
    def limit_s(self) -> float:
        """No useful plan is slower: everything recomputed on one GPU."""
        operators_1 = self.options[min(self.options)][0][2]
        whole = 2 * operators_1.forward.sum() + operators_1.backward.sum()
        return float(whole) * 2 * (self.microbatches + self.problem.gpus)

    def below(self, ceiling_s: float) -> CutPlan | None:
        """Return the best plan below the ceiling, None if there is none."""
        best: CutPlan | None = None
        for stages in range(1, self.problem.gpus + 1):
            label = self._best_of(stages, ceiling_s)
            if label is not None:
                best = self._plan(label)
                ceiling_s = best.iteration_s
        return best

    def _best_of(self, stages: int, ceiling_s: float) -> _Label | None:
        front = {(0, 0): [_Label(0.0, 0.0, ())]}
        for stage in range(stages):
            extended: dict[tuple[int, int], list[_Label]] = {}
            for (first, used), labels in front.items():
                for gpus in self.options:
                    if self._fits(used + gpus, stage, stages):
                        for end in self._ends(first, gpus, used + gpus, stages - stage, ceiling_s):
                            self._extend(
                                extended,
                                labels,
                                (first, end, gpus, used),
                                stages - stage,
                                ceiling_s,
                            )
            front = {key: _undominated(labels) for key, labels in extended.items()}
        done = front.get((self.count, self.problem.gpus), [])
        return min(done, key=self._iteration, default=None)

    def _fits(self, used: int, stage: int, stages: int) -> bool:
        left = self.problem.gpus - used
        return left == 0 if stage == stages - 1 else left >= stages - 1 - stage

    def _iteration(self, label: _Label) -> float:
        return label.slowest * (self.microbatches - 1) + label.total

    def _ends(self, first: int, gpus: int, used: int, left: int, ceiling_s: float) -> Sequence[int]:
        """Return the ends of a stage that neither it nor the stages behind it exclude; ``left`` counts itself."""
        cap = ceiling_s / self.microbatches
        least = self.least[gpus]
        furthest = int(np.searchsorted(least, least[first] + cap, side="right")) - 1
        if left == 1:
            return [self.count] if furthest >= self.count else []
        rest = self.work / max(self.problem.gpus - used, 1)
        nearest = int(np.argmax(rest <= cap))
        return range(max(first + 1, nearest), min(furthest, self.count - left + 1) + 1)

    def _extend(
        self,
        extended: dict[tuple[int, int], list[_Label]],
        labels: Sequence[_Label],
        stage: tuple[int, int, int, int],
        in_flight: int,
        ceiling_s: float,
    ) -> None:
        first, end, gpus, used = stage
        seconds, tp, dp = self._stage(first, end, in_flight, gpus, ceiling_s / self.microbatches)
        share = float(self.work[end]) / max(self.problem.gpus - used - gpus, 1)
        for label in labels:
            slowest, total = max(label.slowest, seconds), label.total + seconds
            bound = max(slowest, share) * (self.microbatches - 1) + total + share
            if bound < ceiling_s:
                grown = _Label(slowest, total, (*label.stages, (first, end, tp, dp)))
                extended.setdefault((end, used + gpus), []).append(grown)

    def _stage(
        self, first: int, end: int, in_flight: int, gpus: int, cap: float
    ) -> tuple[float, int, int]:
        """Return the least seconds of a stage with its degrees; infinite where it is above ``cap``."""
        key = (first, end, in_flight, gpus)
        if key not in self._bounds:
            self._bounds[key] = min(
                self._bound(first, end, in_flight, option) for option in self.options[gpus]
            )
        if self._bounds[key] > cap:
            return _NOWHERE
        if key not in self._priced:
            limit = cap * _MARGIN
            found = min(
                (self._exact(first, end, in_flight, option, limit)[0], *option[:2])
                for option in self.options[gpus]
            )
            if found[0] == math.inf:
                self._bounds[key] = limit
                return _NOWHERE
            self._priced[key] = found
        return self._priced[key]

    def _excess(self, first: int, end: int, in_flight: int, found: Operators) -> float:
        return found.plain_memory_mib(first, end, in_flight) - self.problem.memory_mib

    def _bound(self, first: int, end: int, in_flight: int, option: _Option) -> float:
        """Return seconds that a stage takes at least."""
        _, _, found, recomputation = option
        excess = self._excess(first, end, in_flight, found)
        bounds = recomputation.bounds(first, end, excess, in_flight)
        return found.plain_seconds(first, end) + float(bounds.min())

    def _exact(
        self, first: int, end: int, in_flight: int, option: _Option, limit: float = math.inf
    ) -> tuple[float, Choice | None]:
        """Return a stage's least seconds, infinite where they are not below ``limit``, and the choice behind them."""
        _, _, found, recomputation = option
        excess = self._excess(first, end, in_flight, found)
        plain = found.plain_seconds(first, end)
        choice = recomputation.cheapest(first, end, excess, in_flight, limit - plain)
        return (math.inf, None) if choice is None else (plain + choice.cost_s, choice)

    def _plan(self, label: _Label) -> CutPlan:
        """Write the stages out and judge them by the definition itself."""
        stages = [
            self._written(stage, len(label.stages) - number)
            for number, stage in enumerate(label.stages)
        ]
        iteration_s = iteration_seconds([s.seconds for s in stages], self.microbatches)
        return CutPlan(
            micro_batch=self.micro_batch,
            stages=tuple(stages),
            iteration_s=iteration_s,
            lower_bound_s=iteration_s,
            priced=len(self._priced),
        )

    def _written(self, stage: tuple[int, int, int, int], in_flight: int) -> CutStage:
        first, end, tp, dp = stage
        option = next(o for o in self.options[tp * dp] if o[:2] == (tp, dp))
        found, recomputation = option[2], option[3]
        _, choice = self._exact(first, end, in_flight, option)
        flags = recomputation.flags(first, end, choice) if choice else (False,) * (end - first)
        return CutStage(
            first=first,
            end=end,
            tp=tp,
            dp=dp,
            recomputed=flags,
            seconds=found.seconds(first, end, flags),
            memory_mib=found.memory_mib(first, end, flags, in_flight),
        )


def _least(options: Sequence[_Option]) -> Floats:
    """Return running sums of each operator's least seconds over the options, transfers left out."""
    seconds = np.min([found.forward + found.backward for _, _, found, _ in options], axis=0)
    return np.concatenate([[0.0], np.cumsum(seconds)])


def _undominated(labels: list[_Label]) -> list[_Label]:
    kept: list[_Label] = []
    least = math.inf
    for label in sorted(labels, key=lambda label: (label.slowest, label.total)):
        if label.total < least:
            kept.append(label)
            least = label.total
    return kept
