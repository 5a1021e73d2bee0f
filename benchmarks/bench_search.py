"""Search time, gap and effort; ``python -m benchmarks.bench_search [NAME ..]``, with ``--growth`` how they grow.

Scenarios are those that other planners report, very deep models, and the placement of one strategy with recomputation
by stage. They alternate within each round, so that all see the same state of the machine; medians of CPU and wall
seconds over the rounds are printed and, with ``--json FILE``, stored with machine and date. Prices are made anew in
every run. ``--growth`` doubles the GPUs under one model (the batch grows along above 1,024 GPUs) and the layers on one
cluster, and prints the CPU seconds of each step and their ratio to the step before.
"""

import argparse
import datetime as dt
import json
import os
import platform
import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from planner.scenario_file import scenario_from_mapping
from planner.search import plan

TIME_LIMIT_S = 120.0
TOP = 10

Content = dict[str, Any]


def content(
    model: object, cluster: str, gpus: int, batch: int, sequence: int, **others: object
) -> Content:
    """Return a scenario as its file would hold it."""
    return {
        "model": model,
        "cluster": {"name": cluster, "gpus": gpus},
        "training": {"global_batch": batch, "sequence": sequence},
        **others,
    }


def deep(layers: int, *, one_chunk: bool = False) -> Content:
    """Return a GPT-like model of a given depth on 4,096 GPUs (width of Llama 3.1 70B, 0.8 G parameters a layer)."""
    model = {"layers": layers, "hidden": 8192, "heads": 64, "vocab": 51200}
    search: dict[str, object] = {"search": {"vpp": 1}} if one_chunk else {}
    return content(model, "dgx-h100", 4096, 4096, 4096, **search)


def two_kinds() -> Content:
    """Return 24 layers on two kinds of GPUs, each stage on one of them: the size that a study of formulations used."""
    return {
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
    }


def stages_of_61(memory: str) -> Content:
    """Return one strategy of 61 layers, 3 dense and 58 with experts, on 16 stages with 32 micro-batches."""
    fixed = {
        "pp": 16,
        "vpp": 1,
        "tp": 1,
        "cp": 1,
        "ep": 64,
        "micro_batch": 1,
        "schedule": "1f1b",
        "zero": 1,
    }
    limits = {"memory": memory}
    return content("deepseek-v3", "dgx-h100", 1024, 2048, 4096, search=fixed, limits=limits)


SCENARIOS: dict[str, tuple[float, Content]] = {
    "gpt3-64": (0.0, content("gpt3-175b", "dgx-a100-80gb", 64, 64, 2048)),
    "gpt3-1024": (0.0, content("gpt3-175b", "dgx-a100-80gb", 1024, 1536, 2048)),
    "gpt-1t-3072": (0.0, content("gpt-1t", "dgx-a100-80gb", 3072, 3072, 2048)),
    "llama-405b-16384": (1e-3, content("llama-3.1-405b", "dgx-h100", 16384, 2048, 8192)),
    "deepseek-v3-2048": (1e-2, content("deepseek-v3", "dgx-h100", 2048, 15360, 4096)),
    "layers-1024": (1e-3, deep(1024)),
    "layers-1024-one-chunk": (1e-3, deep(1024, one_chunk=True)),
    "mixed-32a100-32v100": (0.0, two_kinds()),
    "61-layers-76GiB": (0.0, stages_of_61("76GiB")),
    "61-layers-60GiB": (0.0, stages_of_61("60GiB")),
    "61-layers-46GiB": (0.0, stages_of_61("46GiB")),
}


def gpus_doubled() -> dict[str, Content]:
    """Return GPT-3 175B on 64 to 16,384 GPUs."""
    return {
        f"gpt3-175b on {gpus}": content(
            "gpt3-175b", "dgx-a100-80gb", gpus, max(1536, 3 * gpus // 2), 2048
        )
        for gpus in (64 << step for step in range(9))
    }


def layers_doubled() -> dict[str, Content]:
    """Return models of 64 to 1,024 layers on 4,096 GPUs."""
    return {f"{layers} layers": deep(layers) for layers in (64 << step for step in range(5))}


def run(scenario: Content, tolerance: float) -> dict[str, Any]:
    """Search one scenario once."""
    read = scenario_from_mapping(scenario)
    cpu, wall = time.process_time(), time.perf_counter()
    result = plan(read, top=TOP, tolerance=tolerance, time_limit_s=TIME_LIMIT_S)
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


def measured(scenarios: Mapping[str, tuple[float, Content]], rounds: int) -> dict[str, Any]:
    """Return the medians over the rounds, by name."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in scenarios}
    for _ in range(rounds):
        for name, (tolerance, scenario) in scenarios.items():
            runs[name].append(run(scenario, tolerance))
    return {name: median_of(items) for name, items in runs.items()}


def line(name: str, item: Mapping[str, Any]) -> str:
    """Return one result as text."""
    return (
        f"{name:22} cpu {item['cpu_s']:6.2f} s  wall {item['wall_s']:6.2f} s  gap {item['gap']:.1e}  "
        f"{item['strategies']} strategies, {item['simulated']} simulated  {item['best']}"
    )


def curve(results: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Yield the lines of a curve, each with the ratio of its CPU time to that of the line before."""
    before = None
    for name, item in results.items():
        ratio = f"x {item['cpu_s'] / before:4.2f}  " if before else "        "
        yield ratio + line(name, item)
        before = item["cpu_s"]


def main() -> None:
    """Run the chosen scenarios, or the curves, and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.growth:
        results = {}
        for scenarios in (gpus_doubled(), layers_doubled()):
            found = measured(
                {name: (1e-3, item) for name, item in scenarios.items()}, options.rounds
            )
            print("\n".join(curve(found)))
            results |= found
    else:
        chosen = {name: SCENARIOS[name] for name in options.names or SCENARIOS}
        results = measured(chosen, options.rounds)
        print("\n".join(line(name, item) for name, item in results.items()))
    if options.json:
        machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
        date = dt.datetime.now(dt.UTC).date().isoformat()
        stored = {"machine": machine, "date": date, "rounds": options.rounds, "results": results}
        options.json.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
