"""``shardplan accuracy``: predictions held against measured runs."""

from pathlib import Path

import click

from planner.commands.options import json_option, write_json, write_text


@click.command("accuracy", help="Compare predictions with measured runs: errors, ranking, memory.")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--tier", type=click.Choice(["core", "extra", "all"]), default="all", show_default=True,
    help="Which rows count.",
)  # fmt: skip
@click.option(
    "--calibrate",
    "draws",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Fit to N runs of each source, predict its others; 5 draws of fixed seeds.",
)
@click.option(
    "--calibration",
    "calibration_path",
    type=click.Path(path_type=Path),
    help="Predict with the constants of this calibration file.",
)
@json_option
@click.option(
    "--report", "report_path", type=click.Path(path_type=Path), help="Write an HTML page with a scatter plot."
)  # fmt: skip
def command(
    runs: tuple[Path, ...],
    tier: str,
    draws: int | None,
    calibration_path: Path | None,
    json_path: str | None,
    report_path: Path | None,
) -> int:
    """Predict every run, print the statistics."""
    from planner.accuracy.report import measure_accuracy
    from planner.accuracy.scatter import report_html
    from planner.accuracy.summary import accuracy_to_json
    from planner.accuracy.text import accuracy_to_text

    accuracy = measure_accuracy(runs, tier=tier, draws=draws, calibration_path=calibration_path)
    if json_path:
        write_json(accuracy_to_json(accuracy), json_path)
    if report_path:
        write_text(report_path, report_html(accuracy))
    if json_path != "-":
        click.echo(accuracy_to_text(accuracy), nl=False)
    return 0
