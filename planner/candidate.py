"""One strategy on its way through the search: from a bound to a placement that is simulated and proved."""

import enum
from dataclasses import dataclass, field

from costmodel.simulator import iteration_ns
from costmodel.timeline import CriticalPath
from planner.coefficients import Arrangement, Coefficients
from planner.even_bounds import even_cuts
from planner.even_placements import EvenPlacement
from planner.local_search import Incumbent
from planner.placement_dp import placement_bound
from planner.plans import Placement
from planner.stage_values import StageValues


class Tier(enum.IntEnum):
    """What is known of a candidate; each step costs more than the one before."""

    BOUNDED = 0
    PLACED = 1
    OPEN = 2
    REFINED = 3
    CLOSED = 4


@dataclass(slots=True, kw_only=True)
class Candidate:
    """A strategy in the search.

    Attributes:
        row: Its row in the columns.
        given: Its coefficients.
        lower_ns: No placement of it is faster.
        tier: What comes next.
        values: Stage values, for strategies with one chunk a rank and free cuts.
        incumbent: Best placement so far, with its critical paths.
        even: For strategies with even placements those not simulated yet, the most promising last.
        placed: Where the bound, or even splitting, would place the layers.
        paths: Critical paths known for its shape; shared between candidates.
        simulated: Simulations spent on it.
        solved: Solver calls spent on it.
        hard: Whether too much is left below the goal for a proof.
    """

    row: int
    given: Coefficients
    lower_ns: int
    tier: Tier = Tier.BOUNDED
    values: StageValues | None = None
    incumbent: Incumbent | None = None
    even: list[EvenPlacement] = field(default_factory=list)
    placed: Arrangement | None = None
    paths: dict[CriticalPath, None] = field(default_factory=dict)
    simulated: int = 0
    solved: int = 0
    hard: bool = False

    @property
    def time_ns(self) -> int | None:
        """Simulated iteration of the best placement so far; None while there is none."""
        return self.incumbent.time_ns if self.incumbent else None

    @property
    def arrangement(self) -> Arrangement | None:
        """Best placement so far with its recomputation."""
        if self.values is None or self.incumbent is None:
            return self.placed
        return self.values.arrangement(self.incumbent.cuts)

    def placement(self, arrangement: Arrangement) -> Placement:
        """Return the best placement as the plan shows it."""
        return arrangement.placement()

    def peak_kib(self, arrangement: Arrangement) -> int:
        """Return the KiB of the fullest rank."""
        return self.given.peak_kib(arrangement)

    def close(self, lower_ns: int) -> None:
        """Record that nothing below ``lower_ns`` remains to be found."""
        self.lower_ns = max(self.lower_ns, lower_ns)
        self.tier = Tier.CLOSED


def settle_bound(candidate: Candidate, cutoff_ns: int | None) -> bool:
    """Bound ``candidate`` over all its cuts; return whether a placement within the cutoff may exist.

    Without a cutoff, the balanced placement gives one.
    """
    values = candidate.values = StageValues(candidate.given)
    if cutoff_ns is None:
        _try_balanced(candidate, values)
    own = candidate.time_ns
    limit = own if cutoff_ns is None else cutoff_ns
    found = placement_bound(candidate.given, limit, candidate.lower_ns)
    if found is None:
        if limit is not None:
            candidate.close(limit)
        return limit is not None
    candidate.lower_ns = max(candidate.lower_ns, found.bound_ns)
    candidate.tier = Tier.PLACED
    candidate.placed = found.arrangement
    return True


def _try_balanced(candidate: Candidate, values: StageValues) -> None:
    given = candidate.given
    for cuts in even_cuts(len(given.layer_kinds), given.shape.ranks, uneven=True):
        consider(candidate, values, cuts)


def consider(candidate: Candidate, values: StageValues, cuts: tuple[int, ...]) -> None:
    """Simulate a placement and keep it if it is the best."""
    work = values.work(cuts)
    if work is None:
        return
    candidate.simulated += 1
    time_ns = iteration_ns(work)
    known = candidate.incumbent
    if known is None:
        candidate.incumbent = Incumbent(cuts=cuts, time_ns=time_ns, paths=candidate.paths)
    elif time_ns < known.time_ns:
        known.cuts, known.time_ns = cuts, time_ns


def settle_placement(candidate: Candidate, others: list[tuple[int, ...]]) -> None:
    """Simulate the placement of the bound, and those that were best for strategies of the same shape.

    Neighbours are left to the proof, which seldom needs them.
    """
    values, placed = candidate.values, candidate.placed
    if values is None or placed is None:
        raise ValueError("a candidate is placed only after it was bounded")
    for cuts in dict.fromkeys([placed.cuts, *others]):
        consider(candidate, values, cuts)
    candidate.tier = Tier.OPEN
