"""``shardplan import``: tables and clusters from logs that users already have."""

from pathlib import Path
from typing import get_args

import click

from costmodel.events import Collective

_FILES = click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
_OUTPUT = click.option("-o", "--output", "table", required=True, type=click.Path(path_type=Path))


@click.group("import", help="Turn logs and traces into tables of measured prices.")
def command() -> None:
    """Group of the importers."""


@command.command("nccl-tests")
@_FILES
@_OUTPUT
@click.option("--collective", type=click.Choice(get_args(Collective)))
@click.option("--ranks", type=click.IntRange(2), help="Where the log lists no devices.")
@click.option("--level", type=click.IntRange(0), help="Link level the group crosses.")
def nccl_tests(
    files: tuple[Path, ...],
    table: Path,
    collective: Collective | None,
    ranks: int | None,
    level: int | None,
) -> None:
    """Logs of all_reduce_perf and its siblings, text or JSON."""
    from costmodel.importers.nccl_tests import read_nccl_tests
    from costmodel.table import append

    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        source, entries = read_nccl_tests(text, str(file), collective, ranks, level)
        append(table, source, entries)
        _say(file, len(entries), table)


@command.command("kineto")
@_FILES
@_OUTPUT
@click.option("--gpus-per-node", type=click.IntRange(1), help="Default: GPUs in the trace.")
def kineto(files: tuple[Path, ...], table: Path, gpus_per_node: int | None) -> None:
    """Traces of the PyTorch profiler, the ranks of one step together; .gz too."""
    from costmodel.importers.kineto import read_kineto
    from costmodel.table import append

    source, entries = read_kineto(
        [_text(file) for file in files], ", ".join(file.name for file in files), gpus_per_node
    )
    append(table, source, entries)
    _say(files[0], len(entries), table)


@command.command("operators")
@click.argument("file", type=click.Path(path_type=Path))
@_OUTPUT
@click.option("--profile", required=True, help="Profile in the file, for example mist-a100.")
@click.option("--device", required=True, help="Device the profile was measured on.")
@click.option("--collectives", type=click.Path(path_type=Path), help="CSV of collectives.")
@click.option("--licence", default="", help="Licence of the measurements.")
def operators(
    file: Path, table: Path, profile: str, device: str, collectives: Path | None, licence: str
) -> None:
    """Operator tables in CSV: every row that is one matrix product becomes an event."""
    from costmodel.importers.operators import collective_table, matmul_table, read_operators
    from costmodel.table import Source, Table, write

    source = Source(
        device=device,
        origin=f"{file.name}, profile {profile}",
        licence=licence,
        note="host clock around a burst of launches of one product, warm caches",
    )
    found = matmul_table(read_operators(file, profile), source)
    if collectives:
        found = Table.merge([found, collective_table(collectives, [profile], device, thin=True)])
    write(table, found)
    _say(file, len(found.entries), table)


@command.command("megatron")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path))
@click.option("--cluster", required=True, help="Catalog name of the machine, for example dgx-h100.")
@click.option("--gpus", type=click.IntRange(1), help="World size, where the file does not say it.")
@click.option("--variable", "pairs", multiple=True, help="NAME=VALUE of a variable from outside.")
def megatron(
    file: Path, output: Path, cluster: str, gpus: int | None, pairs: tuple[str, ...]
) -> None:
    """Megatron arguments, a shell script or a functional test, as a scenario file."""
    from planner.files import write_files
    from planner.megatron_scenario import scenario_text

    variables = dict(pair.partition("=")[::2] for pair in pairs)
    text = scenario_text(file, output, cluster=cluster, gpus=gpus, variables=variables)
    write_files(output.parent, {output.name: text})
    click.echo(f"{file}: scenario {output}", err=True)


@command.command("topo")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path))
@click.option("--gpu", required=True, help="The GPU, which the file does not name: h100-sxm, ..")
@click.option("--gpus", type=click.IntRange(1), help="GPUs in all nodes; one node by default.")
@click.option("--network", help="Catalog name of the network between nodes.")
def topo(file: Path, output: Path, gpu: str, gpus: int | None, network: str | None) -> None:
    """``nvidia-smi topo -m`` or a NCCL topology file, as the ``cluster`` of a scenario."""
    from costmodel.inline_cluster import cluster_from_mapping, mapping_of_group
    from costmodel.load import write_yaml
    from costmodel.topology import notes
    from costmodel.topology_files import read_topology
    from planner.files import write_files

    given = {"gpu": gpu, "topology": str(file.resolve()), "gpus": gpus, "inter": network}
    wanted = {key: value for key, value in given.items() if value is not None}
    group = cluster_from_mapping(wanted, str(file)).groups[0]
    write_files(output.parent, {output.name: write_yaml({"cluster": mapping_of_group(group)})})
    for note in notes(read_topology(file)):
        click.echo(f"note: {note}", err=True)
    click.echo(f"{file}: {len(group.levels)} link levels into {output}", err=True)


def _text(file: Path) -> str:
    if file.suffix == ".gz":
        import gzip

        return gzip.decompress(file.read_bytes()).decode("utf-8")
    return file.read_text(encoding="utf-8")


def _say(file: Path, entries: int, table: Path) -> None:
    click.echo(f"{file}: {entries} events into {table}", err=True)
