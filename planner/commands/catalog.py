"""``shardplan catalog``: what ships, each number with its source."""

from typing import cast, get_args

import click

from costmodel.catalog import CatalogKind
from planner.commands.options import json_option, write_json


@click.command("catalog", help="List the models, devices, networks and clusters that ship.")
@click.argument("kind", required=False, type=click.Choice(get_args(CatalogKind)))
@click.argument("part", required=False, default="")
@json_option
def command(kind: str | None, part: str, json_path: str | None) -> int:
    """Print the table of one kind, of names containing PART, or an overview."""
    from planner.listing import listing_json, listing_text

    chosen = cast("CatalogKind | None", kind)
    if json_path:
        write_json(listing_json(chosen, part), json_path)
    if json_path != "-":
        click.echo(listing_text(chosen, part), nl=False)
    return 0
