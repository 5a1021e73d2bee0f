"""A node's wiring as link levels: NVLink islands, PCIe inside a socket, the link between sockets, the network.

The cost model knows a hierarchy of equal domains over consecutive ranks; a matrix of pairwise links is reduced to
it here. Bandwidths are nominal and per direction; efficiencies belong to the constants of the cost model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from costmodel.errors import InputError
from costmodel.spec import DeviceGroup, DeviceSpec, LinkLevel

Path = Literal["X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS"]

# NCCL 2.30, tuning.cc, hardware latencies of a ring step, Simple protocol; the network's is in scenarios/networks.
NVLINK_LATENCY_S = 3.4e-6
PCIE_LATENCY_S = 5.7e-6
NETWORK_LATENCY_S = 14e-6
# NCCL 2.30, topo.h: links between sockets of Skylake, of AMD hosts and of Sapphire Rapids, the usual hosts of
# PCIe 3, 4 and 5. Keys are the fastest PCIe rate of that generation.
SOCKET_BYTES_PER_S = {16e9: 10e9, 32e9: 16e9, 64e9: 22e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What links a device has.

    Attributes:
        nvlinks: NVLinks of one GPU, 0 without.
        nvlink_bytes_per_s: One direction of one NVLink.
        pcie_bytes_per_s: One direction of its PCIe port, or what staging through host memory leaves of it.
        bridged: Whether its NVLinks join pairs of cards by a bridge, not all GPUs of a board.
        source: Where the numbers come from.
    """

    nvlinks: int
    nvlink_bytes_per_s: float
    pcie_bytes_per_s: float
    bridged: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How the GPUs of one node are linked.

    Attributes:
        paths: Square matrix of the nearest path between GPUs: "NV" where NVLinks join them, else the words of
            ``nvidia-smi topo -m``.
        nvlinks: Square matrix of bonded NVLinks as that tool counts them: behind a switch every pair shows all
            links of a GPU.
        nics: Names of the network ports.
        network_bytes_per_s: All ports together, one direction; 0 where the file does not say.
        pcie_bytes_per_s: Of the GPUs' ports, one direction; 0 where the file does not say.
        file: Where it was read.
    """

    paths: tuple[tuple[Path, ...], ...]
    nvlinks: tuple[tuple[int, ...], ...]
    nics: tuple[str, ...] = ()
    network_bytes_per_s: float = 0.0
    pcie_bytes_per_s: float = 0.0
    file: str = ""

    @property
    def gpus(self) -> int:
        """GPUs in the node."""
        return len(self.paths)

    def islands(self) -> tuple[tuple[int, ...], ...]:
        """Return the sets of GPUs that NVLinks join, directly or through others, in order of their first GPU."""
        return _components(self.gpus, lambda a, b: self.nvlinks[a][b] > 0)

    def sockets(self) -> tuple[tuple[int, ...], ...]:
        """Return the sets of GPUs joined without crossing between sockets."""
        return _components(self.gpus, lambda a, b: self.paths[a][b] != "SYS")

    def order(self) -> tuple[int, ...]:
        """Return an order of the GPUs that makes every island consecutive (for CUDA_VISIBLE_DEVICES)."""
        return tuple(gpu for island in self.islands() for gpu in island)


def group_from_topology(
    topology: Topology,
    device: DeviceSpec,
    ports: Ports,
    *,
    gpus: int | None = None,
    network: LinkLevel | None = None,
) -> DeviceGroup:
    """Return ``gpus`` GPUs in nodes wired like ``topology``, one node by default.

    Args:
        topology: Wiring of a node.
        device: The GPU; topology files do not name it.
        ports: Its links.
        gpus: Number of GPUs in all nodes.
        network: Outermost level; where absent, that of the file if it gives speeds.

    Raises:
        InputError: If several nodes are asked for and no network is known.
    """
    count = topology.gpus if gpus is None else gpus
    levels = node_levels(topology, ports)
    network = network or _network(topology)
    if network is not None:
        levels = (*levels, network)
    elif count > topology.gpus:
        raise InputError(
            "is needed, since the topology names no speed of the network",
            file=topology.file or None,
            key="cluster.inter",
        )
    return DeviceGroup(device=device, gpus=count, gpus_per_node=topology.gpus, levels=levels)


def node_levels(topology: Topology, ports: Ports) -> tuple[LinkLevel, ...]:
    """Return the levels inside a node, nearest first.

    An island level needs islands of one size; where sizes differ the node is described by its slower links alone.
    """
    levels: list[LinkLevel] = []
    islands = {len(island) for island in topology.islands()}
    island = islands.pop() if len(islands) == 1 else 1
    if island > 1:
        levels.append(_nvlink_level(topology, ports, island))
    if island < topology.gpus or topology.gpus == 1:
        levels += _pcie_levels(topology, ports, island)
    return tuple(levels)


def notes(topology: Topology) -> tuple[str, ...]:
    """Return what a user should know about the wiring."""
    found: list[str] = []
    islands = topology.islands()
    if len({len(island) for island in islands}) > 1:
        found.append("NVLink joins groups of unequal size: only the links that all GPUs have count")
    elif topology.order() != tuple(range(topology.gpus)):
        order = ",".join(map(str, topology.order()))
        found.append(f"NVLink islands are not consecutive: set CUDA_VISIBLE_DEVICES={order}")
    if 1 < len(islands[0]) < topology.gpus:
        found.append(f"tensor parallelism above {len(islands[0])} leaves the NVLink island")
    return tuple(found)


def _nvlink_level(topology: Topology, ports: Ports, island: int) -> LinkLevel:
    """Return the island's level; under a switch each pair shows all links, in a mesh they add up."""
    rows = topology.nvlinks
    switched = any(sum(row) > max(ports.nvlinks, *row) for row in rows)
    links = min(max(row) if switched else sum(row) for row in rows)
    kind = "nvswitch" if switched else "nvlink"
    return LinkLevel(
        name="nvlink",
        gpus=island,
        bandwidth_bytes_per_s=links * ports.nvlink_bytes_per_s,
        latency_s=NVLINK_LATENCY_S,
        kind=kind,
        source=f"{topology.file}: {links} NVLinks; {ports.source}",
    )


