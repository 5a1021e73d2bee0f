"""What a valid plan is, said without solver, search or integer coefficients: the specification.

Every printed plan passes ``check_plan``; tests hold the solver against it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costmodel.cost import StrategyCost
from costmodel.linear import StageTerm
from costmodel.memory import stage_memory
from costmodel.schedules import Shape
from costmodel.simulator import simulate
from costmodel.strategy import Strategy
from costmodel.timeline import PipelineWork
from costmodel.units import NS_PER_S, format_bytes
from planner.assemble import chunk_contents
from planner.columns import Columns, columns_of
from planner.mixed.cluster import broken_groups, limits_bytes, spread_limit_bytes
from planner.plans import Placement, Plan
from planner.rules import RULES, Facts, facts_of
from planner.scenario import DECISIONS, Scenario

ROUNDING = 1e-6
"""Relative difference that rounding each coefficient to a nanosecond and a KiB may cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One way in which a plan is not valid; ``rule`` is its name, ``text`` the demand against the limit."""

    rule: str
    text: str


def broken_rules(strategy_columns: Columns, facts: Facts) -> tuple[Violation, ...]:
    """Return every legality rule that the one strategy in ``strategy_columns`` breaks."""
    strategy = strategy_columns.strategy(0)
    return tuple(
        Violation(rule=rule.name, text=f"{rule.text} Nearest: {rule.remedy(strategy, facts)}.")
        for rule in RULES
        if not bool(np.all(rule.holds(strategy_columns, facts)))
    )


def broken_placement(placement: Placement, layers: int, stages: int) -> tuple[Violation, ...]:
    """Return what is wrong with a placement of ``layers`` layers on ``stages`` virtual stages."""
    found: list[Violation] = []
    if len(placement.chunks) != stages:
        text = f"{len(placement.chunks)} chunks for {stages} virtual stages"
        return (Violation(rule="placement_stages", text=text),)
    next_layer = 0
    for index, chunk in enumerate(placement.chunks):
        if chunk.first_layer != next_layer or chunk.layers < 1:
            text = f"virtual stage {index} holds {chunk.layers} layers from {chunk.first_layer}, expected at least 1 from {next_layer}"
            found.append(Violation(rule="placement_contiguous", text=text))
        if not 0 <= chunk.recomputed <= chunk.layers:
            text = f"virtual stage {index} recomputes {chunk.recomputed} of {chunk.layers} layers"
            found.append(Violation(rule="placement_recompute", text=text))
        next_layer = chunk.first_layer + chunk.layers
    if next_layer != layers:
        found.append(
            Violation(rule="placement_layers", text=f"{next_layer} of {layers} layers placed")
        )
    return tuple(found)


def check_plan(plan: Plan, cost: StrategyCost, scenario: Scenario) -> tuple[Violation, ...]:
    """Return every way in which ``plan`` is not a valid answer to ``scenario``; empty if it is valid."""
    strategy = plan.strategy
    found = list(broken_rules(columns_of((strategy,)), facts_of(scenario)))
    found += broken_placement(plan.placement, len(cost.layer_kinds), strategy.pp * strategy.vpp)
    found += broken_device_groups(plan.placement, strategy, scenario)
    found += _broken_bounds(plan, scenario)
    if not found:
        found += _broken_memory(plan, cost, scenario) + _broken_time(plan, cost)
    return tuple(found)


def broken_device_groups(
    placement: Placement, strategy: Strategy, scenario: Scenario
) -> tuple[Violation, ...]:
    """Return what is wrong with the device groups of a placement's ranks."""
    found = broken_groups(placement, strategy, scenario.cluster)
    return tuple(Violation(rule=rule, text=text) for rule, text in found)


def _broken_bounds(plan: Plan, scenario: Scenario) -> list[Violation]:
    return [
        Violation(rule="search_bound", text=f"{name} = {getattr(plan.strategy, name)}")
        for name in DECISIONS
        if name != "recompute" and not scenario.bound(name).admits(getattr(plan.strategy, name))
    ]


def _broken_memory(plan: Plan, cost: StrategyCost, scenario: Scenario) -> list[Violation]:
    found = []
    groups = plan.placement.device_groups
    limits = limits_bytes(scenario, groups) or (spread_limit_bytes(scenario),) * cost.strategy.pp
    for rank, contents in enumerate(chunk_contents(cost, plan.placement)):
        need = stage_memory(cost.at(rank).memory, contents).reserved_bytes
        if need > limits[rank]:
            text = f"stage {rank} needs {format_bytes(need)} of {format_bytes(limits[rank])}"
            found.append(Violation(rule="memory", text=text))
    return found


def _broken_time(plan: Plan, cost: StrategyCost) -> list[Violation]:
    simulated = simulate(float_work(cost, plan.placement)).iteration_ns / NS_PER_S + cost.fixed_s
    if abs(simulated - plan.iteration_s) <= ROUNDING * plan.iteration_s:
        return []
    return [
        Violation(rule="iteration", text=f"{plan.iteration_s} s stated, {simulated} s simulated")
    ]


def float_work(cost: StrategyCost, placement: Placement) -> PipelineWork:
    """Return the pipeline's work straight from the prices, rounded per stage and not per coefficient."""
    strategy = cost.strategy
    ranks = chunk_contents(cost, placement)
    places = [divmod(v, strategy.pp) for v in range(len(placement.chunks))]

    def nanoseconds(terms_of: Callable[[StrategyCost], tuple[StageTerm, ...]]) -> tuple[int, ...]:
        return tuple(
            round(NS_PER_S * sum(t.value((ranks[rank][at],)) for t in terms_of(cost.at(rank))))
            for at, rank in places
        )

    finish = tuple(
        round(
            NS_PER_S
            * max(sum(t.value(contents) for t in way.terms) for way in cost.at(rank).finish)
        )
        for rank, contents in enumerate(ranks)
    )
    transfer = cost.transfer_s or (0.0,) * strategy.pp
    return PipelineWork(
        shape=Shape(strategy.schedule, strategy.pp, strategy.vpp, strategy.microbatches),
        forward_ns=nanoseconds(lambda own: own.forward),
        backward_ns=nanoseconds(lambda own: own.backward),
        weight_ns=nanoseconds(lambda own: own.weight_gradient),
        transfer_ns=tuple(round(NS_PER_S * seconds) for seconds in transfer),
        finish_ns=finish,
    )
