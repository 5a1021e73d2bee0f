"""Seconds of a collective or transfer over the link levels of a cluster.

A collective is bandwidth plus latency. Bandwidth: a ring passes every byte through each level it crosses; inside a
network-free domain that is one GPU's link, between domains it is the network interfaces of the group's ranks there, so
a group with k ranks in a domain gets k interfaces (the other groups use the rest). Latency: all-gather and
reduce-scatter run as rings whose steps grow with the ranks, an all-reduce takes the shorter of ring and tree (NCCL's
two algorithms). Thakur, Rabenseifner, Gropp 2005 give the byte counts 2 (n-1)/n and (n-1)/n.
"""

from collections.abc import Callable
from typing import cast

import numpy as np

from costmodel.constants import Constants
from costmodel.events import CommEvent
from costmodel.groups import domain
from costmodel.lanes import has_lanes, highest, log2, lowest, pick
from costmodel.spec import ClusterSpec

# Share of the buffer that a rank sends, as (multiple of (n-1)/n).
_VOLUME = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


def comm_seconds(event: CommEvent, cluster: ClusterSpec, constants: Constants) -> float:
    """Return the seconds of ``event`` when nothing else runs beside it."""
    nothing = (event.group_size < 2) | (event.bytes == 0)
    if not has_lanes(nothing) and nothing:
        return 0.0
    if event.collective == "send_recv":
        rate = _at_level(event.level, lambda index: _bandwidth(cluster, constants, index, 2))
        return pick(nothing, 0.0, event.bytes / rate + constants["latency.launch"])
    time = 0.0
    for index in range(int(np.max(event.level)) + 1):
        rate = _bandwidth(cluster, constants, index, event.per_node)
        needed = _level_bytes(event, cluster, index) / rate
        time = highest(time, pick(index <= event.level, needed, 0.0))
    return pick(nothing, 0.0, time + _latency(event, cluster, constants))


def _at_level(level: int, value: Callable[[int], float]) -> float:
    """Return a quantity of a link level, lane by lane."""
    if not has_lanes(level):
        return value(level)
    values = [value(index) for index in range(int(np.max(level)) + 1)]
    return cast("float", np.array(values)[level])


def _level_bytes(event: CommEvent, cluster: ClusterSpec, index: int) -> float:
    """Return the bytes that one link of level ``index`` carries."""
    size, inside = event.group_size, event.per_node
    volume = _VOLUME[event.collective] * event.bytes
    if not _is_network(cluster, index):
        if event.collective == "all_to_all":
            return volume * (inside - 1) / size
        return pick(inside > 1, volume * (size - 1) / size, 0.0)
    if event.collective == "all_to_all":
        return volume * (size - inside) / size
    return volume * (size - 1) / size / inside


def _bandwidth(cluster: ClusterSpec, constants: Constants, index: int, ranks: int) -> float:
    """Return one GPU's bytes/s at a level when ``ranks`` GPUs of its domain take part.

    Without a switch a GPU reaches each peer by its own links, so a group uses only those between its members
    (DGX-1: 22 GB/s for two GPUs, 134 GB/s for eight, nccl-tests).
    """
    level = cluster.levels[index]
    rate = level.bandwidth_bytes_per_s * constants.of("link", level.kind)
    if level.kind == "nvlink":
        shared = rate * highest(1, ranks - 1) / max(1, level.gpus - 1)
        return pick(ranks < level.gpus, shared, rate)
    # Small rings use fewer channels: 0.86, 0.97, 0.99 of the rate with 2, 4, 8 ranks (nccl-tests, A100).
    used = highest(2, ranks)
    return rate * (1.0 - 0.56 / (used * used)) if level.kind == "nvswitch" else rate


def _is_network(cluster: ClusterSpec, index: int) -> bool:
    level = cluster.levels[index]
    return level.gpus == 0 or level.gpus > domain(cluster)


def _latency(event: CommEvent, cluster: ClusterSpec, constants: Constants) -> float:
    """Return launch and steps; a step costs the level's latency times its constant."""
    inside, nodes = event.per_node, highest(1, event.group_size // event.per_node)
    near = cluster.levels[0].latency_s * constants["latency.node"]
    step = _at_level(event.level, lambda index: cluster.levels[index].latency_s)
    far = step * constants["latency.network"]
    launch = constants["latency.launch"]
    if event.collective == "all_to_all":
        return launch + (inside - 1) * near + (nodes - 1) * far
    through = pick(nodes > 1, near * constants["latency.pass"], near)
    ring = (event.group_size - nodes) * through + (nodes - 1) * far
    if event.collective != "all_reduce":
        return launch + ring
    tree = 2 * (inside - 1) * near + 2 * log2(nodes) * far
    return launch + lowest(2 * ring, tree)
