"""Many terms evaluated for many ranks at once, to the last bit as StageTerm.value evaluates one."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.linear import (
    TERM_SCALARS,
    TERM_VECTORS,
    ChunkContent,
    StageTerm,
    scalars_of,
    vectors_of,
)

Floats = NDArray[np.float64]


class Contents(NamedTuple):
    """What ranks hold, as arrays over rank and chunk; ``layers`` and ``recomputed`` have one for each kind."""

    first: Floats
    last: Floats
    in_flight: Floats
    layers: Floats
    recomputed: Floats

    @classmethod
    def of(cls, ranks: Sequence[Sequence[ChunkContent]]) -> "Contents":
        """Stack the chunks of ranks that have equally many."""

        def stacked(name: str) -> Floats:
            rows = [[getattr(chunk, name) for chunk in rank] for rank in ranks]
            return np.array(rows, dtype=np.float64)

        layers, recomputed = (np.moveaxis(stacked(name), 2, 0) for name in ("layers", "recomputed"))
        ends = stacked("first"), stacked("last")
        return cls(*ends, stacked("in_flight"), layers, recomputed)

    def apart(self) -> "Contents":
        """Return every chunk as a rank of its own, rank by rank."""
        flat = [item.reshape(*item.shape[:-2], -1, 1) for item in self]
        return Contents(*flat)


def term_values(terms: Sequence[StageTerm], contents: Contents) -> Floats:
    """Return the value of each term for each rank."""
    if not terms:
        return np.zeros((0, len(contents.first)))
    table = _Table(terms)
    total = table.scalars["fixed"] + np.zeros(len(contents.first))
    for chunk in range(contents.first.shape[1]):
        total = table.with_chunk(total, Contents(*(item[..., chunk] for item in contents)))
    once = contents.recomputed.any(axis=(0, 2))
    return np.asarray(np.where(once, total + table.scalars["recompute_once"], total))


class _Table:
    """Columns of the terms; sums are in the order of StageTerm.value."""

    def __init__(self, terms: Sequence[StageTerm]) -> None:
        scalars = np.array([scalars_of(term) for term in terms], dtype=np.float64)
        vectors = np.array([vectors_of(term) for term in terms], dtype=np.float64)
        self.scalars = dict(zip(TERM_SCALARS, scalars.T[:, :, None], strict=True))
        self.vectors = dict(
            zip(TERM_VECTORS, vectors.transpose(1, 2, 0)[:, :, :, None], strict=True)
        )

    def with_chunk(self, total: Floats, chunk: Contents) -> Floats:
        """Return ``total`` with what one chunk of each rank adds."""
        scalars = self.scalars
        total = total + scalars["first"] * chunk.first + scalars["last"] * chunk.last
        total = total + self._dot("layer", chunk.layers)
        total = total + self._dot("recomputed", chunk.recomputed)
        flight = (
            scalars["flight_fixed"]
            + scalars["flight_first"] * chunk.first
            + scalars["flight_last"] * chunk.last
            + self._dot("flight_layer", chunk.layers)
            + self._dot("flight_recomputed", chunk.recomputed)
        )
        return np.asarray(total + chunk.in_flight * flight)

    def _dot(self, name: str, counts: Floats) -> Floats:
        """Return the sum over kinds of price times count, by term and rank."""
        first, *others = zip(self.vectors[name], counts, strict=True)
        total = first[0] * first[1]
        for price, count in others:
            total = total + price * count
        return np.asarray(total)
