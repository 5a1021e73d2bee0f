"""The hardware a run names: GPU names are matched exactly, ambiguous ones are refused, links are read from text."""

import re
from dataclasses import replace
from functools import lru_cache

from costmodel import catalog
from costmodel.errors import InputError
from costmodel.spec import ClusterSpec, LinkLevel

# Spellings of logs, drivers and papers -> catalog device. Exact after lower-casing and joining with "-": a part of
# a name never matches ("V100-SXM2-32GB" holds the letters of "gb200" nowhere that counts).
_DEVICES = {
    "a100-sxm4-80gb": "a100-sxm-80gb",
    "a100-80gb": "a100-sxm-80gb",
    "a100-sxm-80gb": "a100-sxm-80gb",
    "a100-80gb-sxm": "a100-sxm-80gb",
    "a100-sxm4": "a100-sxm-80gb",  # SXM4 of unstated memory: the larger, newer card
    "a100-sxm": "a100-sxm-80gb",
    "a100-sxm4-40gb": "a100-sxm-40gb",
    "a100-sxm-40gb": "a100-sxm-40gb",
    "a100-40gb": "a100-sxm-40gb",
    "a100-pcie-40gb": "a100-pcie-40gb",
    "a100-pcie-80gb": "a100-pcie-80gb",
    "a100-80gb-pcie": "a100-pcie-80gb",
    "a800": "a800-sxm-80gb",
    "a800-80gb": "a800-sxm-80gb",
    "a800-sxm4-80gb": "a800-sxm-80gb",
    "h100-80gb-hbm3": "h100-sxm",
    "h100-sxm5-80gb": "h100-sxm",
    "h100-sxm5": "h100-sxm",
    "h100-sxm": "h100-sxm",
    "h100-sxm-80gb": "h100-sxm",
    "h100-80gb": "h100-sxm",
    "h100-pcie": "h100-pcie",
    "h100-pcie-80gb": "h100-pcie",
    "h100-nvl": "h100-nvl",
    "h100-sxm-96gb-hbm2e-500w": "h100-sxm-96gb-hbm2e",
    "h100-sxm-96gb-hbm2e": "h100-sxm-96gb-hbm2e",
    "h100-sxm-94gb-hbm2e": "h100-sxm-96gb-hbm2e",
    "h800": "h800-sxm",
    "h800-80gb": "h800-sxm",
    "h800-sxm5-80gb": "h800-sxm",
    "h20": "h20",
    "h20-96gb": "h20",
    "h200": "h200-sxm",
    "h200-sxm": "h200-sxm",
    "h200-sxm-141gb": "h200-sxm",
    "gh200": "gh200-96gb",
    "gh200-96gb": "gh200-96gb",
    "b200": "b200-sxm",
    "b200-sxm": "b200-sxm",
    "b300": "b300-sxm",
    "b300-sxm": "b300-sxm",
    "gb200": "gb200",
    "gb200-nvl72": "gb200",
    "gb300": "gb300",
    "gb300-nvl72": "gb300",
    "v100-sxm2-16gb": "v100-sxm2-16gb",
    "v100-16gb": "v100-sxm2-16gb",
    "v100-sxm2-32gb": "v100-sxm2-32gb",
    "v100-32gb": "v100-sxm2-32gb",
    "v100-sxm3-32gb": "v100-sxm3-32gb",
    "v100-sxm3-32gb-(dgx-2h)": "v100-sxm3-32gb-450w",
    "mi300x": "mi300x",
    "mi300x-192gb": "mi300x",
    "mi250x": "mi250x",
    "rtx3090": "rtx-3090",
    "rtx-3090-24gb": "rtx-3090",
    "rtx3090-24gb": "rtx-3090",
    "rtx4090": "rtx-4090",
    "rtx4090-24gb": "rtx-4090",
    "rtx-4090-24gb": "rtx-4090",
    "rtx5090": "rtx-5090",
    "rtx5090-32gb": "rtx-5090",
    "rtx5060ti-16gb": "rtx-5060-ti-16gb",
    "rtx-pro-6000-96gb": "rtx-pro-6000",
    "l40s-48gb": "l40s",
    "l40s": "l40s",
    "a10g-24gb": "a10g",
    "l4-24gb": "l4",
    "t4-16gb": "t4",
    "titan-rtx-24gb": "titan-rtx",
}
# Names that leave the card open; they count as the SXM card only where eight of them share a node.
_OPEN = {"a100": "a100-sxm-80gb", "h100": "h100-sxm", "v100": "v100-sxm2-16gb"}
# Node type from which a device takes its links when a run does not state them.
_NODES = {
    "a100-sxm-80gb": "dgx-a100-80gb",
    "a100-sxm-40gb": "dgx-a100-40gb",
    "h100-sxm": "dgx-h100",
    "v100-sxm2-16gb": "dgx-1",
    "v100-sxm2-32gb": "dgx-1-32gb",
    "l4": "8xl4",
    "l40s": "8xl40s",
    "b200-sxm": "dgx-b200",
    "h200-sxm": "dgx-h200",
    "rtx-pro-6000": "8xrtx-pro-6000",
    "rtx-3090": "8xrtx-3090",
    "rtx-4090": "8xrtx-4090",
    "a100-pcie-80gb": "8xa100-pcie-80gb",
    "h100-pcie": "8xh100-pcie",
    "a40": "8xa40",
    "t4": "8xt4",
    "titan-rtx": "2xtitan-rtx",
}
_NETWORK_KINDS = {
    "omni-path": "omnipath",
    "opa": "omnipath",
    "infiniband": "infiniband",
    "hdr": "infiniband",
    "ndr": "infiniband",
    "edr": "infiniband",
    "ib": "infiniband",
    "cx-7": "infiniband",
    "cx7": "infiniband",
    "roce": "roce",
    "rdma": "roce",
    "efa": "efa",
    "ethernet": "ethernet",
    "slingshot": "ethernet",
}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(gb/s|gbps|gbit/s|tbps)", re.IGNORECASE)
_PORTS = re.compile(r"(\d+)\s*x\b", re.IGNORECASE)
_OMNIPATH_PORT = 12.5e9  # bytes/s of one Omni-Path 100 port


