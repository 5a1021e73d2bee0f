"""``shardplan simulate``: one given strategy, its time, memory and legality."""

from pathlib import Path
from typing import Any

import click

from planner.commands.options import json_option, scenario_argument, write_json


@click.command("simulate", help="Predict one given strategy: time, memory, legality.")
@scenario_argument
@click.option(
    "--strategy", "strategy_text", required=True, help="tp=8,pp=4,micro_batch=1,.. or 2M4P2D"
)
@click.option(
    "--placement",
    "placement_text",
    help="Layers per virtual stage: 20/20/20/20; 20:5 recomputes 5 of the 20.",
)
@click.option(
    "--gpus", type=click.IntRange(1, 10**6), help="Replaces the scenario's number of GPUs."
)
@json_option
def command(
    scenario_path: Path,
    strategy_text: str,
    placement_text: str | None,
    gpus: int | None,
    json_path: str | None,
) -> int:
    """Simulate one strategy and print it; exit code 1 where it is illegal."""
    from planner.answer_json import plan_to_json
    from planner.answer_text import simulation_to_text
    from planner.fit import plan_verdict
    from planner.scenario_file import load_scenario
    from planner.simulation import simulate_strategy

    scenario = load_scenario(scenario_path, gpus=gpus)
    simulation = simulate_strategy(scenario, strategy_text, placement_text)
    data: dict[str, Any]
    if simulation.plan is None:
        broken = [{"rule": item.rule, "text": item.text} for item in simulation.violations]
        data = {"status": "illegal", "rule": broken[0]["rule"], "rules": broken, "fits": False}
    else:
        verdict = plan_verdict(simulation.plan, scenario.cluster.device)
        data = {"status": "legal", "verdict": verdict, **plan_to_json(simulation.plan)}
    if json_path:
        write_json(data, json_path)
    if json_path != "-":
        click.echo(simulation_to_text(simulation, scenario), nl=False)
    return 1 if simulation.plan is None else 0
