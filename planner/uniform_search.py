"""Placements of one strategy in which all virtual stages recompute the same number of layers, or all of theirs.

For a given number the layers that recompute are part of what a stage costs and holds in any case, so the search over
cuts is the ordinary one, on coefficients without recomputation.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from costmodel.simulator import iteration_ns
from planner.candidate import Candidate, Tier, settle_bound, settle_placement
from planner.coefficients import Arrangement, Coefficients, Linear, MemoryRow
from planner.even_cuts import balanced_cuts

Cuts = tuple[int, ...]


def best_uniform(
    given: Coefficients, cuts: Cuts, accepts: Callable[[Arrangement], bool]
) -> tuple[int, Arrangement] | None:
    """Return nanoseconds and placement of the fastest accepted placement found that fits, None if there is none.

    Args:
        given: The strategy's coefficients.
        cuts: Tried first, balanced ones next; others only for numbers that these are accepted with.
        accepts: Whether a placement will do.
    """
    best: tuple[int, Arrangement] | None = None
    bases = (cuts, *balanced_cuts(len(given.layer_kinds), len(cuts) - 1))
    for number in _numbers(given):
        if accepts(_uniform(cuts, number)):
            others = _searched(given, cuts, number, best[0] if best else None)
        else:
            others = ()
        for arrangement in (_uniform(choice, number) for choice in dict.fromkeys(bases + others)):
            if accepts(arrangement) and given.fits(arrangement):
                timed = iteration_ns(given.work(arrangement)), arrangement
                best = min(best or timed, timed)
    return best


def _numbers(given: Coefficients) -> Iterator[int]:
    """Yield the numbers of layers that a virtual stage may recompute without recomputing all, and all."""
    layers, stages = len(given.layer_kinds), given.shape.ranks * given.shape.chunks
    most = layers - stages + 1 if given.shape.chunks == 1 else math.ceil(layers / stages)
    if not given.recompute_all:
        yield from range(most)
    yield layers


def _uniform(cuts: Cuts, number: int) -> Arrangement:
    return Arrangement(cuts, tuple(min(number, stop - start) for start, stop in pairwise(cuts)))


def _searched(
    given: Coefficients, cuts: Cuts, number: int, best_ns: int | None
) -> tuple[Cuts, ...]:
    """Return the best cuts found for a number of recomputed layers, none where nothing fits or beats the best.

    Interleaved strategies have balanced cuts only, as in the search.
    """
    if given.shape.chunks > 1:
        return ()
    searched = given if given.recompute_all else _folded(given, number)
    candidate = Candidate(row=0, given=searched, lower_ns=0)
    settle_bound(candidate, best_ns)
    if candidate.tier is Tier.PLACED:
        settle_placement(candidate, [cuts])
    return (candidate.incumbent.cuts,) if candidate.incumbent else ()


def _folded(given: Coefficients, number: int) -> Coefficients:
    """Return the coefficients of stages that recompute ``number`` layers of the commonest kind, and no others."""
    kind = max(set(given.layer_kinds), key=given.layer_kinds.count)

    def fold(linear: Linear) -> Linear:
        more = number * linear.recomputed[kind]
        return linear._replace(fixed=linear.fixed + more, recomputed=(0,) * len(linear.recomputed))

    def fold_memory(row: MemoryRow) -> MemoryRow:
        kept = fold(row.kept)
        kept = kept._replace(fixed=kept.fixed + row.recompute_once * (number > 0))
        return row._replace(kept=kept, flight=fold(row.flight), recompute_once=0)

    return replace(
        given,
        forward=fold(given.forward),
        backward=fold(given.backward),
        weight=fold(given.weight),
        finish=tuple(map(fold, given.finish)),
        memory=tuple(map(fold_memory, given.memory)),
    )
