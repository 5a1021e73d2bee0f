"""``shardplan profile``: measure the unique events that a scenario needs."""

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from planner.commands.options import scenario_argument


@click.command("profile", help="Measure the unique events that the scenario needs.")
@scenario_argument
@click.option("-o", "--output", "table", required=True, type=click.Path(path_type=Path))
@click.option("--strategy", "strategy_texts", multiple=True, help="Only what this strategy needs.")
@click.option("--top", default=3, show_default=True, type=click.IntRange(1, 1000))
@click.option("--budget-s", type=click.FloatRange(min=0), help="Stop after so many seconds.")
@click.option("--event-s", type=click.FloatRange(min=0.001), help="Bound of one event.")
@click.option("--ranks", type=click.IntRange(1, 8), help="Largest group to launch.")
@click.option("--list", "list_only", is_flag=True, help="Only write the wanted events to TABLE.")
def command(
    scenario_path: Path,
    table: Path,
    strategy_texts: tuple[str, ...],
    top: int,
    budget_s: float | None,
    event_s: float | None,
    ranks: int | None,
    list_only: bool,
) -> int:
    """List the events of the given strategies (or the top plans), subtract TABLE, measure the rest."""
    from costmodel.table import Table, write_wanted
    from planner.missing import best_strategies, missing_events, needed_events, savings
    from planner.scenario_file import load_scenario
    from planner.strategy_text import parse_strategy

    scenario = load_scenario(scenario_path)
    given = tuple(parse_strategy(text, scenario) for text in strategy_texts)
    strategies = given or best_strategies(scenario, top)
    if not strategies:
        click.echo("no plan fits: nothing to measure", err=True)
        return 1
    wanted = needed_events(scenario, strategies)
    known = [Table.load(table)] if table.exists() and not list_only else []
    missing = missing_events(wanted, known)
    labels = ", ".join(strategy.label() for strategy in strategies)
    click.echo(f"{len(wanted)} unique events of {labels}; {len(missing)} missing", err=True)
    for saving in savings(scenario, strategies[0]):
        click.echo(
            f"at {saving.gpus} GPUs: {saving.events} events take {100 * saving.share:.2g} % of the GPU time "
            "of profiling every GPU over an iteration (predicted)",
            err=True,
        )
    if list_only:
        write_wanted(table, missing)
        return 0
    options = {"--budget-s": budget_s, "--event-s": event_s, "--ranks": ranks}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "wanted.json"
        write_wanted(file, missing)
        return run_profiler(
            "profiler",
            str(file),
            "-o",
            str(table),
            *(
                text
                for name, value in options.items()
                if value is not None
                for text in (name, str(value))
            ),
        )


def run_profiler(module: str, *arguments: str) -> int:
    """Run a module of the profiler, which the planner never imports, and return its exit code."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, check=False).returncode  # noqa: S603 (our own interpreter)
