"""Options and output that several commands share."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from planner.files import write_all

_F = TypeVar("_F", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path)


def scenario_argument(function: _F) -> _F:
    """Add the scenario file as the command's argument."""
    return click.argument("scenario_path", metavar="SCENARIO", type=_FILE)(function)


def gpus_option(function: _F) -> _F:
    """Add ``--gpus N``."""
    return click.option(
        "--gpus", type=click.IntRange(1, 10**6), help="Replaces the scenario's number of GPUs."
    )(function)


def module_option(function: _F) -> _F:
    """Add ``--module PACKAGE.MODULE:FUNCTION``."""
    return click.option(
        "--module",
        metavar="PACKAGE.MODULE:FUNCTION",
        help="Plan this torch module instead of the scenario's model; the function returns it and example inputs.",
    )(function)


def strategy_options(function: _F) -> _F:
    """Add ``--strategy`` and ``--placement``."""
    strategy = click.option(
        "--strategy",
        "strategy_text",
        required=True,
        help="tp=8,pp=4,micro_batch=1,.. or 2M4P2D; what is left out follows from the scenario.",
    )
    placement = click.option(
        "--placement",
        "placement_text",
        help="Layers per virtual stage: 20/20/20/20; 20:5 recomputes 5 of the 20; 20@1 or 20@DEVICE in a mixed cluster.",
    )
    return strategy(placement(function))


def json_option(function: _F) -> _F:
    """Add ``--json F``; ``-`` prints JSON only on stdout."""
    return click.option(
        "--json", "json_path", metavar="FILE", help="Write the answer as JSON; - prints it alone."
    )(function)


def report_option(function: _F) -> _F:
    """Add ``--report F.html``."""
    return click.option(
        "--report", type=_FILE, metavar="FILE.html", help="Write one page that needs no network."
    )(function)


def trace_option(function: _F) -> _F:
    """Add ``--trace F.json.gz``."""
    return click.option(
        "--trace",
        type=_FILE,
        metavar="FILE.json.gz",
        help="Write the timeline for Perfetto or chrome://tracing.",
    )(function)


def plot_option(function: _F) -> _F:
    """Add ``--plot F.svg|png``."""
    return click.option(
        "--plot", type=_FILE, metavar="FILE.svg|png", help="Draw the answer as a picture."
    )(function)


def export_option(function: _F) -> _F:
    """Add ``--export TARGET:DIR``, which may be repeated, and ``--exact``."""
    exact = click.option(
        "--exact",
        is_flag=True,
        help="Refuse to export a plan whose recomputation the framework cannot express, instead of writing the "
        "nearest that it can.",
    )
    export = click.option(
        "--export",
        "exports",
        multiple=True,
        metavar="TARGET:DIR",
        help="Write the launch files for a framework; may be repeated. Targets: megatron, megatron-bridge, "
        "torchtitan, deepspeed, accelerate, huggingface-trainer, nanotron, galvatron.",
    )
    return export(exact(function))


def json_file(path: str | None) -> Path | None:
    """Return the file that ``--json`` names, None for stdout or nothing."""
    return Path(path) if path and path != "-" else None


def json_text(data: Mapping[str, Any]) -> str:
    """Return JSON as it is printed and written."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def write_json(data: Mapping[str, Any], path: str) -> None:
    """Print JSON, or write it so that the file is whole or absent.

    Raises:
        InputError: If the file cannot be written.
    """
    if path == "-":
        click.echo(json_text(data), nl=False)
    else:
        write_all({Path(path): json_text(data)})


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step: it is whole or it is not there."""
    write_all({path: text})


def print_answer(data: Mapping[str, Any], text: str, json_path: str | None) -> None:
    """Print the answer: as text, or alone as JSON where that was asked for on stdout."""
    click.echo(json_text(data) if json_path == "-" else text, nl=False)


def tell_written(paths: Mapping[Path, Any], notices: Sequence[str] = ()) -> None:
    """Say on stderr which files were written and what must be known of them."""
    for notice in notices:
        click.echo(f"note: {notice}", err=True)
    for path in paths:
        click.echo(f"wrote {path}", err=True)
