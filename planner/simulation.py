"""One given strategy: judged by the rules, priced, simulated."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from costmodel.cost import StrategyCost
from costmodel.pricing import Pricer
from costmodel.simulator import iteration_ns
from costmodel.strategy import Strategy
from costmodel.timeline import PipelineWork
from costmodel.units import KIB, NS_PER_S
from costmodel.verdict import Verdict
from planner.assemble import build_plan
from planner.bands import band_of
from planner.check import (
    Violation,
    broken_device_groups,
    broken_placement,
    broken_rules,
)
from planner.coefficients import Arrangement, coefficients
from planner.columns import columns_of
from planner.fit import assigned_verdict, plan_verdict
from planner.host import broken_host
from planner.mixed.cluster import plan_limit_bytes
from planner.mixed.scenario import make_mixed_pricer
from planner.plans import Placement, Plan
from planner.price_shares import PriceShares
from planner.rules import RULES, facts_of
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.strategy_text import parse_placement, parse_strategy
from planner.systems import apply_system


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The prediction of one strategy, or the rules it breaks.

    Attributes:
        violations: Broken rules; empty exactly if there is a plan.
        plan: The prediction, whether it fits the memory limit or not.
        work: What was simulated, for the timeline.
        verdict: Whether the plan fits, might, or does not.
    """

    strategy: Strategy
    violations: tuple[Violation, ...]
    plan: Plan | None = None
    cost: StrategyCost | None = None
    work: PipelineWork | None = None
    verdict: Verdict | None = None


def simulate_strategy(
    scenario: Scenario, strategy_text: str, placement_text: str | None
) -> Simulation:
    """Predict the strategy (and placement) that a user typed.

    Raises:
        InputError: If the text is no strategy or no placement.
    """
    scenario = apply_system(scenario)
    strategy = parse_strategy(strategy_text, scenario)
    layers = len(scenario.graph.layers)
    violations = broken_rules(columns_of((strategy,)), facts_of(scenario))
    violations = violations or broken_host(strategy, scenario)
    if violations:
        return Simulation(strategy=strategy, violations=violations)
    placement = parse_placement(placement_text, strategy, layers, scenario.cluster)
    if placement is None:
        rule = next(rule for rule in RULES if rule.name == "layers_mod_pp")
        text = f"{rule.text} Nearest: {rule.remedy(strategy, facts_of(scenario))}."
        return Simulation(strategy=strategy, violations=(Violation(rule=rule.name, text=text),))
    violations = broken_placement(placement, layers, strategy.pp * strategy.vpp)
    violations = violations or broken_device_groups(placement, strategy, scenario)
    if violations:
        return Simulation(strategy=strategy, violations=violations)
    return simulate_placement(scenario, make_pricer(scenario), strategy, placement)


def simulate_placement(
    scenario: Scenario, pricer: Pricer, strategy: Strategy, placement: Placement
) -> Simulation:
    """Predict a legal strategy on a given placement."""
    groups, arrangement = placement.device_groups, arrangement_of(placement)
    priced = _assigned(scenario, strategy, arrangement, groups) if groups else None
    priced = priced or _alike(scenario, pricer, strategy, arrangement)
    plan = build_plan(
        rank=1,
        cost=priced.cost,
        placement=placement,
        iteration_s=iteration_ns(priced.work) / NS_PER_S,
        band=band_of(scenario),
        graph=scenario.graph,
        cluster=scenario.cluster,
        training=scenario.training,
        memory_limit_bytes=plan_limit_bytes(scenario, groups),
        demand_bytes=priced.peak_kib * KIB,
        price_shares=priced.shares,
    )
    device = scenario.cluster.device
    return Simulation(
        strategy=strategy,
        violations=(),
        plan=plan,
        cost=priced.cost,
        work=priced.work,
        verdict=assigned_verdict(plan, scenario.cluster) if groups else plan_verdict(plan, device),
    )


class _Priced(NamedTuple):
    """A placement's prices, work, peak, and shares of the priced seconds by provenance."""

    cost: StrategyCost
    work: PipelineWork
    peak_kib: int
    shares: Mapping[str, float]


def _alike(
    scenario: Scenario, pricer: Pricer, strategy: Strategy, arrangement: Arrangement
) -> _Priced:
    """Price a placement whose ranks have the same prices."""
    cost = pricer.cost(strategy)
    given = coefficients(cost, plan_limit_bytes(scenario, ()))
    shares = PriceShares(pricer).of(strategy, arrangement)
    return _Priced(cost, given.work(arrangement), given.peak_kib(arrangement), shares)


def _assigned(
    scenario: Scenario, strategy: Strategy, arrangement: Arrangement, groups: tuple[int, ...]
) -> _Priced:
    """Price a placement whose ranks are assigned to device groups."""
    pricer = make_mixed_pricer(scenario)
    given = pricer.prices.coefficients(strategy, scenario.memory_limit_bytes)
    return _Priced(
        cost=pricer.cost(strategy, groups),
        work=given.work(arrangement, groups),
        peak_kib=int(given.demands_kib(arrangement, groups).max()),
        shares=pricer.price_shares(strategy, arrangement, groups),
    )


def arrangement_of(placement: Placement) -> Arrangement:
    """Return the placement as the search writes it."""
    starts = [chunk.first_layer for chunk in placement.chunks]
    last = placement.chunks[-1]
    return Arrangement(
        cuts=(*starts, last.first_layer + last.layers),
        recomputed=tuple(chunk.recomputed for chunk in placement.chunks),
    )
