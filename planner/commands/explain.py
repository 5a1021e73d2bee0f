"""``shardplan explain``: why a given strategy is not the first plan."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.commands.options import (
    gpus_option,
    json_option,
    scenario_argument,
    strategy_options,
    write_json,
)

if TYPE_CHECKING:
    from planner.plans import Plan


@click.command(
    "explain", help="Say why a given strategy is not the first plan: illegal, too large, or slower."
)
@scenario_argument
@strategy_options
@gpus_option
@json_option
def command(
    scenario_path: Path,
    strategy_text: str,
    placement_text: str | None,
    gpus: int | None,
    json_path: str | None,
) -> int:
    """Explain and print; exit code 1 where the strategy is illegal or does not fit."""
    from planner.best_simulation import simulate_best
    from planner.explain import explain_memory, explain_slower
    from planner.scenario_file import load_scenario
    from planner.search import plan

    scenario = load_scenario(scenario_path, gpus=gpus)
    simulation = simulate_best(scenario, strategy_text, placement_text)
    best = plan(scenario, top=1)
    if simulation.plan is None:
        verdict = "illegal"
        reasons = [f"{item.rule}: {item.text}" for item in simulation.violations]
    elif not simulation.plan.fits:
        verdict, reasons = "does not fit", [explain_memory(simulation.plan)]
    elif best.plans and simulation.plan.iteration_s > best.plans[0].iteration_s:
        verdict, reasons = "slower", [explain_slower(simulation.plan, best.plans[0])]
    else:
        verdict, reasons = "best", ["no plan of the space is faster"]
    reasons = [*reasons, *_placed(simulation.plan)]
    data = {"verdict": verdict, "reasons": reasons, "strategy": simulation.strategy.label()}
    if json_path:
        write_json(data, json_path)
    if json_path != "-":
        lines = "\n".join(f"  - {reason}" for reason in reasons)
        click.echo(f"{simulation.strategy.label()}: {verdict}\n{lines}")
    return 1 if verdict in ("illegal", "does not fit") else 0


def _placed(plan: "Plan | None") -> list[str]:
    """Return where the layers stand and what recomputes."""
    from planner.answer_text import layers_label, recompute_label

    if plan is None:
        return []
    layers = layers_label(plan.placement.layer_counts())
    return [f"layers per stage {layers}, recomputed {recompute_label(plan)}"]
