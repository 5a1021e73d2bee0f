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
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    help="Seconds; then the best so far with its gap.",
)
@click.option(
    "--gap",
    default=1e-3,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Gap that counts as proven; 0 asks for the exact proof.",
)
@click.option(
    "--objective",
    default="time",
    show_default=True,
    type=click.Choice(["time", "cost", "gpus", "memory"]),
    help="What the best plan is best at; cost and gpus choose among cluster.gpus.",
)
@click.option("--deadline-days", type=click.FloatRange(0, min_open=True), help="For gpus.")
@json_option
def command(
    scenario_path: Path,
    top: int,
    gpus: int | None,
    time_limit: float | None,
    gap: float,
    objective: str,
    deadline_days: float | None,
    json_path: str | None,
) -> int:
    """Plan and print; exit code 1 where no plan exists."""
    from planner.answer_json import result_to_json
    from planner.answer_text import result_to_text
    from planner.objectives import OBJECTIVES, Effort, plan_for
    from planner.plan import SearchStatus
    from planner.scenario_file import load_scenario

    scenario = load_scenario(scenario_path, gpus=gpus)
    effort = Effort(top=top, tolerance=gap, time_limit_s=time_limit)
    chosen = next(name for name in OBJECTIVES if name == objective)
    result = plan_for(scenario, chosen, effort, deadline_days=deadline_days)
    if json_path:
        write_json(result_to_json(result), json_path)
    if json_path != "-":
        click.echo(result_to_text(result, scenario), nl=False)
    return 1 if result.status is SearchStatus.INFEASIBLE else 0
