"""The shipped catalog: models, devices, networks and clusters by name, read from the ``scenarios`` data folder."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from costmodel import units
from costmodel.errors import InputError
from costmodel.fields import Fields, as_fields, nearest_names
from costmodel.huggingface import model_from_config
from costmodel.load import read_yaml
from costmodel.spec import ClusterSpec, DeviceGroup, DeviceSpec, LinkLevel, ModelSpec, Precision
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
# PCI-SIG: 16 lanes of 16 GT/s in 128b/130b code, one direction.
PCIE_4_BYTES_PER_S = 31.5e9
# Four hundred times the fastest device of 2025; a bound against wrong units.
MAX_TFLOPS = 10**6


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
    return device_from_fields(_entry("devices", name), name)


def device_from_fields(entry: Fields, name: str) -> DeviceSpec:
    """Return the device that the keys of scenarios/README.md describe.

    Raises:
        InputError: If a number is missing or out of range.
    """
    memory = units.parse_bytes(entry.values.get("memory"), entry.key("memory"))
    usable = usable_bytes(memory)
    if "usable" in entry.values:
        usable = units.parse_bytes(entry.values["usable"], entry.key("usable"))
    sources = entry.child("sources").values if "sources" in entry.values else {}
    return DeviceSpec(
        name=name,
        architecture=entry.text("architecture", default="other"),
        memory_bytes=memory,
        usable_bytes=min(usable, memory),
        bandwidth_bytes_per_s=_rate(entry, "bandwidth"),
        peak_flops=_peaks(entry.child("peak_tflops")),
        multiprocessors=entry.integer("multiprocessors"),
        source="; ".join(f"{key}: {text}" for key, text in sources.items()) or entry.file,
    )


def _peaks(peaks: Fields) -> dict[str, float]:
    known = get_args(Precision)
    peaks.refuse_unknown(known)
    found = {}
    for dtype, value in peaks.values.items():
        peak = units.parse_number(value, peaks.key(dtype))
        if not 0 < peak < MAX_TFLOPS:
            raise peaks.error(f"must lie in 0..{MAX_TFLOPS}", dtype)
        found[dtype] = float(round(peak * 1e12))
    if not found:
        raise InputError("must name a precision", file=peaks.file, key=peaks.path, nearest=known)
    return found


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
    return ports_from_fields(_entry("devices", name))


def ports_from_fields(entry: Fields) -> Ports:
    """Return the links of a described device; without ``pcie`` it has a port of the fourth generation.

    Raises:
        InputError: If a number is out of range.
    """
    sources = entry.child("sources").values if "sources" in entry.values else {}
    linked = "nvlink" in entry.values
    nvlink = entry.child("nvlink") if linked else Fields({}, entry.file)
    nvlink.refuse_unknown(("count", "bandwidth", "bridge"))
    return Ports(
        nvlinks=nvlink.integer("count") if linked else 0,
        nvlink_bytes_per_s=_rate(nvlink, "bandwidth") if linked else 0.0,
        pcie_bytes_per_s=_rate(entry, "pcie") if "pcie" in entry.values else PCIE_4_BYTES_PER_S,
        bridged=nvlink.flag("bridge", default=False),
        source="; ".join(str(sources[key]) for key in ("nvlink", "pcie") if key in sources)
        or entry.file,
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