def _pcie_levels(topology: Topology, ports: Ports, island: int) -> list[LinkLevel]:
    """Return PCIe inside a socket, and across sockets where their sizes are equal and differ from the node."""
    rate = topology.pcie_bytes_per_s or ports.pcie_bytes_per_s
    sockets = {len(socket) for socket in topology.sockets()}
    socket = sockets.pop() if len(sockets) == 1 else 1
    levels = []
    if socket > island or socket == topology.gpus:
        levels.append(_pcie("pcie", socket, rate, f"{topology.file}: {ports.source}"))
    if socket < topology.gpus:
        between = next((value for top, value in SOCKET_BYTES_PER_S.items() if rate <= top), rate)
        source = f"{topology.file}: SYS; link between sockets, NCCL 2.30 topo.h"
        levels.append(_pcie("sockets", topology.gpus, min(rate, between), source))
    return levels


def _pcie(name: str, gpus: int, rate: float, source: str) -> LinkLevel:
    return LinkLevel(
        name=name,
        gpus=gpus,
        bandwidth_bytes_per_s=rate,
        latency_s=PCIE_LATENCY_S,
        kind="pcie",
        source=source,
    )


def _network(topology: Topology) -> LinkLevel | None:
    if not topology.network_bytes_per_s:
        return None
    kind = "infiniband" if any(nic.startswith("mlx5") for nic in topology.nics) else "ethernet"
    return LinkLevel(
        name=kind,
        gpus=0,
        bandwidth_bytes_per_s=topology.network_bytes_per_s / topology.gpus,
        latency_s=NETWORK_LATENCY_S,
        kind=kind,
        source=f"{topology.file}: {len(topology.nics)} ports",
    )


def _components(count: int, joined: Callable[[int, int], bool]) -> tuple[tuple[int, ...], ...]:
    rest, found = set(range(count)), []
    while rest:
        group: set[int] = set()
        edge = {min(rest)}
        while edge:
            group |= edge
            edge = {b for a in edge for b in rest - group if joined(a, b)}
        rest -= group
        found.append(tuple(sorted(group)))
    return tuple(found)
