"""The whole path on one screen: scenario, space, prices, certified search, ranked plans."""

import time
from dataclasses import replace

from costmodel.errors import TimeLimitError
from costmodel.units import KIB, NS_PER_S
from planner.assemble import build_plan
from planner.bands import band_of
from planner.engine import EngineResult, RankedPlan
from planner.explain import levers, rejections
from planner.mixed.cluster import plan_limit_bytes
from planner.plans import Plan, SearchCounts, SearchResult, SearchStatus
from planner.scenario import Scenario
from planner.scenario_search import Session, open_session, search_scenario
from planner.systems import apply_system

DEFAULT_TOLERANCE = 1e-3
"""Relative gap at which a ranking counts as proven: far below any error band of a prediction."""


def plan(
    scenario: Scenario,
    *,
    top: int = 10,
    tolerance: float = DEFAULT_TOLERANCE,
    time_limit_s: float | None = None,
    session: Session | None = None,
    explain: bool = True,
) -> SearchResult:
    """Return the ``top`` best plans of the scenario's space with their certificate.

    Args:
        scenario: The question.
        top: How many plans to rank.
        tolerance: Gap within which the answer counts as optimal; 0 asks for the exact proof.
        time_limit_s: When to stop with the best so far and an honest gap; None is never.
        session: An earlier search of the same scenario, its memory limit apart; it is cheapest to let the limit fall.
        explain: Whether to try, where nothing fits, what would make it fit; each lever is a search of its own.

    Raises:
        TimeLimitError: If the time ended before any plan was found.
    """
    begun = time.perf_counter()
    scenario = apply_system(scenario)
    session = session or open_session(scenario)
    found = search_scenario(
        scenario, session, top=top, tolerance=tolerance, time_limit_s=time_limit_s
    )
    result = _result(scenario, session, found, tolerance, begun)
    if result.plans or not explain:
        return result
    return replace(result, levers=levers(scenario, session.space, found))


def _result(
    scenario: Scenario,
    session: Session,
    found: EngineResult,
    tolerance: float,
    begun: float,
) -> SearchResult:
    plans = _tied(
        [_plan(scenario, session, rank, item) for rank, item in enumerate(found.ranked, 1)]
    )
    if not plans and not found.proved:
        raise TimeLimitError(
            f"the time limit was reached before any of {len(session.space.columns):,} strategies was placed: give more time, or "
            "bound decisions (search: tp, pp, ..), which leaves fewer"
        )
    first = plans[0].iteration_s if plans else 0.0
    bound = min(found.lower_bound_ns / NS_PER_S, first)
    gap = (first - bound) / first if plans else 0.0
    status = _status(plans, gap, tolerance)
    return SearchResult(
        status=status,
        plans=plans,
        lower_bound_s=bound,
        gap=gap,
        rejected=rejections(session.space, found, scenario),
        counts=SearchCounts(
            strategies=len(session.space.columns),
            solved=found.solved,
            simulated=found.simulated,
            seconds=time.perf_counter() - begun,
        ),
    )


def _status(plans: tuple[Plan, ...], gap: float, tolerance: float) -> SearchStatus:
    if not plans:
        return SearchStatus.INFEASIBLE
    return SearchStatus.OPTIMAL if gap <= tolerance else SearchStatus.FEASIBLE


def _plan(scenario: Scenario, session: Session, rank: int, found: RankedPlan) -> Plan:
    groups = found.placement.device_groups
    return build_plan(
        rank=rank,
        cost=session.cost(found.strategy, groups),
        placement=found.placement,
        iteration_s=found.iteration_ns / NS_PER_S,
        band=band_of(scenario),
        graph=scenario.graph,
        cluster=scenario.cluster,
        training=scenario.training,
        memory_limit_bytes=plan_limit_bytes(scenario, groups),
        demand_bytes=found.peak_kib * KIB,
        price_shares=session.price_shares(found.strategy, found.placement),
    )


def _tied(plans: list[Plan]) -> tuple[Plan, ...]:
    """Mark plans whose bands overlap the first plan's prediction: the model cannot tell them apart."""
    if not plans:
        return ()
    near = tuple(plan.rank for plan in plans if plan.iteration_s_low <= plans[0].iteration_s)
    return tuple(
        replace(plan, tied_with=tuple(rank for rank in near if rank != plan.rank))
        if plan.rank in near and len(near) > 1
        else plan
        for plan in plans
    )
