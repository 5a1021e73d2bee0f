"""A Megatron command line as a scenario file: the model read from it, its batch, its strategy as fixed search values."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.load import write_yaml
from costmodel.spec import TrainingSpec
from costmodel.strategy import FIELD_NAMES, Strategy
from planner.megatron_reader import MegatronRun, read_megatron
from planner.scenario import DECISIONS

_UNSAID = TrainingSpec(global_batch=1, sequence=1)


def scenario_text(
    file: Path,
    output: Path,
    *,
    cluster: str,
    gpus: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Return a scenario file for a Megatron argument file, shell script or functional test.

    Args:
        file: What Megatron is started with; the scenario names it as its model.
        output: Where the scenario will stand; the model's path is relative to its folder.
        cluster: Catalog name of the machine.
        gpus: World size, where the file does not say it.
        variables: Values of shell variables that the file expects from outside.

    Raises:
        InputError: If the file cannot be read or understood.
        UnsupportedError: If it lays out stages in a way that the cost model does not describe.
    """
    run = read_megatron(file, gpus, variables)
    relative = os.path.relpath(file.resolve(), output.resolve().parent)
    name = relative if os.sep in relative else f".{os.sep}{relative}"
    values = {
        "model": name,
        "cluster": {"name": cluster, "gpus": run.strategy.gpus},
        "training": _training(run.training),
        "search": {key: getattr(run.strategy, key) for key in DECISIONS},
    }
    options = f"--strategy {strategy_text(run.strategy)} --placement {placement_text(run)}"
    notes = [
        f"From the Megatron arguments in {file.name}; without `search` the planner is free to do better.",
        f"The same placement: shardplan simulate {output.name} {options}",
        *(f"Note: {warning}." for warning in run.warnings),
    ]
    return "".join(f"# {note}\n" for note in notes) + write_yaml(values)


def strategy_text(strategy: Strategy) -> str:
    """Return a strategy as ``simulate --strategy`` reads it, degrees of one left out."""
    neutral = Strategy()
    values = {name: getattr(strategy, name) for name in FIELD_NAMES}
    pairs = [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in values.items()
        if value != getattr(neutral, name) or name == "dp"
    ]
    return ",".join(pairs)


def placement_text(run: MegatronRun) -> str:
    """Return a placement as ``simulate --placement`` reads it: ``20:5`` recomputes 5 of 20 layers."""
    partly = run.strategy.recompute != "full"
    return "/".join(
        f"{chunk.layers}:{chunk.recomputed}" if partly and chunk.recomputed else str(chunk.layers)
        for chunk in run.placement.chunks
    )


def _training(training: TrainingSpec) -> dict[str, Any]:
    values: dict[str, Any] = {
        "global_batch": training.global_batch,
        "sequence": training.sequence,
        "framework": training.framework,
        "precision": training.precision,
    }
    if training.attention != _UNSAID.attention:
        values["attention"] = training.attention
    if training.options:
        values["options"] = dict(training.options)
    return values
