"""``shardplan compare``: published systems side by side over numbers of GPUs, or every combination of degrees."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.commands.options import json_option, scenario_argument, write_json, write_text

if TYPE_CHECKING:
    from planner.scenario import Scenario


@click.command(
    "compare", help="Compare published systems over numbers of GPUs: time, memory, efficiency."
)
@scenario_argument
@click.option(
    "--systems",
    default="all",
    show_default=True,
    help="Names, comma-separated; free is the planner's own choice.",
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
    "--degrees", is_flag=True, help="Every tensor x pipeline x data configuration instead."
)
@click.option(
    "--rules", is_flag=True, help="Price the usual rules of thumb on the scenario instead."
)
@click.option(
    "--token-slices",
    metavar="COUNTS",
    help="Instead, pipelines whose sequences are cut into so many slices (TeraPipe): 1,2,4,8.",
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
    degrees: bool,
    rules: bool,
    token_slices: str | None,
    plot_path: Path | None,
    json_path: str | None,
) -> int:
    """Compare; exit code 1 where nothing has a plan."""
    from planner.compare import compare
    from planner.compare_answers import comparison_to_json, comparison_to_svg, comparison_to_text
    from planner.compare_request import read_counts, read_systems
    from planner.scenario_file import load_scenario

    scenario = load_scenario(scenario_path)
    if degrees:
        return _degrees(scenario, json_path)
    if rules:
        return _rules(scenario, json_path)
    if token_slices:
        return _slices(scenario, token_slices)
    counts = read_counts(gpus_text, scenario.cluster.gpus)
    comparison = compare(scenario, read_systems(systems), counts, scaling)
    if plot_path:
        write_text(plot_path, comparison_to_svg(comparison, scenario))
    if json_path:
        write_json(comparison_to_json(comparison, scenario), json_path)
    if json_path != "-":
        click.echo(comparison_to_text(comparison, scenario), nl=False)
    return 0 if any(outcome.plan for outcome in comparison.outcomes) else 1


def _degrees(scenario: "Scenario", json_path: str | None) -> int:
    from planner.degree_answers import grid_to_json, grid_to_text
    from planner.degree_grid import degree_grid

    grid = degree_grid(scenario)
    if grid is None:
        click.echo("No configuration is legal within the scenario's bounds.")
        return 1
    if json_path:
        write_json(grid_to_json(grid), json_path)
    if json_path != "-":
        click.echo(grid_to_text(grid, scenario), nl=False)
    return 0


def _slices(scenario: "Scenario", counts: str) -> int:
    from planner.compare_request import read_counts
    from planner.token_slices import slices_text

    tokens = scenario.training.sequence
    click.echo(slices_text(scenario, read_counts(counts, tokens, key="--token-slices")), nl=False)
    return 0


def _rules(scenario: "Scenario", json_path: str | None) -> int:
    from planner.rules_of_thumb import judge_rules, judgements_to_json

    judgements = judge_rules(scenario)
    if json_path:
        write_json(judgements_to_json(judgements), json_path)
    if json_path != "-":
        lines = [f"  - {item.sentence()}" for item in judgements]
        click.echo("\n".join([f"{scenario.name}: rules of thumb, priced", *lines]))
    return 0 if judgements else 1
