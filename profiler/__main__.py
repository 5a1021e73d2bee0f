"""``python -m profiler WANTED -o TABLE``: measure the events that a table without times wants."""

from pathlib import Path

import click

from costmodel.table import Table
from profiler.command import run_command
from profiler.device import Machine, machine
from profiler.runner import Limits, Outcome, Progress, run


@click.command("profile")
@click.argument("wanted", type=click.Path(path_type=Path))
@click.option("-o", "--output", "table", required=True, type=click.Path(path_type=Path))
@click.option("--budget-s", type=click.FloatRange(min=0), help="Stop after so many seconds.")
@click.option("--event-s", type=click.FloatRange(min=0.001), default=1.0, show_default=True)
@click.option("--ranks", type=click.IntRange(1, 8), help="Largest group to launch.")
@click.option("--quiet", is_flag=True, help="No line per event.")
def cli(
    wanted: Path,
    table: Path,
    budget_s: float | None,
    event_s: float,
    ranks: int | None,
    quiet: bool,
) -> None:
    """Measure on this machine what WANTED lists and TABLE lacks."""
    here = machine(ranks)
    click.echo(_where(here), err=True)
    outcome = run(
        table,
        Table.load(wanted).wanted,
        here,
        Limits(event_s=event_s, budget_s=budget_s),
        None if quiet else _print,
    )
    click.echo(_summary(outcome, table), err=True)


def _where(here: Machine) -> str:
    if here.kind == "cpu":
        return f"no CUDA device: measuring on the CPU ({here.name}), collectives with gloo over {here.ranks} processes"
    return f"measuring on {here.name}, driver {here.driver}, collectives with NCCL over {here.ranks} GPUs"


def _print(progress: Progress) -> None:
    click.echo(
        f"[{progress.done}/{progress.total}] {progress.event.key}: {progress.outcome}, "
        f"{progress.left_s:.0f} s left",
        err=True,
    )


def _summary(outcome: Outcome, table: Path) -> str:
    lines = [f"{table}: {outcome.measured} events measured, {outcome.failed} failed"]
    if outcome.left:
        lines.append(f"{outcome.left} events left by the budget; run again to go on")
    reasons = dict.fromkeys(outcome.unmeasurable.values())
    for reason in reasons:
        count = sum(given == reason for given in outcome.unmeasurable.values())
        lines.append(f"{count} events not measured: {reason}")
    return "\n".join(lines)


if __name__ == "__main__":
    run_command(cli, "profiler")
