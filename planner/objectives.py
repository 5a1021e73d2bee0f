"""Objectives beside the iteration time: cost per token, fewest GPUs by a deadline, least memory, and Pareto fronts.

Each is a sequence of certified time searches, so its answer inherits their proofs: a number of GPUs fixes the cost of
a second, and the least memory is the limit below which the search proves that nothing fits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from costmodel.errors import InputError
from costmodel.units import KIB
from planner.explain import with_gpus
from planner.plans import Plan, SearchResult, SearchStatus
from planner.scenario import Scenario
from planner.scenario_search import Session, open_session
from planner.search import DEFAULT_TOLERANCE, plan

Objective = Literal["time", "cost", "gpus", "memory"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How each search is run: plans ranked, tolerance of the proof, seconds of all searches together."""

    top: int = 10
    tolerance: float = DEFAULT_TOLERANCE
    time_limit_s: float | None = None


def plan_for(
    scenario: Scenario, objective: Objective, effort: Effort, *, deadline_days: float | None = None
) -> SearchResult:
    """Return the plans that are best by ``objective``.

    Args:
        scenario: Its ``gpu_counts`` are the numbers of GPUs that may be used; ``cost`` and ``gpus`` try all of them.
        objective: ``time`` of an iteration; ``cost`` of a token (GPU-seconds, or money where a price is known);
            ``gpus``: fewest that finish ``training.tokens`` by the deadline; ``memory``: smallest limit that fits.
        effort: How to search.
        deadline_days: For ``gpus``.

    Raises:
        InputError: If ``gpus`` is asked for without deadline or tokens.
    """
    if objective == "cost":
        return _cheapest(scenario, effort)
    if objective == "gpus":
        return _fewest(scenario, effort, deadline_days)
    if objective == "memory":
        return _smallest(scenario, effort)
    return _search(scenario, effort)


def _search(scenario: Scenario, effort: Effort, session: Session | None = None) -> SearchResult:
    return plan(
        scenario,
        top=effort.top,
        tolerance=effort.tolerance,
        time_limit_s=effort.time_limit_s,
        session=session,
    )


def gpu_seconds(of: Plan) -> float:
    """Return what an iteration costs in GPU-seconds."""
    return of.iteration_s * of.strategy.gpus


def _cheapest(scenario: Scenario, effort: Effort) -> SearchResult:
    """Merge the searches of every number of GPUs by GPU-seconds per iteration; the batch is the same in all."""
    results = [_search(with_gpus(scenario, count), effort) for count in scenario.gpu_counts]
    bounds = [
        result.lower_bound_s * count
        for result, count in zip(results, scenario.gpu_counts, strict=True)
        if result.plans
    ]
    plans = sorted((item for result in results for item in result.plans), key=gpu_seconds)
    if not plans:
        return results[-1]
    ranked = tuple(
        replace(item, rank=rank, tied_with=()) for rank, item in enumerate(plans[: effort.top], 1)
    )
    gap = max(0.0, 1 - min(bounds) / gpu_seconds(ranked[0]))
    status = SearchStatus.OPTIMAL if gap <= effort.tolerance else SearchStatus.FEASIBLE
    counts = replace(
        results[-1].counts,
        strategies=sum(result.counts.strategies for result in results),
        solved=sum(result.counts.solved for result in results),
        simulated=sum(result.counts.simulated for result in results),
        seconds=sum(result.counts.seconds for result in results),
    )
    bound_s = min(bounds) / ranked[0].strategy.gpus
    return replace(
        results[-1], status=status, plans=ranked, gap=gap, counts=counts, lower_bound_s=bound_s
    )


def _fewest(scenario: Scenario, effort: Effort, deadline_days: float | None) -> SearchResult:
    """Try numbers of GPUs in rising order until one finishes in time."""
    tokens = scenario.training.tokens
    if deadline_days is None or tokens is None:
        raise InputError(
            "needs --deadline-days and training.tokens", key="--objective", value="gpus"
        )
    result = None
    for count in scenario.gpu_counts:
        result = _search(with_gpus(scenario, count), effort)
        if result.plans and tokens / result.plans[0].tokens_per_s <= deadline_days * 86400:
            return result
    if result is None:
        raise InputError("must allow a number of GPUs", key="cluster.gpus")
    late = f"no number of GPUs up to {scenario.gpu_counts[-1]} finishes in {deadline_days:g} days"
    return replace(result, status=SearchStatus.INFEASIBLE, plans=(), levers=(late, *result.levers))


def _smallest(scenario: Scenario, effort: Effort) -> SearchResult:
    """Lower the limit below the demand of any plan found until the search proves that nothing fits."""
    session = open_session(scenario)
    best = _search(scenario, replace(effort, top=1), session)
    while best.plans:
        below = replace(scenario, memory_limit_bytes=best.plans[0].demand_bytes - KIB)
        further = _search(below, replace(effort, top=1, tolerance=1.0), session)
        if not further.plans:
            limit = replace(scenario, memory_limit_bytes=best.plans[0].demand_bytes)
            return _search(limit, effort)
        best = further
    return best


def pareto(
    plans: Sequence[Plan], first: Callable[[Plan], float], second: Callable[[Plan], float]
) -> tuple[Plan, ...]:
    """Return the plans that no other beats in both measures, by rising ``first``."""
    front: list[Plan] = []
    for item in sorted(plans, key=lambda candidate: (first(candidate), second(candidate))):
        if not front or second(item) < second(front[-1]):
            front.append(item)
    return tuple(front)
