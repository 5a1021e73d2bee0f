"""Quantities that are affine in what a pipeline stage holds.

Time and memory of a stage are sums of named terms; each term is affine in the number of layers of each
kind, in the number of recomputed layers and in the micro-batches in flight. The same terms are evaluated
for the report, simulated, and handed to CP-SAT as coefficients, so the three can never disagree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, mul
from typing import Any

from costmodel.lanes import has_lanes, total

TERM_SCALARS = (
    "fixed",
    "first",
    "last",
    "flight_fixed",
    "flight_first",
    "flight_last",
    "recompute_once",
)
TERM_VECTORS = ("layer", "recomputed", "flight_layer", "flight_recomputed")
scalars_of = attrgetter(*TERM_SCALARS)
vectors_of = attrgetter(*TERM_VECTORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkContent:
    """What one virtual stage (a chunk; the whole stage without interleaving) holds.

    Attributes:
        layers: Number of layers of each layer kind.
        recomputed: How many of them recompute fully, by kind; at most ``layers``.
        first: Whether it holds the embedding.
        last: Whether it holds final norm, head and loss.
        in_flight: Micro-batches whose activations it keeps at the peak.
    """

    layers: tuple[int, ...]
    recomputed: tuple[int, ...]
    first: bool
    last: bool
    in_flight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTerm:
    """One named term: seconds of a chunk, or bytes of a rank.

    Attributes:
        name: What the term is, as reports show it.
        fixed: Once per evaluation.
        first, last: Added where the embedding / the head is.
        layer: Per layer of each kind.
        recomputed: Added per fully recomputed layer of each kind.
        flight_fixed, flight_first, flight_last, flight_layer, flight_recomputed: The same, per micro-batch
            in flight (``flight_recomputed`` is negative: a recomputed layer keeps only its input).
        recompute_once: Added once where any layer recomputes (the working set of one layer).
    """

    name: str
    fixed: float = 0.0
    first: float = 0.0
    last: float = 0.0
    layer: tuple[float, ...]
    recomputed: tuple[float, ...]
    flight_fixed: float = 0.0
    flight_first: float = 0.0
    flight_last: float = 0.0
    flight_layer: tuple[float, ...]
    flight_recomputed: tuple[float, ...]
    recompute_once: float = 0.0

    @property
    def empty(self) -> bool:
        """Whether the term is a number and zero whatever a rank holds."""
        values = chain(scalars_of(self), *vectors_of(self))
        return not any(has_lanes(value) or value for value in values)

    def value(self, chunks: Sequence[ChunkContent]) -> float:
        """Return the term for a rank that holds ``chunks`` (one chunk: a stage or virtual stage)."""
        total = self.fixed
        for chunk in chunks:
            # No += here: in the fit a value may be an array, which += would change in place.
            total = total + self.first * chunk.first + self.last * chunk.last
            total = total + _dot(self.layer, chunk.layers) + _dot(self.recomputed, chunk.recomputed)
            total = total + chunk.in_flight * self._flight(chunk)
        if self.recompute_once and any(any(chunk.recomputed) for chunk in chunks):
            total = total + self.recompute_once
        return total

    def _flight(self, chunk: ChunkContent) -> float:
        return (
            self.flight_fixed
            + self.flight_first * chunk.first
            + self.flight_last * chunk.last
            + _dot(self.flight_layer, chunk.layers)
            + _dot(self.flight_recomputed, chunk.recomputed)
        )


def term(name: str, kinds: int, **values: float | tuple[float, ...]) -> StageTerm:
    """Build a term over ``kinds`` layer kinds; what is not given is zero."""
    filled: dict[str, Any] = dict.fromkeys(TERM_VECTORS, (0.0,) * kinds)
    return StageTerm(name=name, **(filled | values))


def add(name: str, terms: Sequence[StageTerm]) -> StageTerm:
    """Return the sum of ``terms`` (at least one) as one term."""
    return weighted(name, [(1.0, item) for item in terms])


def weighted(name: str, parts: Sequence[tuple[float, StageTerm]]) -> StageTerm:
    """Return the sum of terms (at least one), each times its factor, as one term."""
    factors = [factor for factor, _ in parts]
    scalars = [scalars_of(item) for _, item in parts]
    values: dict[str, Any] = dict(zip(TERM_SCALARS, _columns(factors, scalars), strict=True))
    for key, rows in zip(
        TERM_VECTORS, zip(*(vectors_of(item) for _, item in parts), strict=True), strict=True
    ):
        values[key] = tuple(_columns(factors, rows))
    return StageTerm(name=name, **values)


def _columns(factors: Sequence[float], rows: Sequence[Sequence[float]]) -> list[float]:
    return [total(map(mul, factors, column)) for column in zip(*rows, strict=True)]


def _dot(weights: Sequence[float], counts: Sequence[int]) -> float:
    return sum(weight * count for weight, count in zip(weights, counts, strict=True))
