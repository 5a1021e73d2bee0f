"""A cluster of several device groups: what fits where, and what the assignment of pipeline ranks to groups must keep."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from costmodel.spec import ClusterSpec
from costmodel.strategy import Strategy
from planner.plans import Placement
from planner.scenario import Scenario


def is_mixed(cluster: ClusterSpec) -> bool:
    """Return whether the cluster has several device groups."""
    return len(cluster.groups) > 1


def subset_sizes(cluster: ClusterSpec) -> tuple[int, ...]:
    """Return the numbers of GPUs of every choice of groups, rising: a plan uses whole groups."""
    sizes = [group.gpus for group in cluster.groups]
    return tuple(
        sorted(
            {
                sum(chosen)
                for count in range(1, len(sizes) + 1)
                for chosen in combinations(sizes, count)
            }
        )
    )


def slots(cluster: ClusterSpec, strategy: Strategy) -> tuple[int, ...]:
    """Return how many pipeline ranks of ``strategy`` each group can hold."""
    each = strategy.tp * strategy.cp * strategy.dp
    return tuple(group.gpus // each for group in cluster.groups)


def default_groups(cluster: ClusterSpec, strategy: Strategy) -> tuple[int, ...]:
    """Return an assignment that fills the groups in their order; empty where they cannot hold all ranks."""
    filled = [group for group, count in enumerate(slots(cluster, strategy)) for _ in range(count)]
    return tuple(filled[: strategy.pp]) if len(filled) >= strategy.pp else ()


def broken_groups(
    placement: Placement, strategy: Strategy, cluster: ClusterSpec
) -> Iterator[tuple[str, str]]:
    """Yield rule and text of everything that is wrong with the device groups of a placement.

    A cluster of one group needs no assignment; in a mixed one only a strategy without a pipeline may do without, and
    only where no group has room for it.
    """
    groups = placement.device_groups
    if not groups:
        held = is_mixed(cluster) and (strategy.pp > 1 or any(slots(cluster, strategy)))
        if held:
            yield "device_groups", f"no device groups for {strategy.pp} pipeline ranks"
        return
    if len(groups) != strategy.pp:
        yield "device_groups", f"{len(groups)} device groups for {strategy.pp} pipeline ranks"
    for group in sorted(set(groups)):
        if not 0 <= group < len(cluster.groups):
            yield "device_groups", f"device group {group} of {len(cluster.groups)}"
            continue
        room, asked = slots(cluster, strategy)[group], groups.count(group)
        if asked > room:
            name = cluster.groups[group].device.name
            yield "group_capacity", f"{asked} pipeline ranks on {name}, which has room for {room}"


def limits_bytes(scenario: Scenario, device_groups: Sequence[int]) -> tuple[float, ...]:
    """Return what each pipeline rank may hold per GPU: the scenario's limit, and what its device can hold."""
    devices = [scenario.cluster.groups[group].device for group in device_groups]
    return tuple(min(scenario.memory_limit_bytes, device.usable_bytes) for device in devices)


def spread_limit_bytes(scenario: Scenario) -> float:
    """Return what a GPU may hold under a strategy that is spread over all groups; with one group, the limit."""
    if not is_mixed(scenario.cluster):
        return scenario.memory_limit_bytes
    every = range(len(scenario.cluster.groups))
    return min(scenario.memory_limit_bytes, *limits_bytes(scenario, every))


def plan_limit_bytes(scenario: Scenario, device_groups: Sequence[int]) -> float:
    """Return the largest limit among the groups of a plan's ranks; the least of all where it is spread over them."""
    return max(limits_bytes(scenario, device_groups), default=spread_limit_bytes(scenario))
