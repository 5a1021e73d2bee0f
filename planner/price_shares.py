"""Which share of a plan's iteration time was measured, interpolated and computed.

The simulated iteration is a function of the prices s of its events that grows by k where all of them and the constants
of the model grow by k: sums, maxima, and counts of events and micro-batches. By Euler's theorem on homogeneous functions it is

    T = sum over events of s * dT/ds + the same of the constants,

where dT/ds counts how often an event stands on the critical path. So the share that was measured is what T grows by, over
T, if every measured price grows by a little: what hides behind other work, or waits in a bubble, has no share in it. What
neither was measured nor interpolated is the model's: formulas, and constants such as launches.
"""

from collections.abc import Sequence
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
_LOOKED_UP = ("measured", "interpolated")


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
            {name: _with_tables(pricer, name) for name in _LOOKED_UP}
            if pricer.prices.tables
            else {}
        )

    def of(self, strategy: Strategy, arrangement: Arrangement) -> dict[str, float]:
        """Return the shares of "measured", "interpolated" and "analytic" prices, which sum to one."""
        shares = dict.fromkeys(_LOOKED_UP, 0.0)
        if self._grown:
            whole = _iteration_ns(self._pricer, strategy, arrangement)
            for name, pricer in self._grown.items():
                grown = _iteration_ns(pricer, strategy, arrangement)
                shares[name] = (grown - whole) / whole / _GROWTH
        # at a tie of two paths each of both shares grows T: together they may exceed it
        known = max(sum(shares.values()), 1.0)
        shares = {name: share / known for name, share in shares.items()}
        return {**shares, "analytic": max(1.0 - sum(shares.values()), 0.0)}


def _with_tables(pricer: Pricer, provenance: str) -> Pricer:
    tables: Sequence[PriceTable] = [
        _Grown(table=table, provenance=provenance) for table in pricer.prices.tables
    ]
    return Pricer(
        pricer.graph, pricer.cluster, pricer.training, constants=pricer.constants, tables=tables
    )


def _iteration_ns(pricer: Pricer, strategy: Strategy, arrangement: Arrangement) -> int:
    return iteration_ns(coefficients(pricer.time_cost(strategy), 0.0).work(arrangement))
