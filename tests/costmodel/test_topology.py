"""Wiring of nodes from nvidia-smi and NCCL: the machines people have, and broken files."""

from pathlib import Path

import pytest

from costmodel import catalog
from costmodel.errors import InputError
from costmodel.spec import LinkLevel
from costmodel.topology import group_from_topology, node_levels, notes
from costmodel.topology_files import parse_matrix, parse_topology, read_topology

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""


def matrix(rows: list[str], nics: int = 0) -> str:
    """Return what the tool prints for rows of cells such as "X NV4 SYS"."""
    names = [f"GPU{index}" for index in range(len(rows))] + [f"NIC{i}" for i in range(nics)]
    head = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    lines = [
        "\t".join([f"GPU{index}", *row.split(), *["NODE"] * nics, "0-23,48-71", "0", "", "N/A"])
        for index, row in enumerate(rows)
    ]
    lines += [
        "\t".join([f"NIC{i}", *["NODE"] * (len(rows) + i), " X ", *["PIX"] * (nics - i - 1)])
        for i in range(nics)
    ]
    return "\n".join([head, *lines, LEGEND])


def uniform(count: int, cell: str) -> list[str]:
    return [" ".join("X" if i == j else cell for j in range(count)) for i in range(count)]


def pairs(count: int, cell: str, near: str, far: str) -> list[str]:
    """Bridged pairs; half of the GPUs hang on each socket."""

    def word(i: int, j: int) -> str:
        if i == j:
            return "X"
        if i // 2 == j // 2:
            return cell
        return near if i // (count // 2) == j // (count // 2) else far

    return [" ".join(word(i, j) for j in range(count)) for i in range(count)]


# DGX-1 with V100 as the tool shows it (DGX-1 system architecture whitepaper, hybrid cube mesh).
HYBRID_CUBE = [
    "X NV1 NV1 NV2 NV2 SYS SYS SYS",
    "NV1 X NV2 NV1 SYS NV2 SYS SYS",
    "NV1 NV2 X NV2 SYS SYS NV1 SYS",
    "NV2 NV1 NV2 X SYS SYS SYS NV1",
    "NV2 SYS SYS SYS X NV1 NV1 NV2",
    "SYS NV2 SYS SYS NV1 X NV2 NV1",
    "SYS SYS NV1 SYS NV1 NV2 X NV2",
    "SYS SYS SYS NV1 NV2 NV1 NV2 X",
]


def levels(rows: list[str], device: str) -> list[tuple[str, int, float]]:
    found = node_levels(parse_matrix(matrix(rows)), catalog.ports(device))
    return [
        (level.kind, level.gpus, round(level.bandwidth_bytes_per_s / 1e9, 6)) for level in found
    ]


@pytest.mark.parametrize(
    ("rows", "device", "expected"),
    [
        (uniform(8, "NV12"), "a100-sxm-80gb", [("nvswitch", 8, 300.0)]),
        (uniform(8, "NV18"), "h100-sxm", [("nvswitch", 8, 450.0)]),
        (uniform(8, "NV8"), "a800-sxm-80gb", [("nvswitch", 8, 200.0)]),
        (uniform(8, "NV18"), "b200-sxm", [("nvswitch", 8, 900.0)]),
        (uniform(16, "NV6"), "v100-sxm3-32gb", [("nvswitch", 16, 150.0)]),
        (uniform(4, "NV4"), "a100-sxm-80gb", [("nvlink", 4, 300.0)]),
        (uniform(4, "NV6"), "h100-sxm", [("nvlink", 4, 450.0)]),
        (uniform(4, "NV2"), "v100-sxm2-16gb", [("nvlink", 4, 150.0)]),
        (HYBRID_CUBE, "v100-sxm2-16gb", [("nvlink", 8, 150.0)]),
        (uniform(2, "SYS"), "a100-pcie-40gb", [("pcie", 2, 16.0)]),
        (uniform(4, "PHB"), "l40s", [("pcie", 4, 31.5)]),
        (uniform(2, "NV4"), "rtx-3090", [("nvlink", 2, 56.25)]),
        (
            pairs(8, "NV12", "PXB", "SYS"),
            "a100-pcie-80gb",
            [("nvlink", 2, 300.0), ("pcie", 4, 31.5), ("pcie", 8, 16.0)],
        ),
        (
            pairs(8, "NV4", "PHB", "PHB"),
            "rtx-3090",
            [("nvlink", 2, 56.25), ("pcie", 8, 12.0)],
        ),
        (
            pairs(4, "NV3", "SYS", "SYS"),
            "v100-sxm2-16gb",
            [("nvlink", 2, 75.0), ("pcie", 4, 10.0)],
        ),
        (["X"], "l4", [("pcie", 1, 31.5)]),
    ],
)
def test_matrices_of_common_machines_become_their_levels(
    rows: list[str], device: str, expected: list[tuple[str, int, float]]
) -> None:
    assert levels(rows, device) == expected


