"""Predicted against measured iterations of real two-process runs on this machine (``make validate``).

Two model shapes and eight strategies: data, tensor and pipeline parallelism with three schedules and uneven stages, ZeRO-1
and fully_shard. Events and iterations alternate within each run, so that both see the same state of the machine. It says nothing
about a machine on which something else runs.
"""

import json
import os
import statistics
import sys
from pathlib import Path

from costmodel.strategy import Strategy
from profiler.validate.job import Job, ModelShape
from profiler.validate.ranks import launch
from profiler.validate.report import Report, as_json, report

ROUNDS = 7
SHAPES = {
    "gpt": ModelShape(
        hidden=512, heads=8, kv_heads=8, head_dim=64, ffn=2048, gated=False, layers=4, vocab=4096, sequence=256
    ),
    "llama": ModelShape(
        hidden=768, heads=12, kv_heads=4, head_dim=64, ffn=2048, gated=True, layers=4, vocab=2048, sequence=128
    ),
}  # fmt: skip
CASES: dict[str, tuple[Strategy, tuple[int, ...]]] = {
    "dp2": (Strategy(dp=2, microbatches=4), (4,)),
    "tp2": (Strategy(tp=2, microbatches=4), (4,)),
    "pp2 gpipe": (Strategy(pp=2, microbatches=4, schedule="gpipe"), (2, 2)),
    "pp2 1f1b": (Strategy(pp=2, microbatches=8), (2, 2)),
    "pp2 uneven": (Strategy(pp=2, microbatches=8), (3, 1)),
    "pp2 interleaved": (
        Strategy(pp=2, vpp=2, microbatches=4, schedule="interleaved"),
        (1, 1, 1, 1),
    ),
    "zero1 dp2": (Strategy(dp=2, zero=1, microbatches=4), (4,)),
    "fsdp2": (Strategy(dp=2, zero=3, microbatches=2), (4,)),
}


def jobs() -> dict[str, Job]:
    """Return every case by name."""
    return {
        f"{shape} {case}": Job(shape=SHAPES[shape], strategy=strategy, layers=layers, rounds=ROUNDS)
        for shape in SHAPES
        for case, (strategy, layers) in CASES.items()
    }


def run(wanted: list[str]) -> dict[str, Report]:
    """Launch the wanted cases, all by default, and return their reports."""
    chosen = {name: job for name, job in jobs().items() if not wanted or name in wanted}
    results = launch(list(chosen.values()))
    return {
        name: report(job, result)
        for (name, job), result in zip(chosen.items(), results, strict=True)
    }


def main() -> None:
    """Print one line a case and the summary; write all of it where ``--json FILE`` says."""
    arguments = sys.argv[1:]
    file = arguments.pop(arguments.index("--json") + 1) if "--json" in arguments else None
    reports = run([name for name in arguments if name != "--json"])
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"{'case':24}{'measured':>11}{'predicted':>11}{'error':>8}{'spread':>8}  collectives")
    for name, found in reports.items():
        row = found.iteration
        equal = "as predicted" if found.collectives_equal else "DIFFERENT"
        print(
            f"{name:24}{row.measured:9.3f} s{row.predicted:9.3f} s{row.error:+8.1%}"
            f"{found.spread:8.0%}  {equal}"
        )
    errors = [abs(found.iteration.error) for found in reports.values()]
    print(f"{len(errors)} cases: median {statistics.median(errors):.1%}, largest {max(errors):.1%}")
    if file:
        data = {name: as_json(found) for name, found in reports.items()}
        Path(file).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
