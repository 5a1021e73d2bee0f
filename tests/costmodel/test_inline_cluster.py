"""Clusters written into scenarios: named and changed, described, wired by a file, mixed; and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from costmodel import catalog
from costmodel.errors import InputError
from costmodel.inline_cluster import LINK_KINDS, cluster_from_mapping, mapping_of_group
from costmodel.spec import ClusterSpec

Mapping = dict[str, Any]


def read(**mapping: Any) -> ClusterSpec:
    return cluster_from_mapping(mapping, "s.yaml")


def shape(cluster: ClusterSpec) -> list[tuple[str, int, float]]:
    return [
        (level.kind, level.gpus, round(level.bandwidth_bytes_per_s / 1e9, 6))
        for level in cluster.levels
    ]


@pytest.mark.parametrize("name", catalog.names("clusters"))
def test_a_named_cluster_is_the_catalogs(name: str) -> None:
    assert read(name=name, gpus=128) == catalog.cluster(name, 128)
    assert read(name=name) == catalog.cluster(name)


def test_a_named_cluster_may_have_another_network_price_and_host() -> None:
    cluster = read(
        name="dgx-h100",
        gpus=64,
        inter="100g-ethernet",
        price_per_gpu_hour="2.5",
        host_memory="1TB",
        storage="20GB/s",
    )
    assert shape(cluster) == [("nvswitch", 8, 450.0), ("ethernet", 0, 1.5625)]
    assert cluster.price_per_gpu_hour == 2.5
    assert cluster.host_memory_bytes == 10**12
    assert cluster.storage_bytes_per_s == 20e9


def test_fewer_gpus_of_a_node_share_its_network() -> None:
    cluster = read(name="dgx-h100", gpus=16, gpus_per_node=4)
    assert cluster.gpus_per_node == 4
    assert shape(cluster) == [("nvswitch", 4, 450.0), ("infiniband", 0, 100.0)]
    pairs = read(name="8xa40-bridged", gpus_per_node=4)
    assert [size for _, size, _ in shape(pairs)] == [2, 4, 0]
    alone = read(name="8xa40-bridged", gpus_per_node=2)
    assert [size for _, size, _ in shape(alone)] == [2, 0]
    rack = read(name="gb200-nvl72", gpus_per_node=2, gpus=72)
    assert [size for _, size, _ in shape(rack)] == [72, 0]


def test_a_described_cluster_has_the_usual_links_of_its_gpu() -> None:
    cluster = read(gpu="h100-sxm", gpus=64, gpus_per_node=8, inter="8x-ndr-infiniband")
    assert shape(cluster) == [("nvlink", 8, 450.0), ("infiniband", 0, 50.0)]
    assert cluster.name == "8xh100-sxm"
    assert shape(read(gpu="l40s", gpus=4)) == [("pcie", 4, 31.5)]
    assert shape(read(gpu="a100-pcie-80gb", gpus=4)) == [("pcie", 4, 31.5)]
    assert read(gpu="l4", gpus=1).gpus_per_node == 1


def test_bridged_pairs_are_written_as_a_list_of_words() -> None:
    cluster = read(gpu="rtx-3090", gpus=8, intra=["nvlink", "pcie"])
    assert shape(cluster) == [("nvlink", 2, 56.25), ("pcie", 8, 12.0)]


def test_levels_may_be_given_in_full() -> None:
    cluster = read(
        gpu="a100-sxm-80gb",
        gpus=16,
        gpus_per_node=4,
        intra={"kind": "nvswitch", "bandwidth": "240GB/s", "latency": "2us"},
        inter={"kind": "roce", "per_node": "200Gb/s"},
    )
    assert shape(cluster) == [("nvswitch", 4, 240.0), ("roce", 0, 6.25)]
    assert cluster.levels[0].latency_s == pytest.approx(2e-6)
    own = read(gpu="l4", gpus=4, gpus_per_node=2, inter={"kind": "efa", "bandwidth": "5GB/s"})
    assert shape(own)[-1] == ("efa", 0, 5.0)


def test_a_gpu_may_be_described() -> None:
    card = {
        "name": "next",
        "memory": "128GiB",
        "bandwidth": "4TB/s",
        "peak_tflops": {"bf16": "1e3"},
        "multiprocessors": 160,
        "nvlink": {"count": 10, "bandwidth": "50GB/s"},
    }
    cluster = read(gpu=card, gpus=8)
    assert cluster.device.peak_flops == {"bf16": 1e15}
    assert cluster.device.usable_bytes < cluster.device.memory_bytes == 128 * 2**30
    assert shape(cluster) == [("nvlink", 8, 500.0)]
    assert read(gpu=card | {"usable": "120GiB"}).device.usable_bytes == 120 * 2**30


def test_mixed_groups_stand_in_rank_order_and_share_the_network() -> None:
    cluster = read(
        groups=[
            {"gpu": "rtx-3090", "gpus": 2, "gpus_per_node": 2},
            {"gpu": "titan-rtx", "gpus": 2, "gpus_per_node": 2, "inter": "25g-ethernet"},
            {"name": "dgx-h100", "gpus": 8},
        ],
        inter="100g-ethernet",
    )
    assert [group.device.name for group in cluster.groups] == ["rtx-3090", "titan-rtx", "h100-sxm"]
    assert cluster.gpus == 12
    assert [group.levels[-1].name for group in cluster.groups] == [
        "100g-ethernet",
        "25g-ethernet",
        "100g-ethernet",
    ]
    assert cluster.name == "mixed cluster"


def test_a_topology_file_gives_the_node(tmp_path: Path) -> None:
    rows = ["\tGPU0\tGPU1\tCPU Affinity", "GPU0\t X \tNV12\t0-23", "GPU1\tNV12\t X \t0-23"]
    (tmp_path / "topo.txt").write_text("\n".join(rows))
    mapping = {"gpu": "a100-pcie-80gb", "topology": "topo.txt", "gpus": 8, "inter": "4x-100g-roce"}
    cluster = cluster_from_mapping(mapping, "s.yaml", base=tmp_path)
    assert shape(cluster) == [("nvlink", 2, 300.0), ("roce", 0, 25.0)]
    with pytest.raises(InputError, match="which says it"):
        cluster_from_mapping({**mapping, "intra": "pcie"}, "s.yaml", base=tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        cluster_from_mapping({**mapping, "topology": "none.txt"}, "s.yaml", base=tmp_path)


NODE = {"gpu": "h100-sxm", "gpus": 16, "gpus_per_node": 8, "inter": "8x-ndr-infiniband"}
CARD = {
    "memory": "80GB",
    "bandwidth": "2TB/s",
    "peak_tflops": {"bf16": 300},
    "multiprocessors": 100,
}


@pytest.mark.parametrize(
    ("mapping", "key", "text"),
    [
        ({"name": "dgx-h1000"}, "cluster", "nearest: dgx-h100"),
        ({"gpu": "h100-sxn"}, "cluster.gpu", "nearest: h100-sxm"),
        ({"gpu": 7}, "cluster.gpu", "must be text"),
        ({}, "cluster.name", "is missing"),
        ({**NODE, "inte": "x"}, "cluster.inte", "nearest: inter"),
        ({**NODE, "gpus": 0}, "cluster.gpus", "must lie in 1"),
        ({**NODE, "gpus": -8}, "cluster.gpus", "must lie in 1"),
        ({**NODE, "gpus": 10**7}, "cluster.gpus", "at most 1000000"),
        ({**NODE, "gpus": 2.5}, "cluster.gpus", "whole number"),
        ({**NODE, "inter": "8x-ndr-infinband"}, "cluster.inter", "nearest: 8x-ndr-infiniband"),
        ({**NODE, "inter": None}, "cluster.inter", "is needed for 16 GPUs"),
        ({**NODE, "inter": {"kind": "wifi", "bandwidth": "1GB/s"}}, "cluster.inter.kind", "kind"),
        ({**NODE, "inter": {"kind": "roce"}}, "cluster.inter", "needs either bandwidth"),
        (
            {**NODE, "inter": {"kind": "roce", "bandwidth": 400}},
            "cluster.inter.bandwidth",
            "at least 1MB/s",
        ),
        (
            {**NODE, "inter": {"kind": "roce", "bandwidth": "400GB"}},
            "cluster.inter.bandwidth",
            "rate with a unit",
        ),
        (
            {**NODE, "inter": {"kind": "roce", "bandwidth": "1GB/s", "latency": "-1us"}},
            "cluster.inter.latency",
            "must be positive",
        ),
        ({**NODE, "intra": "nvlnk"}, "cluster.intra", "nearest: nvlink"),
        ({**NODE, "intra": []}, "cluster.intra", "nearest first"),
        ({**NODE, "intra": ["pcie", "nvlink"]}, "cluster.intra", "nearest first"),
        (
            {**NODE, "intra": [{"kind": "pcie", "gpus": 4, "bandwidth": "1GB/s"}]},
            "cluster.intra",
            "the last joining the 8 GPUs",
        ),
        ({**NODE, "intra": [3]}, "cluster.intra[0]", "must be a mapping"),
        ({"gpu": "l4", "intra": "nvlink"}, "cluster.intra", "has no NVLink"),
        ({"name": "p5", "gpus_per_node": 16}, "cluster.gpus_per_node", "must not exceed the 8"),
        ({"name": "p5", "price_per_gpu_hour": -1}, "cluster.price_per_gpu_hour", "negative"),
        ({"name": "p5", "price_per_gpu_hour": "free"}, "cluster.price_per_gpu_hour", "number"),
        ({"name": "p5", "host_memory": "2 trucks"}, "cluster.host_memory", "size with a unit"),
        ({"groups": []}, "cluster.gpus", "at least one GPU"),
        ({"groups": {"gpu": "l4"}}, "cluster.groups", "must be a list"),
        ({"groups": [{"gpu": "l5"}]}, "cluster.groups[0].gpu", "nearest"),
        ({"groups": [{"gpu": "l4", "gpu_count": 1}]}, "cluster.groups[0].gpu_count", "nearest"),
        ({"gpu": {**CARD, "memory": None}}, "cluster.gpu.memory", "must be a number"),
        ({"gpu": {**CARD, "peak_tflops": {}}}, "cluster.gpu.peak_tflops", "name a precision"),
        ({"gpu": {**CARD, "peak_tflops": {"int8": 1}}}, "cluster.gpu.peak_tflops.int8", "key"),
        ({"gpu": {**CARD, "peak_tflops": {"bf16": 3e14}}}, "cluster.gpu.peak_tflops.bf16", "lie"),
        ({"gpu": {**CARD, "sm": 3}}, "cluster.gpu.sm", "is not a key here"),
    ],
)
def test_faults_are_told_by_key_and_nearest(mapping: Mapping, key: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        cluster_from_mapping(mapping, "s.yaml")
    assert text in str(caught.value)
    assert caught.value.key == key
    assert caught.value.file == "s.yaml"


def test_every_kind_of_the_catalog_has_an_efficiency() -> None:
    kinds = {catalog.network(name, 1).kind for name in catalog.names("networks")}
    for name in catalog.names("clusters"):
        kinds |= {level.kind for level in catalog.cluster(name).levels}
    assert kinds <= set(LINK_KINDS)


@pytest.mark.parametrize("name", ["dgx-h100", "p4d", "dgx-1", "dgx-a100-40gb"])
def test_a_group_written_as_a_mapping_reads_back_with_the_same_rates(name: str) -> None:
    group = catalog.cluster(name, 16).groups[0]
    again = cluster_from_mapping(mapping_of_group(group), "test").groups[0]
    assert again.gpus == group.gpus
    wired = [(level.gpus, level.kind) for level in again.levels]
    assert wired == [(level.gpus, level.kind) for level in group.levels]
    assert [level.bandwidth_bytes_per_s for level in again.levels] == pytest.approx(
        [level.bandwidth_bytes_per_s for level in group.levels]
    )
