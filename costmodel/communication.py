"""Seconds of a collective or transfer over the link levels of a cluster.

A collective is bandwidth plus latency. Bandwidth: a ring passes every byte through each level it crosses; inside a
network-free domain that is one GPU's link, between domains it is the network interfaces of the group's ranks there, so
a group with k ranks in a domain gets k interfaces (the other groups use the rest). Latency: all-gather and
reduce-scatter run as rings whose steps grow with the ranks, an all-reduce takes the shorter of ring and tree (NCCL's
two algorithms). Thakur, Rabenseifner, Gropp 2005 give the byte counts 2 (n-1)/n and (n-1)/n.
"""

import math

from costmodel.constants import Constants
from costmodel.events import CommEvent
from costmodel.groups import domain
from costmodel.lanes import highest, lowest
from costmodel.spec import ClusterSpec, LinkLevel

# Share of the buffer that a rank sends, as (multiple of (n-1)/n).
_VOLUME = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


def comm_seconds(event: CommEvent, cluster: ClusterSpec, constants: Constants) -> float:
    """Return the seconds of ``event`` when nothing else runs beside it."""
    if event.group_size < 2 or event.bytes == 0:
        return 0.0
    if event.collective == "send_recv":
        return _transfer_seconds(event, cluster, constants)
    time = 0.0
    for index in range(event.level + 1):
        time = highest(
            time, _level_bytes(event, cluster, index) / _bandwidth(cluster, constants, index)
        )
    return time + _latency(event, cluster, constants)


def _transfer_seconds(event: CommEvent, cluster: ClusterSpec, constants: Constants) -> float:
    rate = _bandwidth(cluster, constants, event.level)
    return event.bytes / rate + _step(cluster, constants, event.level)


def _level_bytes(event: CommEvent, cluster: ClusterSpec, index: int) -> float:
    """Return the bytes that one link of level ``index`` carries."""
    size, inside = event.group_size, event.per_node
    volume = _VOLUME[event.collective] * event.bytes
    if not _is_network(cluster, index):
        if event.collective == "all_to_all":
            return volume * (inside - 1) / size
        return volume * (size - 1) / size if inside > 1 else 0.0
    if event.collective == "all_to_all":
        return volume * (size - inside) / size
    return volume * (size - 1) / size / inside


def _bandwidth(cluster: ClusterSpec, constants: Constants, index: int) -> float:
    level = cluster.levels[index]
    return level.bandwidth_bytes_per_s * constants.of("link", level.kind)


def _is_network(cluster: ClusterSpec, index: int) -> bool:
    level = cluster.levels[index]
    return level.gpus == 0 or level.gpus > domain(cluster)


def _step(cluster: ClusterSpec, constants: Constants, index: int) -> float:
    scope = "network" if _is_network(cluster, index) else "node"
    level: LinkLevel = cluster.levels[index]
    return level.latency_s * constants[f"latency.{scope}"]


def _latency(event: CommEvent, cluster: ClusterSpec, constants: Constants) -> float:
    inside, nodes = event.per_node, max(1, event.group_size // event.per_node)
    near, far = _step(cluster, constants, 0), _step(cluster, constants, event.level)
    launch = near
    if event.collective == "all_to_all":
        return launch + (inside - 1) * constants["latency.message"] + (nodes - 1) * far / 4
    hops = (event.group_size - nodes) * constants["latency.ring"] * near
    ring = launch + hops + (nodes - 1) * constants["latency.ring"] * far
    if event.collective != "all_reduce":
        return ring
    tree = launch + 2 * math.log2(inside) * near / 2 + 2 * math.log2(nodes) * far
    return lowest(2 * ring, tree)
