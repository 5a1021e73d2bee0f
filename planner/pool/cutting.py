"""Dual feasible functions made to measure: prices of a cutting-stock problem, extended to all sizes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.pool.bound import Weights

# A bin is cut into at most so many units; sizes are rounded down to them, which keeps every row valid.
_UNITS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Whole prices of sizes: what one piece of that size is worth in a bin."""

    of: Mapping[int, int]

    def weights(self, sizes: Sequence[int], bin_size: int) -> Weights:
        """Return the best worth that fits into each of ``sizes``, out of the best that fits into a bin.

        The best worth is superadditive: two fillings side by side are one. So whatever fits into the bin has
        weights that sum to at most the bin's, for any prices.
        """
        unit = units_of(bin_size)
        best = best_worth(self.of, bin_size // unit, unit)
        return Weights(of={size: int(best[size // unit]) for size in sizes}, scale=int(best[-1]))


def units_of(bin_size: int) -> int:
    """Return the ticks of one unit of a bin."""
    return -(-bin_size // _UNITS)


def best_worth(prices: Mapping[int, int], room: int, unit: int) -> NDArray[np.int64]:
    """Return the best worth of a filling of 0, 1, .. ``room`` units; each size may repeat."""
    kept = sorted((size // unit, price) for size, price in prices.items() if size >= unit)
    sizes = np.array([size for size, _ in kept], dtype=np.int64)
    worth = np.array([price for _, price in kept], dtype=np.int64)
    best = np.zeros(room + 1, dtype=np.int64)
    for space in range(1, room + 1):
        fitting = int(np.searchsorted(sizes, space, side="right"))
        best[space] = best[space - 1]
        if fitting:
            filled = best[space - sizes[:fitting]] + worth[:fitting]
            best[space] = max(best[space], filled.max())
    return best


def best_filling(prices: Mapping[int, int], best: NDArray[np.int64], unit: int) -> dict[int, int]:
    """Return how often each size stands in a filling of the last worth of ``best``."""
    filling: dict[int, int] = {}
    space = len(best) - 1
    while best[space]:
        if best[space - 1] == best[space]:
            space -= 1
            continue
        size = next(
            size
            for size, price in prices.items()
            if unit <= size <= space * unit + unit - 1
            and size // unit <= space
            and price
            and best[space - size // unit] + price == best[space]
        )
        filling[size] = filling.get(size, 0) + 1
        space -= size // unit
    return filling
