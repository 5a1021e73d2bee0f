"""What ships in the catalog, as tables and as JSON."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from costmodel import catalog
from costmodel.catalog import CatalogKind
from costmodel.errors import InputError
from costmodel.fields import nearest_names
from costmodel.graph import ModelGraph, build_graph
from costmodel.spec import DeviceSpec, LayerSpec, LinkLevel
from costmodel.units import format_bytes, format_count, format_rate, format_seconds
from planner.answer_text import table

KINDS: tuple[CatalogKind, ...] = get_args(CatalogKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """How one kind of entry is shown.

    Attributes:
        columns: Headings of the table.
        row: Cells of an entry.
        data: The entry in base units for JSON.
    """

    columns: tuple[str, ...]
    row: Callable[[str], list[str]]
    data: Callable[[str], dict[str, Any]]


def listing_text(kind: CatalogKind | None = None, part: str = "") -> str:
    """Return the table of a kind, of entries whose name contains ``part``; without a kind, an overview.

    Raises:
        InputError: If no entry of the kind contains ``part``.
    """
    if kind is None:
        return _overview()
    listing = _LISTINGS[kind]
    return table(listing.columns, [listing.row(name) for name in _names(kind, part)]) + "\n"


def listing_json(kind: CatalogKind | None = None, part: str = "") -> dict[str, Any]:
    """Return the entries of one kind or of all kinds, in base units.

    Raises:
        InputError: If no entry of the kind contains ``part``.
    """
    kinds = KINDS if kind is None else (kind,)
    entries: dict[str, Any] = {"schema": 1}
    for one in kinds:
        entries[one] = [_LISTINGS[one].data(name) for name in _names(one, part)]
    return entries


def _names(kind: CatalogKind, part: str) -> list[str]:
    names = [name for name in catalog.names(kind) if part.lower() in name]
    if not names:
        nearest = nearest_names(part, catalog.names(kind))
        rule = f"is part of no name among the {kind}"
        raise InputError(rule, value=part, nearest=nearest)
    return names


def _overview() -> str:
    parts = []
    for kind in KINDS:
        names = catalog.names(kind)
        parts.append(f"{kind} ({len(names)})\n{_wrapped(names)}")
    hint = "shardplan catalog KIND [PART] shows the numbers of a kind with their sources."
    return "\n\n".join([*parts, hint]) + "\n"


def _wrapped(names: Sequence[str], width: int = 100) -> str:
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) + 2 > width:
            lines.append("")
        lines[-1] += f"  {name}"
    return "\n".join(lines)


def _model_row(name: str) -> list[str]:
    graph = build_graph(catalog.model(name))
    model = graph.model
    return [
        name,
        format_count(graph.parameters),
        str(len(model.layers)),
        str(model.hidden),
        _heads(model.kinds[-1]),
        str(model.vocab or "-"),
        _layer_kinds(graph),
        model.source,
    ]


def _heads(kind: LayerSpec) -> str:
    if kind.attention is None:
        return "-"
    heads, kv_heads = kind.attention.heads, kind.attention.kv_heads
    return f"{heads} latent" if kind.attention.latent else f"{heads}/{kv_heads}"


def _layer_kinds(graph: ModelGraph) -> str:
    counts = zip(graph.kind_counts(), graph.kinds, strict=True)
    return " + ".join(f"{count} {kind.name}" for count, kind in counts)


def _model_data(name: str) -> dict[str, Any]:
    graph = build_graph(catalog.model(name))
    model = graph.model
    return {
        "name": name,
        "parameters": graph.parameters,
        "layers": len(model.layers),
        "hidden": model.hidden,
        "vocab": model.vocab,
        "kinds": {kind.name: n for kind, n in zip(graph.kinds, graph.kind_counts(), strict=True)},
        "source": model.source,
    }


def _device_row(name: str) -> list[str]:
    device = catalog.device(name)
    return [
        name,
        device.architecture,
        format_bytes(device.memory_bytes),
        format_bytes(device.usable_bytes),
        format_rate(device.bandwidth_bytes_per_s),
        *(_peak(device, dtype) for dtype in ("fp8", "bf16", "fp16", "fp32")),
        str(device.multiprocessors),
        catalog.device_sources(name)["peak_tflops"],
    ]


def _peak(device: DeviceSpec, dtype: str) -> str:
    return f"{device.peak_flops[dtype] / 1e12:.4g}" if dtype in device.peak_flops else "-"


def _device_data(name: str) -> dict[str, Any]:
    device, ports = catalog.device(name), catalog.ports(name)
    return {
        "name": name,
        "architecture": device.architecture,
        "memory_bytes": device.memory_bytes,
        "usable_bytes": device.usable_bytes,
        "bandwidth_bytes_per_s": device.bandwidth_bytes_per_s,
        "peak_flops": dict(device.peak_flops),
        "multiprocessors": device.multiprocessors,
        "nvlinks": ports.nvlinks,
        "nvlink_bytes_per_s": ports.nvlink_bytes_per_s,
        "pcie_bytes_per_s": ports.pcie_bytes_per_s,
        "sources": catalog.device_sources(name),
    }


def _network_row(name: str) -> list[str]:
    level = catalog.network(name, 1)
    rate, latency = format_rate(level.bandwidth_bytes_per_s), format_seconds(level.latency_s)
    return [name, level.kind, rate, latency, level.source]


def _network_data(name: str) -> dict[str, Any]:
    level = catalog.network(name, 1)
    return {
        "name": name,
        "kind": level.kind,
        "node_bandwidth_bytes_per_s": level.bandwidth_bytes_per_s,
        "latency_s": level.latency_s,
        "source": level.source,
    }


def _cluster_row(name: str) -> list[str]:
    cluster = catalog.cluster(name)
    levels = ", then ".join(map(_level, cluster.levels))
    return [
        name,
        cluster.device.name,
        str(cluster.gpus_per_node),
        levels,
        catalog.cluster_source(name),
    ]


def _level(level: LinkLevel) -> str:
    reach = f"{level.gpus} x " if level.gpus else ""
    return f"{level.name} {reach}{format_rate(level.bandwidth_bytes_per_s)}"


def _cluster_data(name: str) -> dict[str, Any]:
    cluster = catalog.cluster(name)
    return {
        "name": name,
        "device": cluster.device.name,
        "gpus_per_node": cluster.gpus_per_node,
        "host_memory_bytes": cluster.host_memory_bytes,
        "levels": [
            {
                "name": level.name,
                "kind": level.kind,
                "gpus": level.gpus,
                "bandwidth_bytes_per_s": level.bandwidth_bytes_per_s,
                "latency_s": level.latency_s,
                "source": level.source,
            }
            for level in cluster.levels
        ],
        "source": catalog.cluster_source(name),
    }


_LISTINGS: dict[CatalogKind, _Listing] = {
    "models": _Listing(
        columns=("model", "parameters", "layers", "hidden", "heads/kv", "vocab", "kinds", "source"),
        row=_model_row,
        data=_model_data,
    ),
    "devices": _Listing(
        columns=(
            *("device", "architecture", "memory", "usable", "bandwidth"),
            *("fp8 TFLOP/s", "bf16", "fp16", "fp32", "SMs", "source of the peaks"),
        ),
        row=_device_row,
        data=_device_data,
    ),
    "networks": _Listing(
        columns=("network", "kind", "per node", "step", "source"),
        row=_network_row,
        data=_network_data,
    ),
    "clusters": _Listing(
        columns=("cluster", "device", "GPUs/node", "links per GPU, one direction", "source"),
        row=_cluster_row,
        data=_cluster_data,
    ),
}