def device_name(text: str, gpus_per_node: int = 8) -> str:
    """Return the catalog name of a GPU as runs write it.

    Raises:
        InputError: If the name is unknown or leaves open which card it was.
    """
    name = "-".join(text.strip().lower().replace("_", " ").replace("nvidia", " ").split())
    name = name.removeprefix("tesla-")
    if name in _DEVICES:
        return _DEVICES[name]
    if name in catalog.names("devices"):
        return name
    if name in _OPEN and gpus_per_node == 8:
        return _OPEN[name]
    if name in _OPEN:
        raise InputError(
            "leaves open which card it is", key="gpu_type", value=text, nearest=_OPEN[name]
        )
    raise InputError("is no GPU of the catalog", key="gpu_type", value=text)


def cluster_of(
    device: str, gpus: int, gpus_per_node: int = 0, intra: str = "", inter: str = ""
) -> ClusterSpec:
    """Return the cluster of a run: the device's usual node, changed by what the run states."""
    base = catalog.cluster(_node(device), gpus)
    group = base.groups[0]
    per_node = min(gpus_per_node or group.gpus_per_node, max(gpus, 1))
    levels = [_resized(level, group.gpus_per_node, per_node) for level in group.levels[:-1]]
    if "pcie" in intra.lower() and levels[-1].kind != "pcie":
        levels = [replace(levels[-1], name="pcie", kind="pcie", bandwidth_bytes_per_s=16e9)]
    network = group.levels[-1]
    network = replace(
        network,
        bandwidth_bytes_per_s=network.bandwidth_bytes_per_s * group.gpus_per_node / per_node,
    )
    group = replace(
        group, gpus_per_node=per_node, levels=(*levels, _network(network, inter, per_node))
    )
    return replace(base, name=f"{base.name} x{gpus}", groups=(group,))


def _resized(level: LinkLevel, before: int, after: int) -> LinkLevel:
    """Return the level of a node of another size; a domain beyond the node (NVL72) stays."""
    return replace(level, gpus=after) if level.gpus == before else level


@lru_cache(maxsize=256)
def _node(device: str) -> str:
    if device in _NODES:
        return _NODES[device]
    for name in catalog.names("clusters"):
        if catalog.cluster(name).device.name == device:
            return name
    raise InputError("has no node type in the catalog", key="gpu_type", value=device)


def _network(level: LinkLevel, text: str, per_node: int) -> LinkLevel:
    """Return the network that ``text`` states, for example ``8x HDR IB 200Gbps`` or ``RDMA 400Gbps/GPU``."""
    words = re.split(r"[\s,()/]+", text.lower())
    kind = next((_NETWORK_KINDS[word] for word in words if word in _NETWORK_KINDS), level.kind)
    rate, ports = _RATE.search(text), _PORTS.search(text)
    count = int(ports[1]) if ports else 1
    if rate is None:
        total = _OMNIPATH_PORT * count if kind == "omnipath" and ports else None
    else:
        total = float(rate[1]) * _unit(rate[2])
        whole = "node" in text.lower()
        total = total if whole else total * count
        total = total * per_node if "gpu" in text.lower() else total
    if total is None:
        return replace(level, kind=kind)
    return replace(level, name=text, kind=kind, bandwidth_bytes_per_s=total / per_node)


def _unit(text: str) -> float:
    """Return bytes/s of one unit; ``GB/s`` are bytes, ``Gb/s`` and ``Gbps`` are bits."""
    if text == "GB/s":
        return 1e9
    return 125e9 if text.lower().startswith("t") else 0.125e9
