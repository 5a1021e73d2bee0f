"""``python -m profiler.validate REQUEST``: launch the requested strategy here and compare."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from costmodel.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from costmodel.strategy import Strategy
from profiler.command import run_command
from profiler.validate.job import Job
from profiler.validate.predict import predicted_spans
from profiler.validate.ranks import launch
from profiler.validate.report import as_json, as_svg, as_text, prices_of, report
from profiler.validate.scope import check, shape_of


def read_request(path: Path) -> Job:
    """Read what the planner's command line wrote: model, sequence, strategy, layers, rounds."""
    data: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    model = dict(data["model"])
    kinds = tuple(_kind(kind) for kind in model.pop("kinds"))
    layers = tuple(model.pop("layers"))
    return Job(
        shape=shape_of(ModelSpec(**model, kinds=kinds, layers=layers), data["sequence"]),
        strategy=Strategy(**data["strategy"]),
        layers=tuple(data["layers"]),
        rounds=data["rounds"],
    )


def _kind(values: Mapping[str, Any]) -> LayerSpec:
    rest = {k: v for k, v in values.items() if k not in ("attention", "mlp", "cross_attention")}
    attention, cross = (
        AttentionSpec(**values[name]) if values[name] else None
        for name in ("attention", "cross_attention")
    )
    mlp = MlpSpec(**values["mlp"]) if values["mlp"] else None
    return LayerSpec(**rest, attention=attention, cross_attention=cross, mlp=mlp)


@click.command("validate")
@click.argument("request", type=click.Path(path_type=Path))
@click.option("--json", "json_path", help="Write the comparison as JSON; - prints it alone.")
@click.option("--picture", type=click.Path(path_type=Path), help="Write the timeline as SVG.")
def cli(request: Path, json_path: str | None, picture: Path | None) -> None:
    """Launch REQUEST on the ranks of this machine."""
    job = read_request(request)
    check(job)
    (result,) = launch([job])
    found = report(job, result)
    if picture:
        picture.write_text(
            as_svg(found, predicted_spans(job, prices_of(job, result))), encoding="utf-8"
        )
    text = json.dumps(as_json(found), indent=1) + "\n"
    if json_path and json_path != "-":
        Path(json_path).write_text(text, encoding="utf-8")
    click.echo(text if json_path == "-" else as_text(found), nl=False)


if __name__ == "__main__":
    run_command(cli, "validate")
