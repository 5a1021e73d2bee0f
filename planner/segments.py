"""Cutting a sequence into consecutive parts so that the largest part is as small as possible."""

from collections.abc import Sequence
from itertools import accumulate, pairwise


def min_max_segments(costs: Sequence[float], parts: int) -> tuple[int, ...]:
    """Return the positions that cut ``costs`` into ``parts`` non-empty parts with the least largest sum.

    Dynamic programming over prefixes (Karakus et al., arXiv 2111.05972, equations 2 and 3; torchgpipe.balance solves
    the same problem approximately). Of equally good cuts the first parts are the longest.

    Args:
        costs: Not negative, in order.
        parts: At most as many as there are costs.

    Raises:
        ValueError: If there are fewer costs than parts.
    """
    if not 1 <= parts <= len(costs):
        raise ValueError(f"{len(costs)} items do not make {parts} parts")
    sums = [0.0, *accumulate(costs)]
    items = range(len(costs) + 1)
    best, back = list(sums), []
    for part in range(2, parts + 1):
        row, choice = [float("inf")] * len(sums), [0] * len(sums)
        for stop in items[part:]:
            row[stop], start = min(
                (max(best[start], sums[stop] - sums[start]), -start)
                for start in range(part - 1, stop)
            )
            choice[stop] = -start
        best = row
        back.append(choice)
    cuts = [len(costs)]
    for choice in reversed(back):
        cuts.append(choice[cuts[-1]])
    return (0, *reversed(cuts))


def segment_costs(costs: Sequence[float], cuts: Sequence[int]) -> tuple[float, ...]:
    """Return the sum of each part that ``cuts`` makes."""
    return tuple(sum(costs[a:b]) for a, b in pairwise(cuts))
