"""Planners for the batch tests, importable by worker processes: real answers, or the faults to survive."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from costmodel.strategy import Strategy
from planner.plans import (
    Chunk,
    Placement,
    Plan,
    SearchCounts,
    SearchResult,
    SearchStatus,
    StageReport,
)
from planner.scenario import Scenario

TOKENS_PER_GPU_S = 1000.0


def by_size(scenario: Scenario) -> SearchResult:
    """Answer with a plan whose speed grows with the GPUs to the power 0.9; below 16 GPUs nothing fits."""
    gpus = scenario.cluster.gpus
    if gpus < 16:
        return replace(
            _result(gpus), plans=(), status=SearchStatus.INFEASIBLE, levers=("more GPUs",)
        )
    return _result(gpus)


def noted(scenario: Scenario) -> SearchResult:
    """Answer as ``by_size`` and leave a mark per call in the folder named by the environment."""
    marks = Path(os.environ["MARKS"])
    (marks / f"{scenario.name}-{os.getpid()}-{time.monotonic_ns()}").touch()
    return by_size(scenario)


def slowly(scenario: Scenario) -> SearchResult:
    """Answer as ``noted`` after a while."""
    time.sleep(float(os.environ["SECONDS"]))
    return noted(scenario)


def deadly(scenario: Scenario) -> SearchResult:
    """Kill the worker on the scenario named so; answer the others."""
    if scenario.name == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return by_size(scenario)


def broken(scenario: Scenario) -> SearchResult:
    """Fail on the scenario named so as no planner should; answer the others."""
    if scenario.name == "broken":
        raise RuntimeError("a bug")
    return by_size(scenario)


def _result(gpus: int) -> SearchResult:
    chunk = Chunk(first_layer=0, layers=1)
    rate = TOKENS_PER_GPU_S * gpus**0.9
    stage = StageReport(
        chunks=(chunk,),
        memory_bytes=10.0,
        allocated_bytes=9.0,
        memory={"parameters": 10.0},
        peak_moment="backward",
        forward_s=1.0,
        backward_s=2.0,
    )
    best = Plan(
        rank=1,
        strategy=Strategy(dp=gpus),
        placement=Placement(chunks=(chunk,)),
        stages=(stage,),
        iteration_s=1e6 / rate,
        iteration_s_low=0.9e6 / rate,
        iteration_s_high=1.1e6 / rate,
        tokens_per_s=rate,
        mfu=0.4,
        memory_limit_bytes=20.0,
        time={"compute": 1e6 / rate},
    )
    return SearchResult(
        status=SearchStatus.OPTIMAL,
        plans=(best,),
        lower_bound_s=best.iteration_s,
        gap=0.0,
        rejected=(),
        counts=SearchCounts(strategies=1, solved=0, simulated=1, seconds=time.perf_counter()),
    )
