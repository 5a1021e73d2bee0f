"""One strategy on several device groups on its way through the search: planner.candidate for several groups."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from planner.candidate import Candidate, Tier
from planner.coefficients import Arrangement
from planner.local_search import Incumbent, improve
from planner.mixed.blocks import blocks
from planner.mixed.coefficients import Assignment, EvenChoice, MixedCoefficients
from planner.mixed.rows import MixedRows
from planner.mixed.tables import mixed_tables
from planner.mixed.values import GroupValues, simulated_ns
from planner.plans import Placement
from planner.stage_tables import NEVER

_NEIGHBOURS = 40
"""Neighbours simulated before a proof, as in planner.candidate."""
_SWAPS = 60
"""Exchanges of two ranks' groups simulated before a proof."""


@dataclass(slots=True, kw_only=True)
class MixedCandidate(Candidate):
    """A strategy in the search whose ranks are assigned to groups.

    Attributes:
        mixed: Its coefficients; ``given`` are those of the first group.
        shared: Stage values, for strategies with one chunk a rank and free cuts.
        groups: Group of each rank of the best placement so far.
        assigned: Where the bound would place layers and ranks.
        choices: For strategies with even placements those not simulated yet, the most promising last.
    """

    mixed: MixedCoefficients
    shared: GroupValues | None = None
    groups: tuple[int, ...] = ()
    assigned: Assignment | None = None
    choices: list[EvenChoice] = field(default_factory=list)

    @property
    def arrangement(self) -> Arrangement | None:
        """Best placement so far with its recomputation."""
        if self.shared is None or self.incumbent is None:
            return self.placed
        return self.shared.arrangement(Assignment(self.incumbent.cuts, self.groups))

    def placement(self, arrangement: Arrangement) -> Placement:
        """Return the best placement as the plan shows it."""
        return arrangement.placement(self.groups)

    def peak_kib(self, arrangement: Arrangement) -> int:
        """Return the KiB of the fullest rank."""
        return int(self.mixed.demands_kib(arrangement, self.groups).max())

    def take(self, chosen: Assignment, time_ns: int) -> None:
        """Keep a simulated placement if it is the best."""
        known = self.incumbent
        if known is None:
            self.incumbent = Incumbent(cuts=chosen.cuts, time_ns=time_ns, paths=self.paths)
            self.groups = chosen.groups
        elif time_ns < known.time_ns:
            known.cuts, known.time_ns, self.groups = chosen.cuts, time_ns, chosen.groups

    def consider(self, chosen: Assignment) -> int | None:
        """Simulate a placement, keep it if it is the best, and return its time; None where it does not fit."""
        if self.shared is None:
            raise ValueError("only strategies with one chunk a rank have free cuts")
        time_ns = simulated_ns(self.shared, chosen)
        if time_ns is not None:
            self.simulated += 1
            self.take(chosen, time_ns)
        return time_ns


def settle_mixed_bound(candidate: MixedCandidate, cutoff_ns: int | None) -> bool:
    """Bound ``candidate`` over all cuts and assignments; return whether one within the cutoff may exist."""
    given = candidate.mixed
    candidate.shared = GroupValues(given)
    if cutoff_ns is None:
        for chosen in starts(given):
            candidate.consider(chosen)
    limit = candidate.time_ns if cutoff_ns is None else cutoff_ns
    try:
        tables = mixed_tables(given, int(NEVER) if limit is None else limit)
    except OverflowError:
        candidate.tier = Tier.PLACED
        return True
    rows = None if tables is None else MixedRows(given, tables)
    if rows is None or rows.bound >= (int(NEVER) if limit is None else limit):
        if limit is not None:
            candidate.close(limit)
        return limit is not None
    candidate.lower_ns = max(candidate.lower_ns, rows.bound)
    candidate.tier = Tier.PLACED
    candidate.assigned = rows.assignment()
    # Simulated at once: an early time to beat saves more than it costs.
    candidate.consider(candidate.assigned)
    return True


