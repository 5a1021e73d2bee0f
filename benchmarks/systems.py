"""Tables of the page "Which parallelism?": the survey's case, partitions of module trees, DistSim's search case.

From the project's folder ``python -m benchmarks.systems`` prints them with the wall seconds of DistSim's case, and
``python -m benchmarks.systems docs/which-parallelism.md`` writes them into the page, between their markers.
"""

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from costmodel.simulator import simulate
from planner.chain import ChainPlan, evaluate, place
from planner.compare import Outcome, compare
from planner.degree_grid import DegreeGrid, degree_grid
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


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def survey() -> str:
    """Tabulate GPT2-medium as the survey ran it: milliseconds of an iteration and GiB per GPU."""
    scenario = load_scenario(EXAMPLES / "survey-gpt2-medium.yaml")
    found = compare(scenario, SURVEYED, COUNTS, "survey")
    rows = [[name, *map(_survey_cell, found.of(name))] for name in SURVEYED]
    return markdown(["system", *(f"{gpus} GPUs" for gpus in COUNTS)], rows)


def _survey_cell(outcome: Outcome) -> str:
    if outcome.plan is None:
        return "-"
    memory = outcome.plan.peak_memory_bytes / 2**30
    return f"{outcome.plan.iteration_s * 1e3:.0f} ms, {memory:.1f}"


def partitions() -> str:
    """Compare SageMaker's tree with the planner's placement, and PipeDream's replicated stages with both."""
    columns = ["model", "ranks", "planner", "tree, speed", "tree, memory", "PipeDream, steady"]
    return markdown(columns, (_partition_row(model, ranks) for model in MODELS for ranks in RANKS))


def _partition_row(model: str, ranks: int) -> list[str]:
    chain = chain_of(model, ranks)
    placed = place(chain, ranks)
    ours = evaluate(chain, placed) if placed else None
    theirs = [evaluate(chain, partition(tree(model), ranks, alpha)) for alpha in (0.2, 0.8)]
    return [model, str(ranks), _cell(ours), *map(_cell, theirs), _replicated(model, ranks)]


def _cell(plan: ChainPlan | None) -> str:
    if plan is None:
        return "-"
    return f"{plan.iteration_s * 1e3:.0f} ms, {max(plan.memory_bytes) / 2**30:.1f} GiB"


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
    return f"{4 * ranks * found.period_s * 1e3:.0f} ms on {shape}"


def distsim(grid: DegreeGrid) -> str:
    """Tabulate the fifteen configurations."""
    rows = [
        [
            item.label,
            f"{item.plan.iteration_s * 1e3:.0f} ms",
            f"{1 / item.plan.iteration_s:.2f}",
            f"{min(item.utilisation):.0%} to {max(item.utilisation):.0%}",
            f"{item.plan.peak_memory_bytes / 2**30:.1f} GiB",
        ]
        for item in grid.configurations
    ]
    return markdown(["configuration", "iteration", "it/s", "utilisation", "memory"], rows)


def timed_grid() -> tuple[DegreeGrid, str]:
    """Return DistSim's case with a line on the seconds it takes and what profiling costs."""
    scenario = load_scenario(EXAMPLES / "distsim-bert-exlarge.yaml")
    degree_grid(scenario)
    begun = time.perf_counter()
    grid = degree_grid(scenario)
    seconds = time.perf_counter() - begun
    if grid is None:
        raise ValueError("DistSim's case has no legal configuration")
    begun = time.perf_counter()
    for item in grid.configurations:
        simulate(item.timeline.work)
    again = time.perf_counter() - begun
    tried = sum(item.tried for item in grid.configurations)
    return grid, (
        f"{len(grid.configurations)} configurations, {tried} strategies priced, simulated and told in "
        f"{seconds:.3f} s, the fifteen simulated again in {again:.4f} s (DistSim: 0.14 s); best to worst "
        f"{grid.spread:.2f} (DistSim: 7.38); {grid.profiling.events} unique events cost "
        f"{grid.profiling.share:.1%} of running all (DistSim: 12.96 %)"
    )


def written(page: str, tables: dict[str, str]) -> str:
    """Return the page with each table between its markers."""
    for name, text in tables.items():
        before, marker, rest = page.partition(f"<!-- table: {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not marker or not end:
            raise ValueError(f"the page has no place for the table {name}")
        page = f"{before}{marker}{text}\n{end}{after}"
    return page


def main() -> None:
    """Print the tables, or write them into the page that is named."""
    grid, seconds = timed_grid()
    tables = {"survey": survey(), "partitions": partitions(), "distsim": distsim(grid)}
    if len(sys.argv) > 1:
        path = Path(sys.argv[1])
        path.write_text(written(path.read_text(), tables))
    print(*tables.values(), seconds, sep="\n\n")


if __name__ == "__main__":
    main()
