"""Aceso's own two cases, searched exactly under its own cost definition on its own V100 operator table.

Aceso (microsoft/SuperScaler fa80ad0) reports 58.76 s and 87.13 s for its best plans, found 14 s and 3 s into its search.
"""

import time

from costmodel.importers.operators import collective_table, read_operators
from costmodel.recompose.profiles import PROFILES
from planner.operator_cut.search import Problem, best_plan

PROFILE = "superscaler-eurosys"
CASES = {
    "GPT-1.3B, 4 V100, 12,000 MB": (
        Problem(model="1_3B", layers=24, gpus=4, memory_mib=12_000, global_batch=512),
        58.76,
    ),
    "GPT-2.6B, 8 V100, 28,000 MB": (
        Problem(model="2_6B", layers=32, gpus=8, memory_mib=28_000, global_batch=1024),
        87.13,
    ),
}


def main() -> None:
    """Print each case's proved optimum beside Aceso's plan."""
    cpu = time.process_time()
    rows = {row.key: row for row in read_operators(PROFILES / "operators.csv", PROFILE)}
    transfers = collective_table(PROFILES / "collectives.csv", [PROFILE], "V100-32GB")
    print(f"tables read in {time.process_time() - cpu:.2f} s CPU")
    for name, (problem, theirs) in CASES.items():
        start, cpu = time.perf_counter(), time.process_time()
        plan = best_plan(problem, rows, transfers)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        if plan is None:
            print(f"{name}: nothing fits")
            continue
        print(
            f"{name}: {plan.iteration_s:.3f} s proved optimal ({plan.iteration_s / theirs - 1:+.2%} to "
            f"Aceso's {theirs} s), {wall:.2f} s wall, {cpu:.2f} s CPU, {plan.priced} stages priced"
        )
        for stage in plan.stages:
            print(
                f"  operators {stage.first}..{stage.end - 1}: tp {stage.tp}, dp {stage.dp}, "
                f"{sum(stage.recomputed)} recomputed, {1e3 * stage.seconds:.1f} ms, {stage.memory_mib:.0f} MB"
            )


if __name__ == "__main__":
    main()
