"""``shardplan plan``: the ranked plans of a scenario."""

from pathlib import Path

import click

from planner.commands.options import json_option, scenario_argument, write_json


@click.command(
    "plan", help="Rank the strategies for a scenario, with a proof of how good the list is."
)
@scenario_argument
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(1, 1000), help="Plans to rank."
)
@click.option(
    "--gpus", type=click.IntRange(1, 10**6), help="Replaces the scenario's number of GPUs."
)
@click.option(
    "--time-limit", type=click.FloatRange(0, min_open=True), help="Seconds; then the best so far."
)
@click.option(
    "--gap",
    default=1e-3,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Gap that counts as proven.",
)
@json_option
def command(
    scenario_path: Path,
    top: int,
    gpus: int | None,
    time_limit: float | None,
    gap: float,
    json_path: str | None,
) -> int:
    """Plan and print; exit code 1 where no plan exists."""
    from planner.answer_json import result_to_json
    from planner.answer_text import result_to_text
    from planner.plan import SearchStatus
    from planner.scenario_file import load_scenario
    from planner.search import plan

    scenario = load_scenario(scenario_path, gpus=gpus)
    result = plan(scenario, top=top, tolerance=gap, time_limit_s=time_limit)
    if json_path:
        write_json(result_to_json(result), json_path)
    if json_path != "-":
        click.echo(result_to_text(result, scenario), nl=False)
    return 1 if result.status is SearchStatus.INFEASIBLE else 0
