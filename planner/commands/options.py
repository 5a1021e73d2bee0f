"""Options and output that several commands share."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


def scenario_argument(function: _F) -> _F:
    """Add the scenario file as the command's argument."""
    return click.argument("scenario_path", metavar="SCENARIO", type=click.Path(path_type=Path))(
        function
    )


def json_option(function: _F) -> _F:
    """Add ``--json F``; ``-`` prints JSON only on stdout."""
    return click.option(
        "--json", "json_path", metavar="FILE", help="Write the answer as JSON; - prints it alone."
    )(function)


def write_json(data: Mapping[str, Any], path: str) -> None:
    """Print JSON, or write it so that the file is whole or absent."""
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    if path == "-":
        click.echo(text, nl=False)
    else:
        write_text(Path(path), text)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step: it is whole or it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as partial:
        partial.write(text)
    Path(partial.name).chmod(0o666 & ~_umask())
    Path(partial.name).replace(path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
