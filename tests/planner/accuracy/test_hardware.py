"""GPU names and links as runs write them."""

import pytest

from costmodel.errors import InputError
from planner.accuracy.hardware import cluster_of, device_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("H100-SXM-96GB-HBM2e-500W", "h100-sxm-96gb-hbm2e"),
        ("GB200", "gb200"),
        ("h100-sxm", "h100-sxm"),
    ],
)
def test_spellings_of_one_card_are_matched_exactly(text: str, name: str) -> None:
    assert device_name(text) == name


def test_a_part_of_a_name_never_matches() -> None:
    with pytest.raises(InputError, match="is no GPU of the catalog"):
        device_name("SUPER-V100-SXM2-32GB200")


def test_a_name_that_leaves_the_card_open_counts_only_in_a_node_of_eight() -> None:
    assert device_name("H100", 8) == "h100-sxm"
    with pytest.raises(InputError, match="leaves open"):
        device_name("H100", 4)


@pytest.mark.parametrize(
    ("text", "kind", "per_gpu"),
    [
        ("8x HDR IB 200Gbps", "infiniband", 25e9),
        ("800Gbps per node (4x HDR)", "infiniband", 12.5e9),
        ("RoCE 1600Gbps/node", "roce", 25e9),
        ("RDMA 400Gbps/GPU", "roce", 50e9),
        ("4x Omni-Path/node", "omnipath", 6.25e9),
        ("8x 50GB/s InfiniBand", "infiniband", 50e9),
        ("100Gb/s EDR InfiniBand per node", "infiniband", 1.5625e9),
    ],
)
def test_networks_are_read_per_node_per_gpu_or_per_port(
    text: str, kind: str, per_gpu: float
) -> None:
    network = cluster_of("a100-sxm-80gb", 64, 8, "", text).levels[-1]
    assert network.kind == kind
    assert network.bandwidth_bytes_per_s == pytest.approx(per_gpu)


def test_a_smaller_node_shares_its_network_among_fewer_gpus() -> None:
    eight, four = (cluster_of("h100-sxm", 64, size).levels[-1] for size in (8, 4))
    assert four.bandwidth_bytes_per_s == 2 * eight.bandwidth_bytes_per_s
