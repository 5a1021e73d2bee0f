"""The nearest plan that a target launches, where only recomputation or cuts of the one asked for stand in the way.

The search gives every stage its own number of recomputed layers; most frameworks take one number for all stages, or all layers
or none. The nearest plan keeps the strategy. Of the recomputations that the target has words for, with the cuts that suit them best, it
has the fastest found that fits the memory, by the same prices; unlike the list it is not proved to be the fastest.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from costmodel.strategy import RECOMPUTES, Recompute
from costmodel.units import format_seconds
from planner.answer_text import layers_label, recompute_label
from planner.check import broken_rules
from planner.coefficients import Arrangement, coefficients
from planner.columns import columns_of
from planner.explain import with_gpus
from planner.export.target import Launch, Target
from planner.launching import launch_of, mendable
from planner.plans import Plan
from planner.rules import facts_of
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.simulation import arrangement_of, simulate_placement
from planner.systems import apply_system
from planner.uniform_search import best_uniform


def launchable(chosen: Target, scenario: Scenario, plan: Plan, *, exact: bool) -> Launch:
    """Return what a target launches for a plan: itself or, unless it has to be ``exact``, the nearest with a notice.

    Raises:
        InputError: If the target can express neither; it names the field and the reason.
    """
    launch = launch_of(scenario, plan)
    found = None if exact else nearest_launched(chosen, scenario, plan)
    if found is None or found is plan:
        chosen.check(launch)
        return launch
    rule = next(chosen.refusals(launch)).rule
    return replace(launch, plan=found, notice=_notice(chosen, plan, found, rule))


def nearest_launched(chosen: Target, scenario: Scenario, plan: Plan) -> Plan | None:
    """Return the plan itself where a target launches it, else the nearest that it does, None if there is none."""
    refusals = tuple(chosen.refusals(launch_of(scenario, plan)))
    if not refusals:
        return plan
    return nearest_plan(chosen, scenario, plan) if mendable(refusals) else None


def pricing_scenario(scenario: Scenario, plan: Plan) -> Scenario:
    """Return the scenario in which a plan was priced: its system's, on as many GPUs as the plan uses."""
    used = apply_system(scenario)
    if plan.strategy.gpus < used.cluster.gpus and len(used.cluster.groups) == 1:
        return with_gpus(used, plan.strategy.gpus)
    return used


def nearest_plan(chosen: Target, scenario: Scenario, plan: Plan) -> Plan | None:
    """Return the fastest plan found of the same strategy that fits and is launched as it is, None if there is none."""
    used = pricing_scenario(scenario, plan)
    pricer, groups = make_pricer(used), plan.placement.device_groups
    cuts, found = arrangement_of(plan.placement).cuts, []
    for kind in _kinds(used, plan):
        strategy = replace(plan.strategy, recompute=kind)
        accepts = _acceptance(chosen, scenario, replace(plan, strategy=strategy), used)
        given = coefficients(pricer.cost(strategy), used.memory_limit_bytes)
        best = best_uniform(given, cuts, accepts)
        if best is not None:
            placement = best[1].placement(groups)
            found.append(simulate_placement(used, pricer, strategy, placement).plan)
    plans = [replace(item, rank=plan.rank) for item in found if item is not None and item.fits]
    return min(plans, key=lambda item: item.iteration_s, default=None)


def _acceptance(
    chosen: Target, scenario: Scenario, plan: Plan, used: Scenario
) -> Callable[[Arrangement], bool]:
    """Return what says whether the target launches the plan with another placement, within the scenario's bounds."""
    admits_full = used.bound("recompute").admits("full")

    def accepts(arrangement: Arrangement) -> bool:
        placement = arrangement.placement(plan.placement.device_groups)
        launch = launch_of(scenario, replace(plan, placement=placement))
        allowed = admits_full or not any(arrangement.recomputed)
        return allowed and not any(chosen.refusals(launch))

    return accepts


def _kinds(scenario: Scenario, plan: Plan) -> Iterator[Recompute]:
    """Yield the kinds of recomputation that the scenario admits and the rules allow."""
    for kind in RECOMPUTES:
        strategy = replace(plan.strategy, recompute=kind)
        admitted = scenario.bound("recompute").admits(kind) or kind == plan.strategy.recompute
        if admitted and not broken_rules(columns_of((strategy,)), facts_of(scenario)):
            yield kind


def _notice(chosen: Target, plan: Plan, found: Plan, rule: str) -> str:
    moved = plan.placement.layer_counts() != found.placement.layer_counts()
    asked, written = (_placed(item, layers=moved) for item in (plan, found))
    return (
        f"{chosen.version} does not launch plan {plan.rank} ({asked}) as it is: {rule}; written with {written}, predicted "
        f"{format_seconds(found.iteration_s)} an iteration instead of {format_seconds(plan.iteration_s)}"
    )


def _placed(plan: Plan, *, layers: bool) -> str:
    """Return what is recomputed, behind the layers of each stage where they matter."""
    label, kind = recompute_label(plan), plan.strategy.recompute
    others = "" if kind in ("none", label) or label == "full" else f" and the others {kind}"
    held = f"layers {layers_label(plan.placement.layer_counts())}, " if layers else ""
    return f"{held}recompute {label}{others}"
