"""Interleaved strategies, and frameworks that only split evenly, on several device groups: planner.even_search for groups.

All even placements of a strategy are bounded at once, each with the fewest recomputed layers; then one at a time is
simulated, while it is the most promising of the search.
"""

import math

import numpy as np
from numpy.typing import NDArray

from costmodel.simulator import iteration_ns
from planner.candidate import Tier
from planner.coefficients import Arrangement, Ints, Linear
from planner.even_bounds import applies_to
from planner.even_rows import even_rows
from planner.mixed.candidate import MixedCandidate
from planner.mixed.coefficients import Assignment, EvenChoice, MixedCoefficients
from planner.mixed.even_bounds import even_assignments


def bound_mixed_even(candidate: MixedCandidate, *, uneven: bool) -> bool:
    """Bound the even placements of ``candidate`` that fit; return whether there are any."""
    candidate.choices = even_choices(candidate.mixed, placements(candidate.mixed, uneven=uneven))
    if not candidate.choices:
        return False
    candidate.lower_ns = max(candidate.lower_ns, candidate.choices[-1].bound_ns)
    candidate.tier = Tier.PLACED
    return True


def simulate_mixed_even(candidate: MixedCandidate) -> None:
    """Simulate the even placement with the smallest bound; close ``candidate`` if no other can be faster."""
    chosen = candidate.choices.pop()
    candidate.simulated += 1
    time_ns = iteration_ns(candidate.mixed.work(chosen.arrangement, chosen.groups))
    if candidate.time_ns is None or time_ns < candidate.time_ns:
        candidate.placed = chosen.arrangement
    candidate.take(Assignment(chosen.arrangement.cuts, chosen.groups), time_ns)
    best_ns = candidate.time_ns or time_ns
    left_ns = candidate.choices[-1].bound_ns if candidate.choices else math.inf
    if left_ns >= best_ns:
        candidate.close(best_ns)
    else:
        candidate.lower_ns = max(candidate.lower_ns, int(left_ns))


def placements(given: MixedCoefficients, *, uneven: bool) -> tuple[Assignment, ...]:
    """Return the even placements of a strategy with their groups, whatever their memory."""
    shape = given.shape
    return even_assignments(given.layers, shape.ranks, shape.chunks, given.slots, uneven=uneven)


def even_choices(given: MixedCoefficients, assigned: tuple[Assignment, ...]) -> list[EvenChoice]:
    """Return the placements that fit, the smallest bound last, equal ones in reverse order.

    All chunks of a rank recompute equally many layers, or all of theirs where they have fewer.
    """
    if not assigned:
        return []
    fitting = _Fitting(given, assigned)
    again = fitting.recomputed()
    if not len(fitting.cuts):
        return []
    rows = zip(
        _bounds(given, fitting, again),
        fitting.cuts.tolist(),
        again.tolist(),
        fitting.groups.tolist(),
        strict=True,
    )
    found = [EvenChoice(n, Arrangement(tuple(a), tuple(b)), tuple(g)) for n, a, b, g in rows]
    found.sort(key=lambda item: item.bound_ns)
    return found[::-1]


class _Fitting:
    """Finds the fewest recomputed layers of all ranks of all placements at once.

    Attributes:
        cuts, groups: By placement; those that cannot fit are dropped on the way.
        sizes: Layers by placement, chunk and rank.
    """

    def __init__(self, given: MixedCoefficients, assigned: tuple[Assignment, ...]) -> None:
        self.given = given
        self._keep(
            np.array([item.cuts for item in assigned], dtype=np.int64),
            np.array([item.groups for item in assigned], dtype=np.int64),
        )

    def _keep(self, cuts: Ints, groups: Ints) -> None:
        by_rank = (len(cuts), self.given.shape.chunks, self.given.shape.ranks)
        self.cuts, self.groups = cuts, groups
        self.sizes = np.diff(cuts, axis=1).reshape(by_rank)

    def recomputed(self) -> Ints:
        """Return recomputed layers by placement and virtual stage."""
        most = self.sizes.max(axis=1)
        low = most if self.given.recompute_all else np.zeros_like(most)
        over = self._over(low)
        high = np.where(over, most, low)
        fits = ~self._over(high).any(axis=1)
        self._keep(self.cuts[fits], self.groups[fits])
        low, high = low[fits], high[fits]
        while (low < high).any():
            middle = (low + high) // 2
            fit = ~self._over(middle)
            low, high = np.where(fit | (low >= high), low, middle + 1), np.where(fit, middle, high)
        return self._again(low)

    def _again(self, counts: Ints) -> Ints:
        """Return recomputed layers by virtual stage for counts by rank."""
        again = np.minimum(self.sizes, counts[:, None, :])
        return again.reshape(len(counts), self.cuts.shape[1] - 1)

    def _over(self, counts: Ints) -> NDArray[np.bool_]:
        """Return which ranks exceed the limit of their group at some moment."""
        over = np.zeros(counts.shape, dtype=np.bool_)
        for group, item in enumerate(self.given.by_group):
            contents = item.contents(self.cuts, self._again(counts))
            beyond = item.demands_of(*contents).max(axis=1) > item.limit_kib
            over = np.where(self.groups == group, beyond, over)
        return over


def _bounds(given: MixedCoefficients, fitting: _Fitting, again: Ints) -> list[int]:
    shape, groups = given.shape, fitting.groups
    if not applies_to(shape.schedule):
        return [0] * len(groups)
    held = given.by_group[0].contents(fitting.cuts, again)

    def passes(name: str) -> Ints:
        found = np.zeros((len(groups), shape.chunks, shape.ranks), dtype=np.int64)
        for group, item in enumerate(given.by_group):
            linear: Linear = getattr(item, name)
            times = linear.values(*held).reshape(found.shape)
            found = np.where((groups == group)[:, None, :], times, found)
        return found

    finish = np.zeros(groups.shape, dtype=np.int64)
    for group, item in enumerate(given.by_group):
        finish = np.where(groups == group, item.finishes(*held), finish)
    hops = np.array([given.transfers_ns(tuple(row)) for row in groups.tolist()], dtype=np.int64)
    m = np.array(shape.microbatches)
    rows = even_rows(passes("forward"), passes("backward"), finish, hops, m)
    return [int(bound) for bound in rows]
