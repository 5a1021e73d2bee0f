"""Memory of all stages at once, for strategies with one chunk a rank."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.coefficients import Coefficients, Ints


class StageMemory(NamedTuple):
    """KiB of each stage at one moment: a constant with embedding and head, and prices by (stage, kind)."""

    fixed: Ints
    layer: Ints
    recomputed: Ints


def stage_memory(given: Coefficients, index: int) -> StageMemory:
    """Return the memory at the moment number ``index``, without what is paid once where layers recompute."""
    kept, flight = given.memory[index].kept, given.memory[index].flight
    often = np.array(given.in_flight, dtype=np.int64)

    def each(once: Sequence[int], every: Sequence[int]) -> Ints:
        return np.asarray(np.array(once, dtype=np.int64) + often * np.array(every, dtype=np.int64))

    fixed = kept.fixed + often[:, 0] * flight.fixed
    fixed[0] += kept.first + often[0, 0] * flight.first
    fixed[-1] += kept.last + often[-1, 0] * flight.last
    return StageMemory(
        fixed, each(kept.layer, flight.layer), each(kept.recomputed, flight.recomputed)
    )
