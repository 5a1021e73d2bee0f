"""``shardplan batch``: many models, each by itself or on one shared pool."""

from functools import partial
from pathlib import Path

import click

from planner.commands.options import json_option, write_json, write_text


@click.command("batch", help="Plan many models, each by itself or sharing one pool of GPUs.")
@click.argument("pool_path", metavar="POOL", type=click.Path(path_type=Path))
@json_option
@click.option("--csv", "csv_path", metavar="FILE", help="Write one line per model; - prints it.")
@click.option("--report", "report_path", metavar="FILE", help="Write a page for the browser.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    help="File of finished models; the same command goes on where a killed one stopped.",
)
@click.option(
    "--scheduler", metavar="tcp://HOST:PORT", help="Use a running Dask cluster (shardplan[dask])."
)
def command(
    pool_path: Path,
    json_path: str | None,
    csv_path: str | None,
    report_path: str | None,
    journal: Path | None,
    scheduler: str | None,
) -> int:
    """Plan the pool and print it; exit code 1 where nothing has a plan."""
    from planner.batch.answer import run_batch
    from planner.batch.machines import dask_cluster
    from planner.batch.show import batch_to_csv, batch_to_json, batch_to_text
    from planner.files import check_writable
    from planner.pool.read import read_pool
    from planner.search import plan

    if json_path == csv_path == "-":
        raise click.UsageError("only one of --json and --csv can go to stdout")
    for path in {json_path, csv_path, report_path} - {None, "-"}:
        check_writable(Path(str(path)))
    pool = read_pool(pool_path, _gpus_per_node)
    machines = dask_cluster(scheduler) if scheduler else None
    result = run_batch(pool, partial(plan, top=1), open_executor=machines, journal=journal)
    if json_path:
        write_json(batch_to_json(result), json_path)
    if report_path:
        from planner.report.batch import batch_sections
        from planner.report.page import render

        write_text(Path(report_path), render(f"Batch {pool_path.name}", batch_sections(result)))
    if csv_path == "-":
        click.echo(batch_to_csv(result), nl=False)
    elif csv_path:
        write_text(Path(csv_path), batch_to_csv(result))
    if "-" not in (json_path, csv_path):
        click.echo(batch_to_text(result), nl=False)
    return 0 if result.found else 1


def _gpus_per_node(cluster: str) -> int:
    from costmodel import catalog

    return catalog.cluster(cluster).gpus_per_node
