"""Strategies whose placements are few: interleaving, and frameworks that only split evenly.

All placements are bounded at once; then one at a time is simulated, while it is the most promising of the search.
"""

import math
from collections.abc import Sequence
from typing import Protocol

from costmodel.simulator import iteration_ns
from planner.candidate import Candidate, Tier
from planner.even_bounds import even_cuts
from planner.even_placements import even_placements
from planner.local_search import Incumbent


class Bounded(Protocol):
    """A placement with a lower bound of its iteration."""

    @property
    def bound_ns(self) -> int:
        """No iteration with it is shorter."""


def bound_even(candidate: Candidate, *, uneven: bool) -> bool:
    """Bound the even placements of ``candidate`` that fit; return whether there are any."""
    shape = candidate.given.shape
    cuts = even_cuts(len(candidate.given.layer_kinds), shape.ranks * shape.chunks, uneven)
    candidate.even = even_placements(candidate.given, cuts)
    if not candidate.even:
        return False
    candidate.lower_ns = max(candidate.lower_ns, candidate.even[-1].bound_ns)
    candidate.tier = Tier.PLACED
    return True


def simulate_even(candidate: Candidate) -> None:
    """Simulate the even placement with the smallest bound; close ``candidate`` if no other can be faster."""
    arrangement = candidate.even.pop().arrangement
    candidate.simulated += 1
    time_ns = iteration_ns(candidate.given.work(arrangement))
    if candidate.time_ns is None or time_ns < candidate.time_ns:
        candidate.placed = arrangement
        candidate.incumbent = Incumbent(cuts=arrangement.cuts, time_ns=time_ns)
    settle_rest(candidate, candidate.even)


def settle_rest(candidate: Candidate, left: Sequence[Bounded]) -> None:
    """Close a simulated candidate if none of the placements ``left``, smallest bound last, can be faster."""
    best_ns = candidate.time_ns or 0
    left_ns = left[-1].bound_ns if left else math.inf
    if left_ns >= best_ns:
        candidate.close(best_ns)
    else:
        candidate.lower_ns = max(candidate.lower_ns, int(left_ns))