@pytest.mark.parametrize(
    ("rows", "cluster"),
    [
        (uniform(8, "NV12"), "dgx-a100-80gb"),
        (uniform(8, "NV18"), "dgx-h100"),
        (uniform(16, "NV6"), "dgx-2"),
        (HYBRID_CUBE, "dgx-1"),
        (pairs(8, "NV4", "PHB", "PHB"), "8xrtx-3090-bridged"),
    ],
)
def test_a_catalog_node_and_its_matrix_agree(rows: list[str], cluster: str) -> None:
    spec = catalog.cluster(cluster)
    found = node_levels(parse_matrix(matrix(rows)), catalog.ports(spec.device.name))
    assert [(level.gpus, level.bandwidth_bytes_per_s, level.kind) for level in found] == [
        (level.gpus, level.bandwidth_bytes_per_s, level.kind) for level in spec.levels[:-1]
    ]


def test_every_nvlink_device_reaches_its_clusters_bandwidth() -> None:
    for name in catalog.names("clusters"):
        spec = catalog.cluster(name)
        port = catalog.ports(spec.device.name)
        nearest = spec.levels[0]
        if nearest.kind == "nvswitch":
            assert nearest.bandwidth_bytes_per_s == port.nvlinks * port.nvlink_bytes_per_s, name


def test_colours_network_cards_and_legends_are_read_over() -> None:
    plain = matrix(uniform(8, "NV18"), nics=4)
    coloured = plain.replace("GPU0", "\x1b[4mGPU0", 1).replace("NUMA ID", "NUMA ID\x1b[0m", 1)
    topology = parse_matrix(coloured)
    assert topology == parse_matrix(plain)
    assert topology.nics == ("NIC0", "NIC1", "NIC2", "NIC3")
    assert topology.gpus == 8


def test_old_drivers_say_soc() -> None:
    assert parse_matrix(matrix(uniform(2, "SOC"))).paths[0][1] == "SYS"


def test_text_before_the_matrix_is_read_over() -> None:
    text = "$ nvidia-smi topo -m\n" + matrix(uniform(2, "PIX"))
    assert parse_matrix(text).gpus == 2


def test_scattered_islands_name_the_order_that_makes_them_consecutive() -> None:
    rows = ["X SYS NV4 SYS", "SYS X SYS NV4", "NV4 SYS X SYS", "SYS NV4 SYS X"]
    topology = parse_matrix(matrix(rows))
    assert topology.islands() == ((0, 2), (1, 3))
    assert "CUDA_VISIBLE_DEVICES=0,2,1,3" in notes(topology)[0]


def test_islands_are_named_as_the_limit_of_tensor_parallelism() -> None:
    assert notes(parse_matrix(matrix(pairs(8, "NV4", "PHB", "SYS")))) == (
        "tensor parallelism above 2 leaves the NVLink island",
    )
    assert notes(parse_matrix(matrix(uniform(8, "NV18")))) == ()


def test_unequal_islands_count_only_what_all_have() -> None:
    rows = ["X NV4 PHB", "NV4 X PHB", "PHB PHB X"]
    topology = parse_matrix(matrix(rows))
    assert [level.kind for level in node_levels(topology, catalog.ports("rtx-3090"))] == ["pcie"]
    assert "unequal size" in notes(topology)[0]


def test_nodes_scale_behind_a_network() -> None:
    topology = parse_matrix(matrix(uniform(8, "NV18")))
    device, port = catalog.device("h100-sxm"), catalog.ports("h100-sxm")
    network = catalog.network("8x-ndr-infiniband", 8)
    group = group_from_topology(topology, device, port, gpus=64, network=network)
    assert (group.nodes, group.gpus_per_node) == (8, 8)
    assert [level.kind for level in group.levels] == ["nvswitch", "infiniband"]
    with pytest.raises(InputError, match="names no speed of the network"):
        group_from_topology(topology, device, port, gpus=64)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "no header"),
        ("nonsense\nwithout a matrix", "no header"),
        ("\tGPU0\tGPU1\nGPU0\t X \tNV4\n", "a cell for each"),
        (matrix(["X NV4", "NV2 X"]), "same both ways"),
        (matrix(["X PIXNODE", "PIXNODE X"]), "word of the legend"),
        (matrix(["NV4 X", "X NV4"]), "diagonal"),
        (matrix(["X X", "X X"]), "diagonal"),
    ],
)
def test_broken_matrices_are_refused(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule) as caught:
        parse_topology(text, "topo.txt")
    assert caught.value.file == "topo.txt"


