"""One given strategy: judged by the rules, priced, simulated."""

from dataclasses import dataclass

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
    if placement.device_groups:
        return _simulate_assigned(scenario, strategy, placement)
    cost = pricer.cost(strategy)
    limit = plan_limit_bytes(scenario, ())
    given, arrangement = coefficients(cost, limit), arrangement_of(placement)
    work = given.work(arrangement)
    plan = build_plan(
        rank=1,
        cost=cost,
        placement=placement,
        iteration_s=iteration_ns(work) / NS_PER_S,
        band=band_of(scenario),
        graph=scenario.graph,
        cluster=scenario.cluster,
        training=scenario.training,
        memory_limit_bytes=limit,
        demand_bytes=given.peak_kib(arrangement) * KIB,
        price_shares=pricer.price_shares(strategy),
    )
    return Simulation(
        strategy=strategy,
        violations=(),
        plan=plan,
        cost=cost,
        work=work,
        verdict=plan_verdict(plan, scenario.cluster.device),
    )


def _simulate_assigned(scenario: Scenario, strategy: Strategy, placement: Placement) -> Simulation:
    """Predict a legal strategy whose pipeline ranks are assigned to device groups."""
    groups, pricer = placement.device_groups, make_mixed_pricer(scenario)
    cost, limit = pricer.cost(strategy, groups), plan_limit_bytes(scenario, groups)
    given = pricer.prices.coefficients(strategy, scenario.memory_limit_bytes)
    arrangement = arrangement_of(placement)
    work = given.work(arrangement, groups)
    plan = build_plan(
        rank=1,
        cost=cost,
        placement=placement,
        iteration_s=iteration_ns(work) / NS_PER_S,
        band=band_of(scenario),
        graph=scenario.graph,
        cluster=scenario.cluster,
        training=scenario.training,
        memory_limit_bytes=limit,
        demand_bytes=int(given.demands_kib(arrangement, groups).max()) * KIB,
        price_shares=pricer.price_shares(strategy, groups),
    )
    return Simulation(
        strategy=strategy,
        violations=(),
        plan=plan,
        cost=cost,
        work=work,
        verdict=assigned_verdict(plan, scenario.cluster),
    )


def arrangement_of(placement: Placement) -> Arrangement:
    """Return the placement as the search writes it."""
    starts = [chunk.first_layer for chunk in placement.chunks]
    last = placement.chunks[-1]
    return Arrangement(
        cuts=(*starts, last.first_layer + last.layers),
        recomputed=tuple(chunk.recomputed for chunk in placement.chunks),
    )
