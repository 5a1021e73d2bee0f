"""Prices of collectives against nccl-tests and the laws they must keep."""

import pytest

from costmodel.catalog import cluster
from costmodel.communication import comm_seconds
from costmodel.constants import fitted, priors
from costmodel.events import Collective, CommEvent


def bus_bandwidth(name: str, ranks: int, size: int) -> float:
    """Return nccl-tests' bus bandwidth of an all-reduce inside one node, in GB/s."""
    event = CommEvent(
        collective="all_reduce", bytes=size, group_size=ranks, per_node=ranks, level=0
    )
    time = comm_seconds(event, cluster(name), priors())
    return 2 * (ranks - 1) / ranks * size / time / 1e9


@pytest.mark.parametrize(
    ("name", "ranks", "mebibytes", "measured"),
    [  # vTrain's nccl-tests tables (VIA-Research/vTrain f8dda84, MIT), GB/s
        ("dgx-a100-80gb", 8, 1024, 229.2),
        ("dgx-a100-80gb", 8, 64, 202.5),
        ("dgx-a100-80gb", 8, 16, 126.3),
        ("dgx-a100-80gb", 4, 256, 208.7),
        ("dgx-a100-80gb", 2, 256, 184.4),
        ("dgx-a100-80gb", 2, 1, 23.2),
        ("dgx-1", 8, 1024, 134.4),
        ("dgx-1", 2, 256, 22.5),
    ],
)
def test_all_reduce_inside_a_node_meets_nccl_tests(
    name: str, ranks: int, mebibytes: int, measured: float
) -> None:
    assert bus_bandwidth(name, ranks, mebibytes << 20) == pytest.approx(measured, rel=0.25)


def seconds(collective: Collective, size: int, ranks: int, per_node: int, level: int) -> float:
    event = CommEvent(
        collective=collective, bytes=size, group_size=ranks, per_node=per_node, level=level
    )
    return comm_seconds(event, cluster("dgx-h100", 64), fitted())


def test_one_rank_or_nothing_to_send_takes_no_time() -> None:
    assert seconds("all_reduce", 1 << 30, 1, 1, 0) == 0.0
    assert seconds("all_gather", 0, 8, 8, 0) == 0.0


def test_a_group_with_more_ranks_in_a_node_shares_more_network_interfaces() -> None:
    """Eight groups of one rank a node share the node's ports; one group of eight has them all."""
    one, eight = seconds("all_reduce", 1 << 30, 8, 1, 1), seconds("all_reduce", 1 << 30, 64, 8, 1)
    assert eight < one / 4


def test_leaving_the_node_is_never_faster() -> None:
    assert seconds("all_gather", 1 << 26, 8, 4, 1) > seconds("all_gather", 1 << 26, 8, 8, 0)


def test_an_all_reduce_costs_no_more_than_its_two_halves() -> None:
    halves = seconds("reduce_scatter", 1 << 28, 8, 8, 0) + seconds("all_gather", 1 << 28, 8, 8, 0)
    assert seconds("all_reduce", 1 << 28, 8, 8, 0) <= halves * 1.001


@pytest.mark.parametrize(
    "collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
)
def test_more_bytes_take_longer(collective: Collective) -> None:
    times = [seconds(collective, 1 << power, 16, 8, 1) for power in range(10, 32, 3)]
    assert times == sorted(times)


def test_the_latency_of_a_ring_grows_with_its_ranks() -> None:
    times = [seconds("all_gather", 1024, 8 * nodes, 8, 1) for nodes in (2, 4, 8)]
    assert times == sorted(times)
    assert times[-1] > 2 * times[0]
