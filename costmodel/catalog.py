"""The shipped catalog: models, devices, networks and clusters by name, read from the ``scenarios`` data folder."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from costmodel import units
from costmodel.errors import InputError
from costmodel.fields import Fields, as_fields, nearest_names
from costmodel.huggingface import model_from_config
from costmodel.load import read_yaml
from costmodel.spec import ClusterSpec, DeviceGroup, DeviceSpec, LinkLevel, ModelSpec
from costmodel.topology import Ports

CatalogKind = Literal["models", "devices", "networks", "clusters"]

# Beside the packages in the source tree and in site-packages alike. Not importlib.resources: a folder of that
# name in the user's working directory would become part of the namespace package and hide shipped files.
ROOT = Path(__file__).resolve().parent.parent / "scenarios"

# What a process cannot hold: the driver's own share (the total of nvidia-smi exceeds the capacity that torch's
# out-of-memory errors state by 450 MiB on A100 and H100, up to 900 MiB on B200), and headroom that the
# allocator's rounding leaves unusable. DESIGN: one stated rule for all devices, not fitted to any run.
DRIVER_RESERVE_BYTES = 700 * units.MIB
ALLOCATOR_RESERVE = 0.03


def names(kind: CatalogKind) -> tuple[str, ...]:
    """Return the names of all entries of a kind in alphabetical order."""
    return tuple(sorted(_entries(kind)))


def model(name: str) -> ModelSpec:
    """Return a model of the catalog.

    Raises:
        InputError: If there is none of that name; the nearest names are given.
    """
    entry = _entry("models", name)
    spec = model_from_config(model_config(name), name=name, file=entry.file, path=entry.path)
    return replace(spec, source=entry.text("source"))


def model_config(name: str) -> dict[str, object]:
    """Return the Hugging Face fields of a model of the catalog.

    Raises:
        InputError: If there is none of that name.
    """
    return dict(_entry("models", name).child("config").values)


def expected_parameters(name: str) -> int:
    """Return the published parameter count of a model of the catalog.

    Raises:
        InputError: If there is none of that name.
    """
    value = _entry("models", name).values.get("expect_params")
    return int(units.parse_number(value, f"{name}.expect_params"))


@lru_cache(maxsize=256)
def device(name: str) -> DeviceSpec:
    """Return a device of the catalog.

    Raises:
        InputError: If there is none of that name; the nearest names are given.
    """
    entry = _entry("devices", name)
    memory = units.parse_bytes(entry.values.get("memory"), entry.key("memory"))
    peaks = entry.child("peak_tflops")
    return DeviceSpec(
        name=name,
        architecture=entry.text("architecture"),
        memory_bytes=memory,
        usable_bytes=usable_bytes(memory),
        bandwidth_bytes_per_s=_rate(entry, "bandwidth"),
        peak_flops={
            dtype: float(round(units.parse_number(value, peaks.key(dtype)) * 1e12))
            for dtype, value in peaks.values.items()
        },
        multiprocessors=entry.integer("multiprocessors"),
        source="; ".join(f"{key}: {text}" for key, text in device_sources(name).items()),
    )


def device_sources(name: str) -> dict[str, str]:
    """Return where each number of a device stands.

    Raises:
        InputError: If there is none of that name.
    """
    sources = _entry("devices", name).child("sources")
    return {key: sources.text(key) for key in sources.values}


def ports(name: str) -> Ports:
    """Return the links of a device of the catalog.

    Raises:
        InputError: If there is none of that name; the nearest names are given.
    """
    entry = _entry("devices", name)
    sources = device_sources(name)
    linked = "nvlink" in entry.values
    nvlink = entry.child("nvlink") if linked else Fields({}, entry.file)
    return Ports(
        nvlinks=nvlink.integer("count", default=0, minimum=0),
        nvlink_bytes_per_s=_rate(nvlink, "bandwidth") if linked else 0.0,
        pcie_bytes_per_s=_rate(entry, "pcie"),
        source="; ".join(sources[key] for key in ("nvlink", "pcie") if key in sources),
    )


def _rate(entry: Fields, name: str) -> float:
    return units.parse_rate(entry.values.get(name), entry.key(name))


def usable_bytes(memory_bytes: int) -> int:
    """Return what a process can hold of a device's memory by the stated rule: 700 MiB and 3 % less."""
    return max(round(memory_bytes * (1 - ALLOCATOR_RESERVE)) - DRIVER_RESERVE_BYTES, 1)


def network(name: str, gpus_per_node: int) -> LinkLevel:
    """Return a network of the catalog as the outermost level of nodes with ``gpus_per_node`` GPUs.

    Raises:
        InputError: If there is none of that name; the nearest names are given.
    """
    entry = _entry("networks", name)
    per_node = _rate(entry, "per_node")
    return LinkLevel(
        name=name,
        gpus=0,
        bandwidth_bytes_per_s=per_node / gpus_per_node,
        latency_s=units.parse_seconds(entry.values.get("latency"), entry.key("latency")),
        kind=entry.text("kind"),
        source=entry.text("source"),
    )


def cluster(name: str, gpus: int | None = None) -> ClusterSpec:
    """Return a cluster of the catalog scaled to ``gpus`` GPUs, one node by default.

    Raises:
        InputError: If there is none of that name, or ``gpus`` is below 1.
    """
    entry = _entry("clusters", name)
    per_node = entry.integer("gpus_per_node")
    count = per_node if gpus is None else gpus
    if count < 1:
        raise InputError("must be at least 1", key="cluster.gpus", value=count, nearest=1)
    levels = (*map(_level, entry.children("intra")), network(entry.text("inter"), per_node))
    group = DeviceGroup(
        device=device(entry.text("device")), gpus=count, gpus_per_node=per_node, levels=levels
    )
    memory = units.parse_bytes(entry.values.get("host_memory"), entry.key("host_memory"))
    return ClusterSpec(name=name, groups=(group,), host_memory_bytes=memory)


def cluster_source(name: str) -> str:
    """Return where a cluster is described.

    Raises:
        InputError: If there is none of that name.
    """
    return _entry("clusters", name).text("source")


def _level(entry: Fields) -> LinkLevel:
    return LinkLevel(
        name=entry.text("name"),
        gpus=entry.integer("gpus"),
        bandwidth_bytes_per_s=_rate(entry, "bandwidth"),
        latency_s=units.parse_seconds(entry.values.get("latency"), entry.key("latency")),
        kind=entry.text("kind"),
        source=entry.text("source"),
    )


def _entry(kind: CatalogKind, name: str) -> Fields:
    entries = _entries(kind)
    if name not in entries:
        key = kind.removesuffix("s")
        near = nearest_names(name, entries) or f"see shardplan catalog {kind}"
        raise InputError("is not in the catalog", key=key, value=name, nearest=near)
    return entries[name]


@lru_cache(maxsize=4)
def _entries(kind: CatalogKind) -> dict[str, Fields]:
    found: dict[str, Fields] = {}
    for path in sorted((ROOT / kind).glob("*.yaml")):
        file = f"scenarios/{kind}/{path.name}"
        fields = as_fields(read_yaml(path), file)
        found |= {name: fields.child(name) for name in fields.values}
    return found
