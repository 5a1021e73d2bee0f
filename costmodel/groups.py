"""Where the groups of each degree stand on the ranks: their size, their ranks per node and the links they cross.

Ranks are numbered with the first degree of ``placement_order`` varying fastest (Megatron's rule, default
tp-cp-ep-dp-pp) and nodes are filled in rank order. ``ep`` takes its ranks from ``cp`` and ``dp``, so it has no
stride of its own: expert groups are consecutive ranks beyond tensor parallelism.
"""

from dataclasses import dataclass
from itertools import takewhile

from costmodel.errors import InputError
from costmodel.lanes import highest, lowest, pick
from costmodel.spec import ClusterSpec
from costmodel.strategy import Strategy

_DEGREES = ("tp", "cp", "dp", "pp")


@dataclass(frozen=True, slots=True)
class Group:
    """A communication group.

    Attributes:
        size: Ranks in it.
        per_node: How many of them share a node.
        level: Index of the outermost link level it crosses.
    """

    size: int
    per_node: int
    level: int


def domain(cluster: ClusterSpec) -> int:
    """Return the GPUs that reach each other without the network: a node, or a larger NVLink domain."""
    return max(cluster.gpus_per_node, cluster.levels[0].gpus)


def group_of(cluster: ClusterSpec, size: int, stride: int) -> Group:
    """Return the group of ``size`` ranks that are ``stride`` ranks apart.

    ``per_node`` counts the ranks inside one network-free domain (``domain``).
    """
    per_node = highest(1, lowest(size, domain(cluster) // stride))
    return Group(size, per_node, _level(cluster, (size - 1) * stride + 1))


def _level(cluster: ClusterSpec, span: int) -> int:
    """Return the first level whose domain joins ``span`` consecutive ranks."""
    index, beyond = 0, True
    for level in takewhile(lambda level: level.gpus > 0, cluster.levels[:-1]):
        beyond = beyond & (span > level.gpus)
        index = index + beyond
    return index


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of a strategy; ``shard`` and ``replicate`` are those of ZeRO and FSDP.

    Attributes:
        tp, cp, ep, dp: Groups of those degrees; ``dp`` holds the ``dp * cp`` ranks that share gradients.
        expert_dp: Ranks that hold the same experts.
        shard: Ranks that one copy of the sharded state is spread over.
        replicate: Ranks that hold the same shard.
        ends: The first and the last pipeline rank.
    """

    tp: Group
    cp: Group
    ep: Group
    dp: Group
    expert_dp: Group
    shard: Group
    replicate: Group
    ends: Group


def strides(strategy: Strategy) -> dict[str, int]:
    """Return the distance in ranks between neighbours of each degree.

    Raises:
        InputError: If the placement order does not name each degree once.
    """
    order = [name for name in strategy.placement_order.split("-") if name != "ep"]
    if sorted(order) != sorted(_DEGREES):
        raise InputError(
            "must name tp, cp, dp and pp once",
            key="placement_order",
            value=strategy.placement_order,
            nearest="tp-cp-ep-dp-pp",
        )
    result, stride = {}, 1
    for name in order:
        result[name] = stride
        stride = stride * getattr(strategy, name)
    return result


def groups(cluster: ClusterSpec, strategy: Strategy) -> Groups:
    """Return all groups of ``strategy`` on ``cluster``."""
    stride = strides(strategy)
    data = strategy.dp * strategy.cp
    near = pick(strategy.cp > 1, lowest(stride["cp"], stride["dp"]), stride["dp"])
    shard = strategy.sharding_ranks
    return Groups(
        tp=group_of(cluster, strategy.tp, stride["tp"]),
        cp=group_of(cluster, strategy.cp, stride["cp"]),
        ep=group_of(cluster, strategy.ep, strategy.etp),
        dp=group_of(cluster, data, near),
        expert_dp=group_of(cluster, strategy.expert_dp, strategy.etp * strategy.ep),
        shard=group_of(cluster, shard, near),
        replicate=group_of(cluster, highest(1, data // shard), near * shard),
        ends=group_of(cluster, lowest(2, strategy.pp), stride["pp"] * highest(1, strategy.pp - 1)),
    )


def boundary_levels(cluster: ClusterSpec, strategy: Strategy) -> tuple[int, ...]:
    """Return the link level between each pipeline rank and the next; the last entry wraps around."""
    if strategy.pp == 1:
        return ()
    stride = strides(strategy)["pp"]
    return tuple(
        max(
            _crossing(cluster, *_neighbours(stride, strategy.pp, rank, offset))
            for offset in (0, stride - 1)
        )
        for rank in range(strategy.pp)
    )


def _neighbours(stride: int, pp: int, rank: int, offset: int) -> tuple[int, int]:
    return rank * stride + offset, (rank + 1) % pp * stride + offset


def _crossing(cluster: ClusterSpec, one: int, other: int) -> int:
    levels = cluster.levels
    for index, level in enumerate(levels):
        if level.gpus == 0 or one // level.gpus == other // level.gpus:
            return index
    return len(levels) - 1
