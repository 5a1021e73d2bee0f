"""The best placement of one given strategy, with its proof."""

import math
import time
from typing import NamedTuple

from planner.candidate import Candidate, Tier, settle_bound, settle_placement
from planner.coefficients import Arrangement, Coefficients
from planner.even_search import bound_even, simulate_even
from planner.proof import prove


class BestPlacement(NamedTuple):
    """A placement, its simulated iteration, and a time that no placement of the strategy beats."""

    arrangement: Arrangement
    iteration_ns: int
    lower_bound_ns: int


def best_placement(
    given: Coefficients,
    *,
    tolerance: float = 0.0,
    time_limit_s: float | None = None,
    uneven: bool = True,
) -> BestPlacement | None:
    """Return the fastest placement of a strategy that fits its memory limit; None if none does."""
    deadline = math.inf if time_limit_s is None else time.monotonic() + time_limit_s
    candidate = Candidate(row=0, given=given, lower_ns=0)
    if given.shape.chunks > 1 or not uneven:
        bound_even(candidate, uneven=uneven)
        while candidate.tier is Tier.PLACED:
            simulate_even(candidate)
    elif settle_bound(candidate, None) and candidate.tier is Tier.PLACED:
        settle_placement(candidate, tolerance, [])
        if not prove(candidate, tolerance, math.inf, deadline):
            prove(candidate, tolerance, math.inf, deadline)
    if candidate.arrangement is None or candidate.time_ns is None:
        return None
    lower = min(candidate.lower_ns, candidate.time_ns)
    return BestPlacement(candidate.arrangement, candidate.time_ns, lower)
