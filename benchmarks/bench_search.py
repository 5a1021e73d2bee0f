"""Search time, gap and effort on the scenarios that other planners report; ``python benchmarks/bench_search.py [NAME ..]``.

Scenarios alternate within each round, so that all see the same state of the machine; medians of CPU and wall seconds over
the rounds are printed and, with ``--json FILE``, stored with machine and date. Prices are made anew in every run.
"""

import argparse
import datetime as dt
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

from planner.scenario_file import scenario_from_mapping
from planner.search import plan

SCENARIOS: dict[str, tuple[float, dict[str, Any]]] = {
    name: (
        tolerance,
        {
            "model": model,
            "cluster": {"name": cluster, "gpus": gpus},
            "training": {"global_batch": batch, "sequence": sequence},
        },
    )
    for name, tolerance, model, cluster, gpus, batch, sequence in (
        ("gpt3-64", 0.0, "gpt3-175b", "dgx-a100-80gb", 64, 64, 2048),
        ("gpt3-1024", 0.0, "gpt3-175b", "dgx-a100-80gb", 1024, 1536, 2048),
        ("gpt-1t-3072", 0.0, "gpt-1t", "dgx-a100-80gb", 3072, 3072, 2048),
        ("llama-405b-16384", 1e-3, "llama-3.1-405b", "dgx-h100", 16384, 2048, 8192),
        ("deepseek-v3-2048", 1e-2, "deepseek-v3", "dgx-h100", 2048, 15360, 4096),
    )
}
# 24 layers on two kinds of GPUs, each stage on one of them: the size that a study of formulations used.
SCENARIOS["mixed-32a100-32v100"] = (
    0.0,
    {
        "model": {
            "layers": 24,
            "hidden": 6144,
            "heads": 48,
            "vocab": 50257,
            "gated": False,
            "tied": True,
        },
        "cluster": {
            "groups": [{"name": "dgx-a100-40gb", "gpus": 32}, {"name": "dgx-1-32gb", "gpus": 32}]
        },
        "training": {"global_batch": 1024, "sequence": 2048},
    },
)
TIME_LIMIT_S = 120.0


def run(name: str) -> dict[str, Any]:
    """Search one scenario once."""
    tolerance, content = SCENARIOS[name]
    scenario = scenario_from_mapping(content)
    cpu, wall = time.process_time(), time.perf_counter()
    result = plan(scenario, top=10, tolerance=tolerance, time_limit_s=TIME_LIMIT_S)
    return {
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - wall,
        "gap": result.gap,
        "strategies": result.counts.strategies,
        "solved": result.counts.solved,
        "simulated": result.counts.simulated,
        "best": result.plans[0].strategy.label() if result.plans else None,
    }


def median_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the last run with median times."""
    times = {key: statistics.median(item[key] for item in runs) for key in ("cpu_s", "wall_s")}
    return {**runs[-1], **times}


def main() -> None:
    """Run the chosen scenarios and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = options.names or list(SCENARIOS)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            runs[name].append(run(name))
    results = {name: median_of(items) for name, items in runs.items()}
    for name, item in results.items():
        print(
            f"{name:18} cpu {item['cpu_s']:6.2f} s  wall {item['wall_s']:6.2f} s  gap {item['gap']:.1e}  "
            f"{item['strategies']} strategies, {item['simulated']} simulated  {item['best']}"
        )
    if options.json:
        machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
        date = dt.datetime.now(dt.UTC).date().isoformat()
        stored = {"machine": machine, "date": date, "rounds": options.rounds, "results": results}
        options.json.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
