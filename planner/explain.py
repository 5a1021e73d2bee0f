"""Why not: what fell to which rule or resource, and the smallest changes that would admit a plan."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from costmodel.units import GIB, format_bytes, format_seconds
from planner.engine import EngineResult, MemoryShortage
from planner.mixed.cluster import is_mixed, limits_bytes
from planner.plans import Plan, Rejection
from planner.rules import facts_of
from planner.scenario import Scenario
from planner.scenario_search import open_session, search_scenario
from planner.space import Space, admitted, enumerate_space

_GROWTH = (2, 4, 8, 16)
"""Multiples of the GPU budget tried as a lever."""


def rejections(space: Space, found: EngineResult, scenario: Scenario) -> tuple[Rejection, ...]:
    """Return what fell to each rule and to memory, with what would lift it, commonest first."""
    facts = facts_of(scenario)
    result = [
        Rejection(
            reason=item.rule.name, count=item.count, nearest=item.rule.remedy(item.example, facts)
        )
        for item in space.rejections
    ]
    if found.rejected_by_memory:
        result.append(
            Rejection(
                reason="memory",
                count=found.rejected_by_memory,
                nearest=_memory_lever(found.nearest, scenario),
            )
        )
    return tuple(sorted(result, key=lambda item: (-item.count, item.reason)))


def _memory_lever(nearest: MemoryShortage | None, scenario: Scenario) -> str:
    limit = format_bytes(scenario.memory_limit_bytes)
    if nearest is None:
        return f"more than {limit} per GPU, or more tensor, pipeline or sharded data ranks"
    unit = _unit(nearest, scenario)
    if nearest.group is not None:
        limit = format_bytes(limits_bytes(scenario, (nearest.group,))[0])
    return (
        f"{format_bytes(nearest.demand_bytes)} per {unit} instead of {limit} admits {nearest.strategy.label()} "
        f"(stage {nearest.rank}, {nearest.moment})"
    )


def _unit(shortage: MemoryShortage, scenario: Scenario) -> str:
    """Return on what memory is short: the device of a group, or any GPU."""
    if shortage.group is None:
        return "GPU"
    return scenario.cluster.groups[shortage.group].device.name


def levers(scenario: Scenario, space: Space, found: EngineResult) -> tuple[str, ...]:
    """Return the smallest single changes that make a plan exist, each tried and found to work."""
    result = list(_rule_levers(scenario, space)) if not len(space.columns) else []
    if found.nearest is not None:
        need = found.nearest.demand_bytes
        result.append(
            f"memory: {format_bytes(need)} per {_unit(found.nearest, scenario)} fits "
            f"{found.nearest.strategy.label()}, micro-batch "
            f"{found.nearest.strategy.micro_batch}, recomputing every layer"
        )
    attempts = [_more_gpus, _free_bounds, _smaller_sequence]
    if not len(space.columns):
        attempts.append(_fewer_gpus)
    for attempt in attempts:
        lever = attempt(scenario)
        if lever:
            result.append(lever)
    return tuple(result)


def _rule_levers(scenario: Scenario, space: Space) -> Iterator[str]:
    conflict = conflicting_bounds(scenario)
    if conflict:
        yield f"{' and '.join(conflict)}: no legal strategy keeps all of these; free one of them"
    facts = facts_of(scenario)
    for item in sorted(space.rejections, key=lambda entry: -entry.count)[:3]:
        yield f"{item.rule.name}: {item.rule.remedy(item.example, facts)}"


def conflicting_bounds(scenario: Scenario) -> tuple[str, ...]:
    """Return the smallest set of search bounds that no legal strategy keeps together; empty if the rules forbid all.

    A minimum hitting set, solved by CP-SAT: what the legal strategies without any bound break.
    """
    names = [name for name in scenario.bounds if name != "recompute"]
    legal = enumerate_space(replace(scenario, bounds={})).columns
    if not names or not len(legal):
        return ()
    from planner.solver.infeasible import smallest_conflict  # OR-tools takes 0.3 s to import

    return smallest_conflict({f"search.{name}": admitted(legal, name, scenario) for name in names})


def _exists(scenario: Scenario) -> bool:
    """Return whether any plan of the scenario fits."""
    session = open_session(scenario)
    return bool(search_scenario(scenario, session, tolerance=1.0, time_limit_s=5.0).ranked)


def with_gpus(scenario: Scenario, gpus: int) -> Scenario:
    """Return the scenario with a budget of ``gpus`` GPUs of its slowest group."""
    group = replace(scenario.cluster.slowest, gpus=gpus)
    return replace(scenario, cluster=replace(scenario.cluster, groups=(group,)), gpu_counts=(gpus,))


def _more_gpus(scenario: Scenario) -> str | None:
    budget = scenario.gpu_counts[-1]
    for factor in _GROWTH:
        if _exists(with_gpus(scenario, budget * factor)):
            kind = f" {scenario.cluster.device.name}" if is_mixed(scenario.cluster) else ""
            return f"GPUs: {budget * factor}{kind} instead of {budget}"
    return None


def _fewer_gpus(scenario: Scenario) -> str | None:
    """Return the largest power of two below the budget that admits a plan: batch and layers may not divide more."""
    budget = scenario.gpu_counts[-1]
    for power in reversed(range((budget - 1).bit_length())):
        if _exists(with_gpus(scenario, 1 << power)):
            return f"GPUs: {1 << power} instead of {budget}"
    return None


def _free_bounds(scenario: Scenario) -> str | None:
    """Return the one search bound whose removal admits a plan."""
    for name in scenario.bounds:
        rest = {key: bound for key, bound in scenario.bounds.items() if key != name}
        if _exists(replace(scenario, bounds=rest)):
            return f"search.{name}: leave it free"
    return None


def _smaller_sequence(scenario: Scenario) -> str | None:
    training = scenario.training
    length = training.sequence
    while length > 256:
        length //= 2
        if _exists(replace(scenario, training=replace(training, sequence=length))):
            return f"sequence: {length} tokens instead of {training.sequence}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One term in which a plan differs from the best, in seconds of an iteration."""

    term: str
    seconds: float


