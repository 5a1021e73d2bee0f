"""The grid of tensor x pipeline x data configurations as a table and as plain values with timelines."""

from typing import Any

from costmodel.timeline import Timeline
from costmodel.units import GIB, NS_PER_S, format_seconds
from planner.answer_json import plan_to_json
from planner.answer_text import table
from planner.degree_grid import Configuration, DegreeGrid
from planner.scenario import Scenario

SCHEMA = 1


def grid_to_text(grid: DegreeGrid, scenario: Scenario) -> str:
    """Return one line for each configuration, the spread, and what profiling costs."""
    columns = ["configuration", "mbs x m", "iteration", "it/s", "utilisation", "memory/GPU", "fits"]
    rows = [_row(configuration) for configuration in grid.configurations]
    profiling = grid.profiling
    return (
        f"{scenario.name}: every tensor (M) x pipeline (P) x data (D) configuration\n\n"
        f"{table(columns, rows)}\n\n"
        f"Best to worst: {grid.spread:.2f} times the throughput.\n"
        f"Unique events: {profiling.events}, measured once in {profiling.unique_gpu_s:.2f} GPU-seconds; running "
        f"every configuration takes {profiling.direct_gpu_s:.2f}: {profiling.share:.1%}.\n"
    )


def _row(configuration: Configuration) -> list[str]:
    plan, busy = configuration.plan, configuration.utilisation
    return [
        configuration.label,
        f"{plan.strategy.micro_batch} x {plan.strategy.microbatches}",
        format_seconds(plan.iteration_s),
        f"{1 / plan.iteration_s:.3f}",
        f"{min(busy):.0%}" if len(busy) == 1 else f"{min(busy):.0%} to {max(busy):.0%}",
        f"{plan.peak_memory_bytes / GIB:.1f} GiB",
        "yes" if plan.fits else "no",
    ]


def grid_to_json(grid: DegreeGrid) -> dict[str, Any]:
    """Return everything, with the timeline of every pipeline rank."""
    profiling = grid.profiling
    return {
        "schema": SCHEMA,
        "spread": grid.spread,
        "unique_events": profiling.events,
        "unique_gpu_s": profiling.unique_gpu_s,
        "direct_gpu_s": profiling.direct_gpu_s,
        "configurations": [
            {
                "label": item.label,
                "plan": plan_to_json(item.plan),
                "tried": item.tried,
                "utilisation": list(item.utilisation),
                "timeline": _spans(item.timeline),
            }
            for item in grid.configurations
        ],
    }


def _spans(timeline: Timeline) -> list[list[dict[str, Any]]]:
    """Return the tasks of each pipeline rank in order, in seconds."""
    return [
        [
            {
                "task": span.kind,
                "microbatch": span.microbatch,
                "start_s": span.start_ns / NS_PER_S,
                "end_s": span.end_ns / NS_PER_S,
            }
            for span in rank
        ]
        for rank in timeline.spans
    ]
