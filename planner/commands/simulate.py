"""``shardplan simulate``: one given strategy, its time, memory and legality."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.commands.options import (
    export_option,
    gpus_option,
    json_file,
    json_option,
    json_text,
    module_option,
    plot_option,
    print_answer,
    scenario_argument,
    strategy_options,
    tell_written,
    trace_option,
)

if TYPE_CHECKING:
    from planner.scenario import Scenario
    from planner.simulation import Simulation
    from planner.wanted import Wanted

EPILOG = """\b
Examples:
  shardplan simulate my.yaml --strategy tp=8,pp=4,micro_batch=1
  shardplan simulate my.yaml --strategy tp=4,pp=4 --placement 19/20:5/21/20
  shardplan simulate mixed.yaml --strategy tp=2,pp=2 --placement 7@v100-sxm2-32gb/17@a100-sxm-40gb
  shardplan simulate my.yaml --strategy 8M4P2D --plot timeline.svg --trace timeline.json.gz
"""


@click.command(
    "simulate", help="Predict one given strategy: time, memory, legality.", epilog=EPILOG
)
@scenario_argument
@strategy_options
@gpus_option
@module_option
@json_option
@trace_option
@plot_option
@export_option
def command(
    scenario_path: Path,
    strategy_text: str,
    placement_text: str | None,
    gpus: int | None,
    module: str | None,
    json_path: str | None,
    trace: Path | None,
    plot: Path | None,
    exports: tuple[str, ...],
    exact: bool,
) -> int:
    """Simulate one strategy and print it; exit code 1 where it is illegal."""
    from planner.answer_json import simulation_to_json
    from planner.answer_text import simulation_to_text
    from planner.simulation import simulate_strategy
    from planner.source import source_of
    from planner.wanted import Wanted, parse_export

    wanted = Wanted(
        answer=json_file(json_path),
        trace=trace,
        plot=plot,
        exports=tuple(parse_export(text) for text in exports),
        exact=exact,
    )
    wanted.check()
    scenario = source_of(scenario_path, gpus=gpus, module=module).scenario()
    simulation = simulate_strategy(scenario, strategy_text, placement_text)
    data = simulation_to_json(simulation, scenario)
    print_answer(data, simulation_to_text(simulation, scenario), json_path)
    _write(wanted, scenario, simulation, data)
    return 1 if simulation.plan is None else 0


def _write(
    wanted: "Wanted", scenario: "Scenario", simulation: "Simulation", data: dict[str, Any]
) -> None:
    from planner.deliver import Delivery, drawn_from, plan_files
    from planner.files import Content, write_all

    files: dict[Path, Content] = {wanted.answer: json_text(data)} if wanted.answer else {}
    delivery = Delivery(files={})
    if simulation.plan and wanted.plan_needed:
        delivery = plan_files(wanted, scenario, drawn_from(simulation))
    elif wanted.plan_needed:
        click.echo("illegal: no trace, picture or launch files", err=True)
    files |= delivery.files
    write_all(files)
    tell_written(files, delivery.notices)
