"""Assignments of pipeline ranks to device groups in which the ranks of each group stand together."""

from collections.abc import Iterator, Sequence
from itertools import permutations, product


def blocks(slots: Sequence[int], ranks: int) -> Iterator[tuple[int, ...]]:
    """Yield the assignments in which the ranks of each group stand together, in every order of the groups."""
    found = {
        tuple(group for group in order for _ in range(counts[group]))
        for counts in product(*(range(most + 1) for most in slots))
        if sum(counts) == ranks
        for order in permutations(range(len(slots)))
    }
    yield from sorted(found)