def settle_mixed_placement(
    candidate: MixedCandidate, tolerance: float, others: Iterable[Assignment]
) -> None:
    """Simulate the placement of the bound, blocks of equal groups and ``others``; search around the best."""
    placed = [] if candidate.assigned is None else [candidate.assigned]
    for chosen in dict.fromkeys([*placed, *others, *starts(candidate.mixed)]):
        if candidate.mixed.holds(chosen.groups):
            candidate.consider(chosen)
    known = candidate.incumbent
    if known is not None and candidate.lower_ns < known.time_ns * (1 - tolerance):
        refine(candidate)
    candidate.tier = Tier.OPEN


def refine(candidate: MixedCandidate, swaps: int = _SWAPS) -> None:
    """Move layers, then exchange the groups of two ranks, until nothing nearby is better."""
    _move_layers(candidate)
    tried = 0
    while candidate.incumbent is not None:
        best = candidate.incumbent.time_ns
        for chosen in _exchanges(candidate.incumbent.cuts, candidate.groups):
            tried += 1
            candidate.consider(chosen)
            if candidate.incumbent.time_ns < best or tried >= swaps:
                break
        if candidate.incumbent.time_ns == best or tried >= swaps:
            return
        _move_layers(candidate)


def _move_layers(candidate: MixedCandidate) -> None:
    known, shared = candidate.incumbent, candidate.shared
    if known is None or shared is None or known.time_ns <= candidate.lower_ns:
        return
    values = shared.on(candidate.groups)
    improve(values, known, simulations=_NEIGHBOURS, goal_ns=candidate.lower_ns)
    candidate.simulated += values.simulated


def _exchanges(cuts: tuple[int, ...], groups: tuple[int, ...]) -> Iterator[Assignment]:
    """Yield the placement with two ranks on different groups exchanged, with their numbers of layers; near ones first."""
    ranks = range(len(groups))
    pairs = [(a, b) for a in ranks for b in ranks if a < b and groups[a] != groups[b]]
    sizes = [stop - start for start, stop in pairwise(cuts)]
    for a, b in sorted(pairs, key=lambda pair: (pair[1] - pair[0], pair)):
        swapped, counts = list(groups), list(sizes)
        swapped[a], swapped[b] = groups[b], groups[a]
        counts[a], counts[b] = sizes[b], sizes[a]
        yield Assignment(_cuts(counts), tuple(swapped))


def starts(given: MixedCoefficients) -> list[Assignment]:
    """Return blocks of equal groups, each rank with layers in proportion to its speed, whatever its memory."""
    kinds = given.by_group[0].counts[-1]
    pace = [
        sum(
            n * (f + b)
            for n, f, b in zip(kinds, item.forward.layer, item.backward.layer, strict=True)
        )
        for item in given.by_group
    ]
    return _in_blocks(given, [1 / max(each, 1) for each in pace])


def candidates_for_memory(given: MixedCoefficients) -> list[Assignment]:
    """Return blocks of equal groups: layers in proportion to memory, or nearly all of them on one of the groups."""
    if given.layers < given.shape.ranks * given.shape.chunks:
        return []
    weights = [[float(item.limit_kib) for item in given.by_group]]
    weights += [[1.0 if at == group else 1e-9 for at in given.groups] for group in given.groups]
    return list(dict.fromkeys(item for each in weights for item in _in_blocks(given, each)))


def _in_blocks(given: MixedCoefficients, weights: Sequence[float]) -> list[Assignment]:
    return [
        Assignment(
            _cuts(shared_out(given.layers, [weights[g] for g in groups * given.shape.chunks])),
            groups,
        )
        for groups in blocks(given.slots, given.shape.ranks)
    ]


def shared_out(layers: int, weights: Sequence[float]) -> list[int]:
    """Return ``layers`` shared out in proportion to ``weights``, at least one each; the largest quotas get the rest."""
    counts = [1] * len(weights)
    for _ in range(layers - len(weights)):
        best = max(range(len(weights)), key=lambda at: weights[at] / (counts[at] + 1))
        counts[best] += 1
    return counts


def _cuts(counts: Sequence[int]) -> tuple[int, ...]:
    cuts = [0]
    for count in counts:
        cuts.append(cuts[-1] + count)
    return tuple(cuts)
