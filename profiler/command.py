"""How the profiler's commands end: an error the user can mend is one line on stderr."""

import sys

import click

from costmodel.errors import ShardplanError


def run_command(command: click.Command, name: str) -> None:
    """Run ``command``; ``name`` stands before its errors."""
    try:
        command(standalone_mode=False)
    except ShardplanError as error:
        click.echo(f"{name}: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
