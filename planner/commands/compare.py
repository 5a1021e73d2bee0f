"""``shardplan compare``: published systems side by side over numbers of GPUs."""

from pathlib import Path
from typing import Any

import click

from planner.commands.options import json_option, scenario_argument, write_json, write_text


@click.command(
    "compare", help="Compare published systems over numbers of GPUs: time, memory, efficiency."
)
@scenario_argument
@click.option(
    "--systems",
    default="all",
    show_default=True,
    help="Names, comma-separated; free adds the planner's own choice.",
)
@click.option(
    "--gpus", "gpus_text", help="Numbers of GPUs, comma-separated; powers of two up to the budget."
)
@click.option(
    "--scaling",
    type=click.Choice(["strong", "weak", "survey"]),
    default="strong",
    show_default=True,
    help="Same global batch, same batch per GPU, or as the survey of frameworks ran each system.",
)
@click.option(
    "--plot", "plot_path", type=click.Path(path_type=Path), help="Write the picture as SVG."
)
@json_option
def command(
    scenario_path: Path,
    systems: str,
    gpus_text: str | None,
    scaling: Any,
    plot_path: Path | None,
    json_path: str | None,
) -> int:
    """Compare systems; exit code 1 where none has a plan."""
    from planner.compare import compare
    from planner.compare_answers import comparison_to_json, comparison_to_svg, comparison_to_text
    from planner.compare_request import read_gpu_counts, read_systems
    from planner.scenario_file import load_scenario

    scenario = load_scenario(scenario_path)
    counts = read_gpu_counts(gpus_text, scenario.cluster.gpus)
    comparison = compare(scenario, read_systems(systems), counts, scaling)
    if plot_path:
        write_text(plot_path, comparison_to_svg(comparison, scenario))
    if json_path:
        write_json(comparison_to_json(comparison, scenario), json_path)
    if json_path != "-":
        click.echo(comparison_to_text(comparison, scenario), nl=False)
    return 0 if any(outcome.plan for outcome in comparison.outcomes) else 1
