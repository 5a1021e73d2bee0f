"""Which nodes each run gets: the lowest free ones, as ranges."""

import heapq
from collections.abc import Sequence

from planner.pool.instance import Block, Instance

NodeRange = tuple[int, int]


def assign_nodes(
    instance: Instance, runs: Sequence[Sequence[Block]]
) -> list[tuple[NodeRange, ...]]:
    """Return for each run the half-open ranges of nodes of its group.

    A schedule whose nodes never sum to more than the group has can always be served so, as a run may take any
    free nodes.
    """
    free = [list(range(capacity)) for capacity in instance.capacities]
    running: list[tuple[int, int, list[int]]] = []
    taken: dict[int, tuple[NodeRange, ...]] = {}
    for place in sorted(range(len(runs)), key=lambda p: (runs[p][0].start, p)):
        first, group = runs[place][0], runs[place][0].mode.group
        while running and running[0][0] <= first.start:
            _, owner, nodes = heapq.heappop(running)
            for node in nodes:
                heapq.heappush(free[runs[owner][0].mode.group], node)
        own = [heapq.heappop(free[group]) for _ in range(first.mode.nodes)]
        heapq.heappush(running, (runs[place][-1].end, place, own))
        taken[place] = _ranges(own)
    return [taken[place] for place in range(len(runs))]


def _ranges(nodes: Sequence[int]) -> tuple[NodeRange, ...]:
    """Join rising node numbers to ranges."""
    ranges: list[NodeRange] = []
    for node in nodes:
        if ranges and ranges[-1][1] == node:
            ranges[-1] = (ranges[-1][0], node + 1)
        else:
            ranges.append((node, node + 1))
    return tuple(ranges)
