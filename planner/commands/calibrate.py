"""``shardplan calibrate``: fit the model's constants to one's own runs."""

from pathlib import Path

import click

from planner.commands.options import write_text


@click.command("calibrate", help="Fit efficiencies, overheads and links to your own measured runs.")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="Calibration file to write."
)  # fmt: skip
def command(runs: tuple[Path, ...], output: Path) -> int:
    """Fit, write the file, say what each constant became."""
    from costmodel.calibration import write_calibration
    from planner.calibrate import calibrate_files

    calibration = calibrate_files(runs)
    write_text(output, write_calibration(calibration))
    click.echo(
        f"{calibration.runs} runs: median error {calibration.error_before:.1%} before, "
        f"{calibration.error_after:.1%} after"
    )
    for change in calibration.changes:
        factor = change.after / change.before
        if abs(factor - 1) >= 0.01:
            click.echo(
                f"  {change.name:32s} {change.before:10.4g} -> {change.after:10.4g}  "
                f"(x{factor:.2f}, +-{change.deviation:.0%})"
            )
    for name, reason in calibration.refused.items():
        click.echo(f"  not used: {name}: {reason}")
    return 0
