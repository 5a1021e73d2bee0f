"""Answers to show: small, complete, and with names that try to become markup."""

from typing import Any

from costmodel.schedules import Shape
from costmodel.simulator import simulate
from costmodel.timeline import PipelineWork, Timeline
from planner.plans import SearchStatus
from planner.pool.model import GpuGroup, Objective
from planner.pool.share import Comparison, JobOutcome, Segment, ShareResult
from planner.report.gantt import share_section
from planner.report.page import render
from planner.report.plans import plans_sections
from planner.report.timeline import timeline_section
from planner.report.whatif import whatif_section

HOSTILE = (
    "</script></title></style><script>document.documentElement.dataset.hacked=1</script>"
    "<img src=x onerror=\"document.documentElement.dataset.hacked=1\">' onload='x"
)
GIB = 2**30


def plan_json(rank: int, iteration_s: float, tp: int, name: str = "block") -> dict[str, Any]:
    memory = {"parameters": 20 * GIB, "activations": (10 + rank) * GIB, name: GIB}
    stage = {
        "first_layer": 0,
        "last_layer": 7,
        "recomputed_layers": 2,
        "memory": memory,
    }
    return {
        "rank": rank,
        "strategy": {"dp": 2, "tp": tp, "pp": 2, "micro_batch": 1, "microbatches": 8,
                     "schedule": "1f1b", "zero": 1, "recompute": "none"},
        "placement": "8/8",
        "stages": [stage, stage | {"first_layer": 8, "last_layer": 15}],
        "iteration_s": iteration_s,
        "iteration_s_low": iteration_s * 0.9,
        "iteration_s_high": iteration_s * 1.1,
        "tokens_per_s": 1e6 / iteration_s,
        "mfu": 0.4,
        "peak_memory_bytes": sum(memory.values()),
        "memory_limit_bytes": 40 * GIB,
        "time": {"compute": iteration_s * 0.8, "tp_comm": iteration_s * 0.2},
        "tied_with": [],
    }  # fmt: skip


def answer(name: str = "block") -> dict[str, Any]:
    seconds = (9.5, 10.25, 11.0)
    return {
        "status": "optimal",
        "lower_bound_s": 9.5,
        "gap": 0.0,
        "plans": [plan_json(i, s, 2**i, name) for i, s in enumerate(seconds, 1)],
        "rejected": [{"reason": "memory", "count": 12, "nearest": f"more memory {name}"}],
        "search": {"strategies": 152, "solved": 20, "simulated": 14},
    }


def sweep() -> dict[str, Any]:
    steps = [
        {"memory_bytes": m * GIB, "iteration_s": s, "gap": 0.0, "plan": plan_json(1, s, 2)}
        for m, s in ((20, 12.0), (30, 10.0), (60, 9.0))
    ]
    return {"steps": steps, "memory_limit_bytes": 40 * GIB}


def timeline() -> Timeline:
    work = PipelineWork(
        shape=Shape(schedule="1f1b", ranks=2, chunks=1, microbatches=4),
        forward_ns=(1_000_000,) * 2,
        backward_ns=(2_000_000,) * 2,
        weight_ns=(0, 0),
        transfer_ns=(1000, 1000),
        finish_ns=(500_000, 400_000),
    )
    return simulate(work)


def shared(name: str = "llama") -> ShareResult:
    segments = tuple(
        Segment(
            job=name if place == 0 else f"model {place}",
            group="h100",
            gpus=16,
            nodes=((2 * place, 2 * place + 2),),
            start_h=float(place),
            end_h=10.0 + place,
            spot=place == 1,
            restarted=False,
            cost=100.0,
            plan="tp8 dp2",
        )
        for place in range(2)
    )
    jobs = tuple(
        JobOutcome(
            job=segment.job,
            priority=1,
            start_h=segment.start_h,
            end_h=segment.end_h,
            deadline_h=10.5,
            met=segment.end_h <= 10.5,
            cost=100.0,
        )
        for segment in segments
    )
    return ShareResult(
        status=SearchStatus.OPTIMAL,
        objective=Objective.MAKESPAN,
        unit="h",
        value=11.0,
        bound=10.9,
        gap=0.009,
        makespan_h=11.0,
        cost=200.0,
        utilisation=0.9,
        groups=(GpuGroup(name="h100", cluster="dgx-h100", gpus=32),),
        segments=segments,
        jobs=jobs,
        comparisons=(Comparison(name="equal split", value=20.0, gain=0.45, missed=1),),
    )


def whole_page(name: str = "block") -> str:
    sections = [
        *plans_sections(answer(name)),
        timeline_section(timeline()),
        whatif_section(sweep(), "Memory sweep"),
        share_section(shared(name)),
    ]
    return render(f"Report of {name}", sections)
