"""Answers as JSON: the contract of DESIGN.md, "JSON of plan". Keys are added freely, never renamed."""

from dataclasses import asdict
from typing import Any

from planner.launching import launches
from planner.plans import Chunk, Plan, SearchResult, StageReport
from planner.scenario import Scenario
from planner.simulation import Simulation

SCHEMA = 1


def result_to_json(result: SearchResult, scenario: Scenario) -> dict[str, Any]:
    """Return the answer of a search in plain values, in a fixed order."""
    return {
        "schema": SCHEMA,
        "status": str(result.status),
        "lower_bound_s": result.lower_bound_s,
        "gap": result.gap,
        "plans": [_launched(plan, scenario) for plan in result.plans],
        "rejected": [asdict(rejection) for rejection in result.rejected],
        "levers": list(result.levers),
        "search": asdict(result.counts),
    }


def simulation_to_json(simulation: Simulation, scenario: Scenario) -> dict[str, Any]:
    """Return one plan in plain values with ``status`` legal, or ``illegal`` with the rules it breaks."""
    if simulation.plan is not None:
        return {
            "status": "legal",
            "verdict": simulation.verdict,
            **_launched(simulation.plan, scenario),
        }
    broken = [{"rule": item.rule, "text": item.text} for item in simulation.violations]
    return {"status": "illegal", "rule": broken[0]["rule"], "rules": broken, "fits": False}


def _launched(plan: Plan, scenario: Scenario) -> dict[str, Any]:
    """Return one plan with whether the scenario's framework launches it as it is, null if nothing is exported for it."""
    return {**plan_to_json(plan), "launches": launches(scenario, plan)}


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Return one plan in plain values."""
    strategy = asdict(plan.strategy)
    if all(chunk.recomputed == chunk.layers for chunk in plan.placement.chunks):
        strategy["recompute"] = "full"
    return {
        "rank": plan.rank,
        "strategy": strategy,
        "gpus": plan.strategy.gpus,
        "placement": plan.placement.label(),
        "device_groups": list(plan.placement.device_groups),
        "stages": [_stage(stage) for stage in plan.stages],
        "iteration_s": plan.iteration_s,
        "iteration_s_low": plan.iteration_s_low,
        "iteration_s_high": plan.iteration_s_high,
        "tokens_per_s": plan.tokens_per_s,
        "mfu": plan.mfu,
        "peak_memory_bytes": round(plan.peak_memory_bytes),
        "peak_allocated_bytes": round(max(stage.allocated_bytes for stage in plan.stages)),
        "demand_bytes": round(plan.demand_bytes),
        "memory_limit_bytes": round(plan.memory_limit_bytes),
        "fits": plan.fits,
        "time": dict(plan.time),
        "price_shares": dict(plan.price_shares),
        "tied_with": list(plan.tied_with),
    }


def _stage(stage: StageReport) -> dict[str, Any]:
    first, last = stage.chunks[0], stage.chunks[-1]
    return {
        "first_layer": first.first_layer,
        "last_layer": last.first_layer + last.layers - 1,
        "layers": sum(chunk.layers for chunk in stage.chunks),
        "recomputed_layers": sum(chunk.recomputed for chunk in stage.chunks),
        "chunks": [_chunk(chunk) for chunk in stage.chunks],
        "memory_bytes": round(stage.memory_bytes),
        "allocated_bytes": round(stage.allocated_bytes),
        "peak_moment": stage.peak_moment,
        "memory": {name: round(size) for name, size in stage.memory.items()},
        "forward_s": stage.forward_s,
        "backward_s": stage.backward_s,
        **_device(stage),
    }


def _device(stage: StageReport) -> dict[str, Any]:
    """Return what a stage runs on and its limit, in a cluster of several device groups."""
    if not stage.device:
        return {}
    return {"device": stage.device, "memory_limit_bytes": round(stage.memory_limit_bytes)}


def _chunk(chunk: Chunk) -> dict[str, int]:
    return {
        "first_layer": chunk.first_layer,
        "last_layer": chunk.first_layer + chunk.layers - 1,
        "recomputed_layers": chunk.recomputed,
    }
