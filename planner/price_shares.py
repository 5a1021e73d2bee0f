"""Which share of a plan's iteration time was measured, interpolated and computed.

The simulated iteration is a function of the prices s of its events that grows by k where all of them and the constants
of the model grow by k: sums, maxima, and counts of events and micro-batches. By Euler's theorem on homogeneous functions it is

    T = sum over events of s * dT/ds + the same of the constants,

where dT/ds counts how often an event stands on the critical path. So the share that was measured is what T grows by, over
T, if every measured price grows by a little: what hides behind other work, or waits in a bubble, has no share in it. What
neither was measured nor interpolated is the model's: formulas, and constants such as launches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.events import Event
from costmodel.prices import PriceTable
from costmodel.pricing import Pricer
from costmodel.simulator import iteration_ns
from costmodel.strategy import Strategy
from planner.coefficients import Arrangement, coefficients

_GROWTH = (
    1e-2  # far above the rounding of terms to nanoseconds, far below what moves the critical path
)
LOOKED_UP = ("measured", "interpolated")
"""Provenances of prices that tables hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grown:
    """A table whose prices of one provenance are larger."""

    table: PriceTable
    provenance: str

    def lookup(self, event: Event) -> tuple[float, str] | None:
        """Return the price of the table, grown if it is of the provenance."""
        found = self.table.lookup(event)
        if found is None or found[1] != self.provenance:
            return found
        return found[0] * (1 + _GROWTH), found[1]


class PriceShares:
    """Tells the shares of the plans that ``pricer`` prices."""

    def __init__(self, pricer: Pricer) -> None:
        self._pricer = pricer
        self._grown = (
            {name: with_grown(pricer, name) for name in LOOKED_UP} if pricer.prices.tables else {}
        )

    def of(self, strategy: Strategy, arrangement: Arrangement) -> dict[str, float]:
        """Return the shares of "measured", "interpolated" and "analytic" prices, which sum to one."""
        whole = _iteration_ns(self._pricer, strategy, arrangement) if self._grown else 0
        grown = {
            name: _iteration_ns(pricer, strategy, arrangement)
            for name, pricer in self._grown.items()
        }
        return shares_of(whole, grown)


def shares_of(whole_ns: int, grown_ns: Mapping[str, int]) -> dict[str, float]:
    """Return the shares of an iteration from what it takes if the prices of each provenance in tables are larger."""
    shares = dict.fromkeys(LOOKED_UP, 0.0)
    for name, time_ns in grown_ns.items():
        shares[name] = (time_ns - whole_ns) / whole_ns / _GROWTH
    # at a tie of two paths each of both shares grows T: together they may exceed it
    known = max(sum(shares.values()), 1.0)
    shares = {name: share / known for name, share in shares.items()}
    return {**shares, "analytic": max(1.0 - sum(shares.values()), 0.0)}


def with_grown(pricer: Pricer, provenance: str) -> Pricer:
    """Return ``pricer`` with larger prices of one provenance."""
    tables: Sequence[PriceTable] = [
        _Grown(table=table, provenance=provenance) for table in pricer.prices.tables
    ]
    return Pricer(
        pricer.graph, pricer.cluster, pricer.training, constants=pricer.constants, tables=tables
    )


def _iteration_ns(pricer: Pricer, strategy: Strategy, arrangement: Arrangement) -> int:
    return iteration_ns(coefficients(pricer.time_cost(strategy), 0.0).work(arrangement))