def gpu(bus: int, links: str, speed: str = "32.0 GT/s PCIe") -> str:
    return (
        f'<pci busid="0000:{bus:02x}:00.0" class="0x030200" link_speed="{speed}" link_width="16">'
        f'<gpu dev="{bus}" sm="90" rank="{bus}" gdr="1">{links}</gpu></pci>'
    )


def system(cpus: list[str]) -> str:
    inner = "".join(
        f'<cpu numaid="{index}" arch="x86_64" vendor="GenuineIntel">{cpu}</cpu>'
        for index, cpu in enumerate(cpus)
    )
    return f'<system version="1">{inner}</system>'


SWITCH = '<nvlink target="0000:c1:00.0" count="18" tclass="0x068000"/>'
NIC = '<nic><net name="mlx5_{0}" dev="{0}" speed="400000" port="1" guid="0x1" maxconn="262144"/></nic>'


def test_nccl_files_of_a_switched_node_give_links_and_network() -> None:
    half = [
        "".join(
            gpu(4 * side + i, SWITCH) + f"<pci busid='1'>{NIC.format(i)}</pci>" for i in range(4)
        )
        for side in range(2)
    ]
    topology = parse_topology(system(half), "topo.xml")
    assert topology.nvlinks[0][7] == 18
    assert topology.network_bytes_per_s == pytest.approx(400e9)
    assert topology.pcie_bytes_per_s == pytest.approx(63e9, rel=1e-3)
    device, port = catalog.device("h100-sxm"), catalog.ports("h100-sxm")
    group = group_from_topology(topology, device, port, gpus=16)
    network = catalog.cluster("dgx-h100").levels
    assert [level.bandwidth_bytes_per_s for level in group.levels] == [
        level.bandwidth_bytes_per_s for level in network
    ]


def test_nccl_files_of_bridged_cards_give_pairs_sockets_and_switches() -> None:
    def bridged(bus: int) -> str:
        return gpu(bus, f'<nvlink target="0000:{bus ^ 1:02x}:00.0" count="4"/>', "16.0 GT/s PCIe")

    under_switch = f'<pci busid="0000:80:00.0" class="0x060400">{bridged(0)}{bridged(1)}</pci>'
    text = system([under_switch + bridged(2) + bridged(3), "".join(map(bridged, (4, 5, 6, 7)))])
    topology = parse_topology(text)
    assert topology.islands() == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert topology.paths[0][2] == "PHB"
    assert topology.paths[0][4] == "SYS"
    kinds = [(level.name, level.gpus) for level in node_levels(topology, catalog.ports("a40"))]
    assert kinds == [("nvlink", 2), ("pcie", 4), ("sockets", 8)]


def test_cards_under_one_pcie_switch_are_nearer_than_under_the_host() -> None:
    inner = f'<pci busid="0000:70:00.0">{gpu(2, "")}</pci>'
    text = system([f'<pci busid="0000:80:00.0">{gpu(0, "")}{gpu(1, "")}{inner}</pci>{gpu(3, "")}'])
    assert parse_topology(text).paths[0] == ("X", "PIX", "PXB", "PHB")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("<system>", "not valid XML"),
        ("<system></system>", "at least one GPU"),
        ("<other/>", "at least one GPU"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><system/>', "document type"),
        (system([gpu(0, '<nvlink target="x" count="many"/>')]), "whole number"),
        ("<a>" * 50_000 + "</a>" * 50_000, "at least one GPU"),
    ],
)
def test_broken_nccl_files_are_refused(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule) as caught:
        parse_topology(text if text.startswith("<") else f"<{text}", "topo.xml")
    assert caught.value.file == "topo.xml"


def test_files_are_read_by_their_text(tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(matrix(uniform(4, "NV4")))
    assert read_topology(path).gpus == 4


def test_levels_name_their_file() -> None:
    topology = parse_matrix(matrix(uniform(8, "NV18")), "topo.txt")
    level: LinkLevel = node_levels(topology, catalog.ports("h100-sxm"))[0]
    assert level.source.startswith("topo.txt: 18 NVLinks")
