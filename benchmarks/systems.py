"""Figures of the page "Which parallelism?": partitions, DistSim's search case, rules that a cluster of people follow.

Run from the project's folder: ``python -m benchmarks.systems``; times are wall seconds of this machine.
"""

import time
from pathlib import Path

from costmodel.simulator import simulate
from planner.answer_text import table
from planner.chain import ChainPlan, evaluate, place
from planner.compare import Outcome, compare
from planner.degree_grid import degree_grid
from planner.pipedream import LayerLoad, replicated_pipeline
from planner.sagemaker import partition
from planner.scenario_file import load_scenario
from tests.planner.systems.partition_cases import (
    MODELS,
    NVLINK_BYTES_PER_S,
    RANKS,
    chain_of,
    tree,
)

EXAMPLES = Path(__file__).parents[1] / "scenarios" / "examples"
COUNTS = (1, 2, 4, 8, 16, 32, 64)
SURVEYED = (
    "ddp", "lbann", "zero-1", "zero-2", "zero-3", "megatron-data", "megatron-intra", "gpipe", "pipedream",
)  # fmt: skip
STATE_PER_GRADIENT = 10
"""Bytes of training state for each byte of a 16-bit gradient: 20 bytes a parameter."""


def survey() -> str:
    """Tabulate GPT2-medium as the survey ran it: milliseconds of an iteration and GiB per GPU."""
    scenario = load_scenario(EXAMPLES / "survey-gpt2-medium.yaml")
    found = compare(scenario, SURVEYED, COUNTS, "survey")
    rows = [[name, *map(_survey_cell, found.of(name))] for name in SURVEYED]
    return table(["system", *(f"{gpus} GPUs" for gpus in COUNTS)], rows)


def _survey_cell(outcome: Outcome) -> str:
    if outcome.plan is None:
        return "-"
    memory = outcome.plan.peak_memory_bytes / 2**30
    return f"{outcome.plan.iteration_s * 1e3:.0f} ms, {memory:.1f}"


def partitions() -> str:
    """Compare SageMaker's tree with the planner's placement, and PipeDream's replicated stages with both."""
    rows = []
    for model in MODELS:
        for ranks in RANKS:
            chain = chain_of(model, ranks)
            placed = place(chain, ranks)
            ours = evaluate(chain, placed) if placed else None
            theirs = [evaluate(chain, partition(tree(model), ranks, alpha)) for alpha in (0.2, 0.8)]
            rows.append(
                [model, str(ranks), _cell(ours), *map(_cell, theirs), _replicated(model, ranks)]
            )
    columns = [
        "model",
        "ranks",
        "planner",
        "tree, speed (0.2)",
        "tree, memory (0.8)",
        "PipeDream, steady",
    ]
    return table(columns, rows)


def _cell(plan: ChainPlan | None) -> str:
    if plan is None:
        return "-"
    largest = max(plan.memory_bytes) / 2**30
    return f"{plan.iteration_s * 1e3:.0f} ms, {largest:.1f} GiB, {len(plan.visits)} visits"


def _replicated(model: str, ranks: int) -> str:
    loads = [
        LayerLoad(
            seconds=leaf.forward_s + leaf.backward_s,
            gradient_bytes=sum(leaf.weights.values()) / STATE_PER_GRADIENT,
            output_bytes=leaf.output_bytes,
        )
        for leaf in tree(model).leaves()
    ]
    found = replicated_pipeline(loads, ranks, NVLINK_BYTES_PER_S)
    shape = "-".join(str(stage.replicas) for stage in found.stages)
    return f"{4 * ranks * found.period_s * 1e3:.0f} ms, replicas {shape}"


def distsim() -> str:
    """Time the fifteen configurations, all micro-batch sizes of each."""
    scenario = load_scenario(EXAMPLES / "distsim-bert-exlarge.yaml")
    degree_grid(scenario)
    begun = time.perf_counter()
    grid = degree_grid(scenario)
    seconds = time.perf_counter() - begun
    if grid is None:
        return "no configuration is legal"
    begun = time.perf_counter()
    for item in grid.configurations:
        simulate(item.timeline.work)
    again = time.perf_counter() - begun
    tried = sum(item.tried for item in grid.configurations)
    return (
        f"{len(grid.configurations)} configurations, {tried} strategies priced, simulated and told in {seconds:.3f} s, "
        f"the fifteen simulated again in {again:.4f} s (DistSim: 0.14 s); best to worst {grid.spread:.2f} (DistSim: 7.38); {grid.profiling.events} unique events "
        f"cost {grid.profiling.share:.1%} of running all (DistSim: 12.96 %)"
    )


if __name__ == "__main__":
    print(survey(), partitions(), distsim(), sep="\n\n")
