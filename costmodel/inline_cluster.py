"""Clusters written into a scenario: a catalog node changed, a node described, a topology file, or mixed groups."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from costmodel import catalog, units
from costmodel.constants import BY_NAME
from costmodel.errors import InputError
from costmodel.fields import Fields, as_fields, nearest_names
from costmodel.spec import ClusterSpec, DeviceGroup, DeviceSpec, LinkLevel
from costmodel.topology import (
    NETWORK_LATENCY_S,
    NVLINK_LATENCY_S,
    PCIE_LATENCY_S,
    Ports,
    group_from_topology,
)
from costmodel.topology_files import read_topology

LINK_KINDS = tuple(
    name.removeprefix("link.")
    for name in BY_NAME
    if name.startswith("link.") and name != "link.other"
)
_INSIDE = {"nvlink": NVLINK_LATENCY_S, "nvswitch": NVLINK_LATENCY_S, "pcie": PCIE_LATENCY_S}
MAX_GPUS = 10**6
MIN_BYTES_PER_S = 1e6  # below any network that joins accelerators: a bound against wrong units

_SHARED = ("name", "price_per_gpu_hour", "host_memory", "storage")
_GROUP = ("name", "gpu", "gpus", "gpus_per_node", "intra", "inter", "topology")
_LEVEL = ("name", "kind", "gpus", "bandwidth", "per_node", "latency")
_DEVICE = (
    "name",
    "architecture",
    "memory",
    "usable",
    "bandwidth",
    "peak_tflops",
    "multiprocessors",
    "nvlink",
    "pcie",
)


def cluster_from_mapping(
    mapping: object, file: str, path: str = "cluster", base: Path | None = None
) -> ClusterSpec:
    """Return the cluster that a mapping inside a scenario describes; scenarios/README.md lists its keys.

    Args:
        mapping: ``{name: CATALOG_NAME, ..}``, ``{gpu: .., gpus_per_node: .., intra: .., inter: ..}``,
            ``{gpu: .., topology: FILE, ..}`` or ``{groups: [..]}`` for GPUs of several kinds in rank order.
        file: Name of the scenario for errors.
        path: Key path of the mapping inside the file.
        base: Folder that topology files are relative to.

    Raises:
        InputError: If a key is unknown, missing or out of range.
    """
    try:
        return _cluster(as_fields(mapping, file, path), base or Path())
    except InputError as error:  # quantities are read without knowing their file
        raise (error if error.file else error.within(file)) from error


def _cluster(fields: Fields, base: Path) -> ClusterSpec:
    if "groups" in fields.values:
        fields.refuse_unknown((*_SHARED, "groups", "inter"))
        inherited = {"inter": fields.values["inter"]} if "inter" in fields.values else {}
        groups = tuple(
            _group(Fields({**inherited, **part.values}, fields.file, part.path), base)
            for part in fields.children("groups")
        )
        name = fields.text("name", default="mixed cluster")
    else:
        fields.refuse_unknown((*_SHARED, *_GROUP))
        groups = (_group(fields, base),)
        name = fields.text("name", default=f"{groups[0].gpus_per_node}x{groups[0].device.name}")
    return ClusterSpec(
        name=name,
        groups=groups,
        price_per_gpu_hour=_price(fields),
        host_memory_bytes=_host_memory(fields),
        storage_bytes_per_s=_optional_rate(fields, "storage"),
    )


def _price(fields: Fields) -> float | None:
    if "price_per_gpu_hour" not in fields.values:
        return None
    price = units.parse_number(
        fields.values["price_per_gpu_hour"], fields.key("price_per_gpu_hour")
    )
    if price < 0:
        raise fields.error("must not be negative", "price_per_gpu_hour", nearest=0)
    return price


def _host_memory(fields: Fields) -> int:
    if "host_memory" in fields.values:
        return units.parse_bytes(fields.values["host_memory"], fields.key("host_memory"))
    name = fields.values.get("name")
    named = name in catalog.names("clusters") and "gpu" not in fields.values
    return catalog.cluster(str(name)).host_memory_bytes if named else 0


def _optional_rate(fields: Fields, name: str) -> float:
    if name not in fields.values:
        return 0.0
    return units.parse_rate(fields.values[name], fields.key(name))


def mapping_of_group(group: DeviceGroup) -> dict[str, object]:
    """Return the mapping that ``cluster_from_mapping`` reads back as ``group``, its catalog device by name."""
    inside = [level for level in group.levels if 0 < level.gpus <= group.gpus_per_node]
    outside = [level for level in group.levels if level not in inside]
    mapping: dict[str, object] = {
        "gpu": group.device.name,
        "gpus_per_node": group.gpus_per_node,
        "gpus": group.gpus,
        "intra": [{**_level_mapping(level), "gpus": level.gpus} for level in inside],
    }
    if outside:
        mapping["inter"] = _level_mapping(outside[-1])
    return mapping


def _level_mapping(level: LinkLevel) -> dict[str, object]:
    return {
        "name": level.name,
        "kind": level.kind,
        "bandwidth": level.bandwidth_bytes_per_s,
        "latency": level.latency_s,
    }


@dataclass(frozen=True, slots=True)
class _Node:
    """What a node type gives before a scenario changes it."""

    device: DeviceSpec
    ports: Ports
    gpus_per_node: int
    levels: tuple[LinkLevel, ...]
    network: LinkLevel | None


def _group(fields: Fields, base: Path) -> DeviceGroup:
    """Return one group of equal nodes."""
    fields.refuse_unknown((*_SHARED, *_GROUP))
    if "topology" in fields.values:
        return _wired_group(fields, base)
    node = _described(fields) if "gpu" in fields.values else _named(fields)
    gpus = _gpus(fields, node.gpus_per_node)
    network = _inter(fields, node.gpus_per_node) or node.network
    if network is None and gpus > node.gpus_per_node:
        raise InputError(
            f"is needed for {gpus} GPUs in nodes of {node.gpus_per_node}",
            file=fields.file,
            key=fields.key("inter"),
            nearest=("100g-ethernet", "8x-hdr-infiniband", "8x-ndr-infiniband"),
        )
    levels = _intra(fields, node) or node.levels
    outer = () if network is None else (network,)
    return DeviceGroup(
        device=node.device,
        gpus=gpus,
        gpus_per_node=node.gpus_per_node,
        levels=(*levels, *outer),
    )


def _gpus(fields: Fields, default: int) -> int:
    gpus = fields.integer("gpus", default=default)
    if gpus > MAX_GPUS:
        raise fields.error(f"must be at most {MAX_GPUS}", "gpus", nearest=MAX_GPUS)
    return gpus


def _named(fields: Fields) -> _Node:
    """Return a node type of the catalog, with another number of GPUs if asked."""
    group = catalog.cluster(fields.text("name")).groups[0]
    per_node = fields.integer("gpus_per_node", default=group.gpus_per_node)
    if per_node > group.gpus_per_node:
        raise fields.error(
            f"must not exceed the {group.gpus_per_node} of the node type",
            "gpus_per_node",
            nearest=group.gpus_per_node,
        )
    shared = group.levels[-1].bandwidth_bytes_per_s * group.gpus_per_node / per_node
    return _Node(
        group.device,
        catalog.ports(group.device.name),
        per_node,
        _cut(group.levels[:-1], group.gpus_per_node, per_node),
        replace(group.levels[-1], bandwidth_bytes_per_s=shared),
    )


def _cut(levels: tuple[LinkLevel, ...], before: int, after: int) -> tuple[LinkLevel, ...]:
    """Return the levels of a node of which fewer GPUs are used; domains beyond the node stay."""
    inside = [level for level in levels if level.gpus < after]
    edge = [replace(level, gpus=after) for level in levels if after <= level.gpus <= before]
    beyond = [level for level in levels if level.gpus > before]
    return (*inside, *edge[:1], *beyond)


def _described(fields: Fields) -> _Node:
    device, ports = _gpu(fields)
    per_node = fields.integer("gpus_per_node", default=min(8, _gpus(fields, 8)))
    return _Node(device, ports, per_node, _usual_levels(ports, per_node), None)


def _usual_levels(ports: Ports, per_node: int) -> tuple[LinkLevel, ...]:
    """Return NVLink among all GPUs of a node where the device is made for it, else PCIe without bridges."""
    kind = "nvlink" if ports.nvlinks and not ports.bridged else "pcie"
    return (_inside(kind, per_node, ports),)


def _inside(kind: str, gpus: int, ports: Ports) -> LinkLevel:
    linked = kind != "pcie"
    rate = ports.nvlinks * ports.nvlink_bytes_per_s if linked else ports.pcie_bytes_per_s
    return LinkLevel(
        name="nvlink" if linked else "pcie",
        gpus=min(gpus, 2) if linked and ports.bridged else gpus,
        bandwidth_bytes_per_s=rate,
        latency_s=_INSIDE[kind],
        kind=kind,
        source=ports.source,
    )


def _gpu(fields: Fields) -> tuple[DeviceSpec, Ports]:
    """Return the device that ``gpu`` names or describes, and its links."""
    value = fields.values.get("gpu")
    if isinstance(value, Mapping):
        entry = fields.child("gpu")
        entry.refuse_unknown(_DEVICE)
        device = catalog.device_from_fields(entry, entry.text("name", default="inline gpu"))
        return device, catalog.ports_from_fields(entry)
    name = fields.text("gpu")
    if name not in catalog.names("devices"):
        near = nearest_names(name, catalog.names("devices"))
        raise fields.error("is not in the catalog", "gpu", nearest=near)
    return catalog.device(name), catalog.ports(name)


def _wired_group(fields: Fields, base: Path) -> DeviceGroup:
    for name in ("intra", "gpus_per_node"):
        if name in fields.values:
            raise fields.error("must be absent beside topology, which says it", name)
    device, ports = _gpu(fields)
    topology = read_topology(base / fields.text("topology"))
    return group_from_topology(
        topology,
        device,
        ports,
        gpus=_gpus(fields, topology.gpus),
        network=_inter(fields, topology.gpus),
    )


def _intra(fields: Fields, node: _Node) -> tuple[LinkLevel, ...]:
    """Return the levels inside the node: a word, a mapping, or a list of them, nearest first; () if not said."""
    value = fields.values.get("intra")
    if value is None:
        return ()
    items = value if isinstance(value, list) else [value]
    keys = [f"{fields.key('intra')}[{i}]" for i in range(len(items))]
    if not isinstance(value, list):
        keys = [fields.key("intra")]
    levels = tuple(
        _intra_level(item, Fields(fields.values, fields.file, key), node)
        for item, key in zip(items, keys, strict=True)
    )
    reach = [level.gpus for level in levels]
    if not reach or reach != sorted(set(reach)) or reach[-1] < node.gpus_per_node:
        rule = f"must list levels nearest first, the last joining the {node.gpus_per_node} GPUs"
        raise InputError(rule, file=fields.file, key=fields.key("intra"), value=value)
    return levels


def _intra_level(item: object, place: Fields, node: _Node) -> LinkLevel:
    if isinstance(item, str):
        kind = _kind(item, place.file, place.path, tuple(_INSIDE))
        if kind != "pcie" and not node.ports.nvlinks:
            rule = f"must be pcie: the {node.device.name} has no NVLink"
            raise InputError(rule, file=place.file, key=place.path, value=item, nearest="pcie")
        return _inside(kind, node.gpus_per_node, node.ports)
    fields = as_fields(item, place.file, place.path)
    fields.refuse_unknown(_LEVEL)
    kind = _kind(fields.text("kind"), place.file, fields.key("kind"), LINK_KINDS)
    gpus = fields.integer("gpus", default=node.gpus_per_node)
    return _level(fields, kind, gpus, node.gpus_per_node, _INSIDE.get(kind, PCIE_LATENCY_S))


def _inter(fields: Fields, per_node: int) -> LinkLevel | None:
    """Return the network: a name of the catalog or a mapping; None if not said."""
    value = fields.values.get("inter")
    if value is None:
        return None
    if isinstance(value, str):
        if value not in catalog.names("networks"):
            near = nearest_names(value, catalog.names("networks"))
            raise fields.error("is not in the catalog", "inter", nearest=near)
        return catalog.network(value, per_node)
    part = fields.child("inter")
    part.refuse_unknown(_LEVEL)
    kind = _kind(part.text("kind"), part.file, part.key("kind"), LINK_KINDS)
    return _level(part, kind, 0, per_node, NETWORK_LATENCY_S)


def _kind(value: str, file: str, key: str, known: tuple[str, ...]) -> str:
    if value not in known:
        near = nearest_names(value, known) or known
        rule = "must be a known kind of link"
        raise InputError(rule, file=file, key=key, value=value, nearest=near)
    return value


def _level(fields: Fields, kind: str, gpus: int, per_node: int, latency_s: float) -> LinkLevel:
    """Return a level from its mapping; ``per_node`` is shared by the GPUs, ``bandwidth`` is each one's own."""
    given = [name for name in ("bandwidth", "per_node") if name in fields.values]
    if len(given) != 1:
        rule = "needs either bandwidth (per GPU) or per_node (all GPUs of a node together)"
        raise InputError(rule, file=fields.file, key=fields.path)
    rate = units.parse_rate(fields.values[given[0]], fields.key(given[0]))
    if rate < MIN_BYTES_PER_S:
        raise fields.error("must be at least 1MB/s", given[0], nearest="1MB/s")
    if "latency" in fields.values:
        latency_s = units.parse_seconds(fields.values["latency"], fields.key("latency"))
    return LinkLevel(
        name=fields.text("name", default=kind),
        gpus=gpus,
        bandwidth_bytes_per_s=rate / per_node if given == ["per_node"] else rate,
        latency_s=latency_s,
        kind=kind,
        source=fields.file,
    )