def slower_by(plan: Plan, best: Plan) -> tuple[Difference, ...]:
    """Return the terms of ``plan`` minus those of ``best``, largest loss first; they sum to the gap."""
    names = list(dict.fromkeys([*plan.time, *best.time]))
    found = [
        Difference(term=name, seconds=plan.time.get(name, 0.0) - best.time.get(name, 0.0))
        for name in names
    ]
    return tuple(sorted(found, key=lambda item: -item.seconds))


def explain_slower(plan: Plan, best: Plan) -> str:
    """Say by how much and in which terms ``plan`` is slower than ``best``."""
    gap = plan.iteration_s - best.iteration_s
    parts = [
        f"{item.term} {'+' if item.seconds > 0 else '-'}{format_seconds(abs(item.seconds))}"
        for item in slower_by(plan, best)
        if abs(item.seconds) > 0.002 * best.iteration_s
    ]
    return (
        f"{format_seconds(gap)} ({gap / best.iteration_s:.1%}) slower than plan 1 "
        f"({best.strategy.label()}): {', '.join(parts) or 'no single term stands out'}"
    )


def explain_memory(plan: Plan) -> str:
    """Say which stage exceeds the limit, by how much, and in which terms."""
    stage = plan.tightest
    over = stage.memory_bytes - plan.limit_bytes(stage)
    terms = sorted(stage.memory.items(), key=lambda item: -item[1])[:4]
    held = ", ".join(f"{name} {size / GIB:.1f}" for name, size in terms)
    return (
        f"stage {plan.stages.index(stage)} needs {format_bytes(stage.memory_bytes)}, "
        f"{format_bytes(over)} over the limit, at {stage.peak_moment}: {held} GiB"
    )
