"""Where the groups of each degree stand on the ranks."""

from costmodel.catalog import cluster
from costmodel.groups import Group, boundary_levels, groups, strides
from costmodel.strategy import Strategy


def test_tensor_parallel_ranks_are_neighbours_and_data_parallel_ones_a_stride_apart() -> None:
    found = groups(cluster("dgx-h100", 64), Strategy(tp=4, dp=8, pp=2))
    assert found.tp == Group(4, 4, 0)
    assert found.dp == Group(8, 2, 1)
    assert found.ends == Group(2, 1, 1)


def test_context_and_data_parallel_ranks_share_gradients() -> None:
    found = groups(cluster("dgx-h100", 64), Strategy(tp=2, cp=4, dp=8))
    assert (found.cp, found.dp.size, found.dp.per_node) == (Group(4, 4, 0), 32, 4)


def test_expert_parallel_ranks_are_taken_from_the_data_parallel_ones() -> None:
    found = groups(cluster("dgx-h100", 64), Strategy(tp=2, etp=1, dp=32, ep=8))
    assert found.ep == Group(8, 8, 0)
    assert found.expert_dp.size == 8


def test_a_rack_of_nvlink_is_one_domain_for_its_groups() -> None:
    found = groups(cluster("gb200-nvl72", 72), Strategy(tp=8, dp=9))
    assert found.tp == Group(8, 8, 0)
    assert found.dp.level == 0


def test_boundaries_know_which_link_they_cross() -> None:
    """Four stages of four ranks on two nodes of eight: only the middle boundary and the wrap leave a node."""
    assert boundary_levels(cluster("dgx-h100", 16), Strategy(tp=4, pp=4)) == (0, 1, 0, 1)


def test_the_placement_order_decides_the_strides() -> None:
    assert strides(Strategy(tp=2, dp=4, pp=2, placement_order="tp-pp-cp-ep-dp")) == {
        "tp": 1,
        "pp": 2,
        "cp": 4,
        "dp": 4,
    }
