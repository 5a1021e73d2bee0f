"""Lower bounds on shared schedules that need no solver, and the weights behind the stronger ones.

Two ways of looking at a group of ``C`` nodes over ``T`` ticks: at any moment the running pieces' nodes sum to at
most ``C``; on any single node the pieces' ticks sum to at most ``T``. A *dual feasible function* f maps sizes
to weights such that whatever fits into one bin has weights summing to at most one. With f over nodes and h over
ticks

    sum over pieces of f(nodes / C) * h(ticks / T)  <=  1

holds for every schedule within T (Fekete and Schepers, Math. of OR 29(2), 2004, theorem on conservative scales, for
packings). Nodes here need not be neighbours, so their proof is replaced: pieces overlapping in time form an
interval graph, which is perfect, so the ticks' weights are covered by cliques of total weight at most one (pieces
that can share a node are pairwise disjoint in time), and within each clique the nodes' weights sum to at most one.

With f and h the identity this is the energy bound. The others see what energy does not: two pieces longer than
half of T never share a node, a piece of almost T leaves a gap nothing fits into.
"""

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from planner.pool.instance import Instance, Mode, Work

# Families beyond these sizes cost more than linear time; the cutting-stock rows take over where they would matter.
_MAX_PARTS = 10
_MAX_CUTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A dual feasible function on the sizes that occur: whole numbers out of ``scale``."""

    of: dict[int, int]
    scale: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One inequality ``sum of weight(mode) <= limit`` over the pieces of a group within T ticks."""

    nodes: Weights
    ticks: Weights

    def weight(self, mode: Mode) -> int:
        """Return the weight of a piece run in ``mode``."""
        return self.nodes.of[mode.nodes] * self.ticks.of[mode.ticks]

    @property
    def limit(self) -> int:
        """What the weights may sum to."""
        return self.nodes.scale * self.ticks.scale


def energy_bound(instance: Instance) -> int:
    """Return the smallest T that the energy of all pieces and each job's own ticks allow.

    For each job the cheapest modes of at most T ticks are charged, against the nodes of all groups
    together: valid for several groups too, if weaker than the rows with chosen modes.
    """
    low = max((_shortest(work) for work in instance.works), default=0)
    return _smallest(low, instance.horizon, lambda ticks: _energy_fits(instance, ticks))


def weighted_bound(instance: Instance) -> int:
    """Return a lower bound of the weighted sum of completion ticks.

    The squashed area of Turek et al. (SPAA 1994, lemma 3.1): with the smallest energy e_j and the
    fewest ticks d_j of each job and C nodes in all, sum w_j C_j is at least the best weighted sum on one machine
    with times e_j / C, less half of ``w_j e_j / C``, plus half of ``w_j d_j``. Both parts rise with e_j and d_j,
    so taking the smallest of each separately stays below every choice of modes.
    """
    nodes = sum(instance.capacities)
    jobs = [(_least_energy(work), work.weight, _shortest(work)) for work in instance.works]
    jobs.sort(key=lambda job: job[0] * 1.0 / max(job[1], 1))
    squashed = halves = elapsed = 0.0
    for energy, weight, ticks in jobs:
        elapsed += energy / nodes
        squashed += weight * elapsed
        halves += weight * (ticks - energy / nodes) / 2
    own = sum(weight * ticks for _, weight, ticks in jobs)
    return max(own, int(squashed + halves))


def rows_within(modes: Iterable[Mode], capacity: int, ticks: int) -> Iterator[Row]:
    """Yield the rows that every schedule of ``modes`` on ``capacity`` nodes within ``ticks`` obeys."""
    kept = list(modes)
    by_nodes = dual_feasible(sorted({mode.nodes for mode in kept}), capacity)
    by_ticks = dual_feasible(sorted({mode.ticks for mode in kept}), ticks)
    for weights in by_ticks:
        yield Row(nodes=by_nodes[0], ticks=weights)
    for weights in by_nodes[1:]:
        yield Row(nodes=weights, ticks=by_ticks[0])


def dual_feasible(sizes: Sequence[int], bin_size: int) -> list[Weights]:
    """Return weights for ``sizes`` (rising); over anything that fits into ``bin_size`` they sum to at most one.

    First the identity; then the rounding u^(k) and the threshold U^(e) of Fekete and Schepers (Math. Programming
    91, 2001, section 3), and f_1^k of Carlier, Clautiaux and Moukrim (Computers & OR 34(8), 2007, section 3.2),
    which counts multiples of k. Only functions that differ on ``sizes`` are kept.
    """
    families = [_identity(sizes, bin_size)]
    families += [_rounded(sizes, bin_size, parts) for parts in range(1, _MAX_PARTS + 1)]
    for cut in _cuts(sizes, bin_size):
        families += [_threshold(sizes, bin_size, cut), _multiples(sizes, bin_size, cut)]
    distinct: dict[object, Weights] = {}
    for weights in families:
        distinct.setdefault((weights.scale, tuple(weights.of.values())), weights)
    return list(distinct.values())


def _cuts(sizes: Sequence[int], bin_size: int) -> list[int]:
    half = bin_size // 2
    cuts = {size for size in sizes if size <= half}
    cuts |= {bin_size - size for size in sizes if half <= size < bin_size}
    ordered = sorted(cuts)
    return ordered[:: -(-len(ordered) // _MAX_CUTS) or 1]


def _identity(sizes: Sequence[int], bin_size: int) -> Weights:
    return Weights(of={size: size for size in sizes}, scale=bin_size)


def _rounded(sizes: Sequence[int], bin_size: int, parts: int) -> Weights:
    def weight(size: int) -> int:
        whole, rest = divmod((parts + 1) * size, bin_size)
        return whole * bin_size if rest else parts * size

    return Weights(of={size: weight(size) for size in sizes}, scale=parts * bin_size)


def _threshold(sizes: Sequence[int], bin_size: int, cut: int) -> Weights:
    def weight(size: int) -> int:
        if size > bin_size - cut:
            return bin_size
        return 0 if size < cut else size

    return Weights(of={size: weight(size) for size in sizes}, scale=bin_size)


def _multiples(sizes: Sequence[int], bin_size: int, cut: int) -> Weights:
    parts = bin_size // cut

    def weight(size: int) -> int:
        if 2 * size > bin_size:
            return 2 * (parts - (bin_size - size) // cut)
        return parts if 2 * size == bin_size else 2 * (size // cut)

    return Weights(of={size: weight(size) for size in sizes}, scale=2 * parts)


def _shortest(work: Work) -> int:
    return sum(min(mode.ticks for mode in piece) for piece in work.pieces)


def _least_energy(work: Work) -> int:
    return sum(min(mode.ticks * mode.nodes for mode in piece) for piece in work.pieces)


def _energy_fits(instance: Instance, ticks: int) -> bool:
    available = sum(
        capacity * max(0, min(end, ticks) - first)
        for capacity, (first, end) in zip(instance.capacities, instance.windows, strict=True)
    )
    needed = 0
    for work in instance.works:
        for piece in work.pieces:
            fitting = [mode.ticks * mode.nodes for mode in piece if mode.ticks <= ticks]
            if not fitting:
                return False
            needed += min(fitting)
    return needed <= available


def _smallest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    span = range(low, high + 1)
    return low + bisect.bisect_left(span, True, key=fits)
