"""``shardplan recompose``: plans that were really run, recomposed from operator tables and scored."""

from pathlib import Path

import click

from planner.commands.options import json_option, write_json


@click.command(
    "recompose", help="Recompose measured pipeline plans (*.json of FOLDER) from operator tables."
)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option(
    "--profiles",
    "profiles",
    type=click.Path(path_type=Path),
    help="Folder of operators.csv, collectives.csv and, where a GPU type spells no device, profiles.yaml; "
    "default: FOLDER if it holds them, else the shipped one.",
)
@click.option("--stages", is_flag=True, help="Print every term of every recorded stage.")
@json_option
def command(folder: Path | None, profiles: Path | None, stages: bool, json_path: str | None) -> int:
    """Score all plan files of FOLDER (default: the shipped plans)."""
    from costmodel.recompose.profiles import PROFILES
    from costmodel.recompose.score import as_json, as_text, score_folder

    folder = folder or PROFILES
    beside = folder if (folder / "operators.csv").exists() else PROFILES
    scores = score_folder(folder, profiles or beside)
    if json_path:
        write_json(as_json(scores), json_path)
    if json_path != "-":
        click.echo(as_text(scores, stages=stages), nl=False)
    return 0 if scores.plans else 1
