"""Interleaved strategies, and frameworks that only split evenly, on several device groups: planner.even_search for groups.

All even placements of a strategy are bounded at once, each with the fewest recomputed layers; then one at a time is
simulated, while it is the most promising of the search.
"""

import numpy as np
from numpy.typing import NDArray

from costmodel.simulator import iteration_ns
from planner.candidate import Tier
from planner.coefficients import Arrangement, Ints, Linear
from planner.even_bounds import applies_to
from planner.even_placements import Fitting
from planner.even_rows import even_rows
from planner.even_search import settle_rest
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
    settle_rest(candidate, candidate.choices)


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


class _Fitting(Fitting):
    """Each rank has the prices and the limit of its group.

    Attributes:
        groups: By placement and rank.
    """

    def __init__(self, given: MixedCoefficients, assigned: tuple[Assignment, ...]) -> None:
        cuts = np.array([item.cuts for item in assigned], dtype=np.int64)
        super().__init__(given.shape, cuts, recompute_all=given.recompute_all)
        self._given = given
        self.groups: Ints = np.array([item.groups for item in assigned], dtype=np.int64)

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        super().keep(chosen)
        self.groups = self.groups[chosen]

    def over(self, counts: Ints) -> NDArray[np.bool_]:
        over = np.zeros(counts.shape, dtype=np.bool_)
        for group, item in enumerate(self._given.by_group):
            contents = item.contents(self.cuts, self.again(counts))
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
