"""The even placements of one strategy that fit, each with the fewest recomputed layers and a bound of its iteration."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.schedules import Shape
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


class Fitting(ABC):
    """Finds the fewest recomputed layers of all ranks of all placements at once.

    Attributes:
        cuts: By placement and cut; those that cannot fit are dropped on the way.
        sizes: Layers by placement, chunk and rank.
    """

    def __init__(self, shape: Shape, cuts: Ints, *, recompute_all: bool) -> None:
        self._shape, self._everything = shape, recompute_all
        self._set(cuts)

    def _set(self, cuts: Ints) -> None:
        by_rank = (len(cuts), self._shape.chunks, self._shape.ranks)
        self.cuts, self.sizes = cuts, np.diff(cuts, axis=1).reshape(by_rank)

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        """Drop the other placements."""
        self._set(self.cuts[chosen])

    @abstractmethod
    def over(self, counts: Ints) -> NDArray[np.bool_]:
        """Return which ranks exceed their limit at some moment when each recomputes ``counts`` layers of every chunk."""

    def recomputed(self) -> Ints:
        """Return recomputed layers by placement and virtual stage."""
        most = self.sizes.max(axis=1)
        low = np.where(self._everything, most, 0)
        over = self.over(low)
        if not over.any():
            return self.again(low)
        high = np.where(over, most, low)
        fits = np.asarray(~(over if self._everything else self.over(high)).any(axis=1))
        self.keep(fits)
        low, high = (low + over)[fits], high[fits]
        while (low < high).any():
            middle = (low + high) // 2
            fit = ~self.over(middle)
            low, high = np.where(fit | (low >= high), low, middle + 1), np.where(fit, middle, high)
        return self.again(low)

    def again(self, counts: Ints) -> Ints:
        """Return recomputed layers by virtual stage for counts by rank."""
        again = np.minimum(self.sizes, counts[:, None, :])
        return again.reshape(len(counts), self.cuts.shape[1] - 1)


class _Fitting(Fitting):
    """All ranks have the same prices and limit."""

    def __init__(self, given: Coefficients, cuts: Ints) -> None:
        super().__init__(given.shape, cuts, recompute_all=given.recompute_all)
        self._given = given

    def over(self, counts: Ints) -> NDArray[np.bool_]:
        contents = self._given.contents(self.cuts, self.again(counts))
        demands = self._given.demands_of(*contents)
        return np.asarray(demands.max(axis=1) > self._given.limit_kib)
