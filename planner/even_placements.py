"""The even placements of one strategy that fit, each with the fewest recomputed layers and a bound of its iteration."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.coefficients import Arrangement, Coefficients, Ints
from planner.even_bounds import applies_to
from planner.even_rows import even_rows


class EvenPlacement(NamedTuple):
    """A placement that fits and a lower bound of its iteration."""

    bound_ns: int
    arrangement: Arrangement


def even_placements(given: Coefficients, cuts: Sequence[Sequence[int]]) -> list[EvenPlacement]:
    """Return the placements with these cuts that fit, the smallest bound last, equal ones in reverse order.

    All chunks of a rank recompute equally many layers, or all of theirs where they have fewer.
    """
    if not cuts:
        return []
    fitting = _Fitting(given, np.array(cuts, dtype=np.int64))
    again = fitting.recomputed()
    bounds = _bounds(given, fitting.cuts, again) if len(fitting.cuts) else []
    rows = zip(bounds, fitting.cuts.tolist(), again.tolist(), strict=True)
    found = [EvenPlacement(bound, Arrangement(tuple(a), tuple(b))) for bound, a, b in rows]
    found.sort(key=lambda item: item.bound_ns)
    return found[::-1]


def with_recomputation(given: Coefficients, cuts: Sequence[int]) -> Arrangement | None:
    """Return the placement with the fewest recomputed layers that fits; None if none does."""
    found = even_placements(given, [cuts])
    return found[0].arrangement if found else None


def _bounds(given: Coefficients, cuts: Ints, again: Ints) -> list[int]:
    if not applies_to(given.shape.schedule):
        return [0] * len(cuts)
    shape = given.shape
    contents = given.contents(cuts, again)
    by_rank = (len(cuts), shape.chunks, shape.ranks)
    bounds = even_rows(
        given.forward.values(*contents).reshape(by_rank),
        given.backward.values(*contents).reshape(by_rank),
        given.finishes(*contents),
        np.array(given.transfer_ns, dtype=np.int64),
        np.array(shape.microbatches),
    )
    return [int(bound) for bound in bounds]


class _Fitting:
    """Finds the fewest recomputed layers of all ranks of all placements at once.

    Attributes:
        cuts: By placement and cut; those that cannot fit are dropped on the way.
        sizes: Layers by placement, chunk and rank.
    """

    def __init__(self, given: Coefficients, cuts: Ints) -> None:
        self.given = given
        self._keep(cuts)

    def _keep(self, cuts: Ints) -> None:
        by_rank = (len(cuts), self.given.shape.chunks, self.given.shape.ranks)
        self.cuts, self.sizes = cuts, np.diff(cuts, axis=1).reshape(by_rank)

    def recomputed(self) -> Ints:
        """Return recomputed layers by placement and virtual stage."""
        everything = self.given.recompute_all
        most = self.sizes.max(axis=1)
        low = np.where(everything, most, 0)
        over = self._over(low)
        if not over.any():
            return self._again(low)
        high = np.where(over, most, low)
        fits = ~(over if everything else self._over(high)).any(axis=1)
        self._keep(self.cuts[fits])
        low, high = (low + over)[fits], high[fits]
        while (low < high).any():
            middle = (low + high) // 2
            fit = ~self._over(middle)
            low, high = np.where(fit | (low >= high), low, middle + 1), np.where(fit, middle, high)
        return self._again(low)

    def _again(self, counts: Ints) -> Ints:
        """Return recomputed layers by virtual stage for counts by rank."""
        return np.minimum(self.sizes, counts[:, None, :]).reshape(
            len(counts), self.cuts.shape[1] - 1
        )

    def _over(self, counts: Ints) -> NDArray[np.bool_]:
        """Return which ranks exceed the limit at some moment."""
        contents = self.given.contents(self.cuts, self._again(counts))
        demands = self.given.demands_of(*contents)
        return np.asarray(demands.max(axis=1) > self.given.limit_kib)
