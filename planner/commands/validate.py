"""``shardplan validate``: run a strategy for real on this machine's ranks and compare with the prediction."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from planner.commands.options import scenario_argument
from planner.commands.profile import run_profiler


@click.command("validate", help="Run the strategy for real with torch.distributed and compare.")
@scenario_argument
@click.option("--strategy", "strategy_text", required=True, help="pp=2,micro_batch=1,..")
@click.option("--placement", "placement_text", help="Layers per virtual stage: 5/3.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 100))
@click.option("--picture", type=click.Path(path_type=Path), help="Write the timeline as SVG.")
@click.option("--json", "json_path", metavar="FILE", help="Write JSON; - prints it alone.")
def command(
    scenario_path: Path,
    strategy_text: str,
    placement_text: str | None,
    rounds: int,
    picture: Path | None,
    json_path: str | None,
) -> int:
    """Write the request and hand it to the profiler, which measures and compares."""
    from costmodel.errors import InputError
    from planner.scenario_file import load_scenario
    from planner.strategy_text import parse_placement, parse_strategy

    scenario = load_scenario(scenario_path)
    strategy = parse_strategy(strategy_text, scenario)
    placement = parse_placement(placement_text, strategy, len(scenario.graph.layers))
    if placement is None:
        raise InputError(
            "is needed, since the layers do not divide evenly", key="--placement", value=None
        )
    if any(chunk.recomputed for chunk in placement.chunks):
        raise InputError(
            "must recompute no layer: recomputation is not launched",
            key="--placement",
            value=placement_text or strategy.recompute,
            nearest="/".join(map(str, placement.layer_counts())),
        )
    request = {
        "model": asdict(scenario.graph.model),
        "sequence": scenario.training.sequence,
        "strategy": asdict(strategy),
        "layers": placement.layer_counts(),
        "rounds": rounds,
    }
    options = {"--picture": picture, "--json": json_path}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "request.json"
        file.write_text(json.dumps(request), encoding="utf-8")
        given = [text for name, value in options.items() if value for text in (name, str(value))]
        return run_profiler("profiler.validate", str(file), *given)
