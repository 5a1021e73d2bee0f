"""``shardplan recompose``: plans that were really run, recomposed from operator tables and scored."""

from pathlib import Path

import click

from planner.commands.options import json_option, write_json


@click.command("recompose", help="Recompose measured pipeline plans from operator tables.")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option(
    "--profiles",
    "profiles",
    type=click.Path(path_type=Path),
    help="Folder of operators.csv, collectives.csv and profiles.yaml; default: the shipped one.",
)
@click.option("--stages", is_flag=True, help="Print every term of every recorded stage.")
@json_option
def command(folder: Path | None, profiles: Path | None, stages: bool, json_path: str | None) -> int:
    """Score all plan files of FOLDER (default: the shipped plans)."""
    from costmodel.recompose.compose import PROFILES
    from costmodel.recompose.plan_file import read_plans
    from costmodel.recompose.score import as_json, as_text, score_plans

    scores = score_plans(read_plans(folder or PROFILES / "plans"), profiles or PROFILES)
    if json_path:
        write_json(as_json(scores), json_path)
    if json_path != "-":
        click.echo(as_text(scores, stages=stages), nl=False)
    return 0
