"""Shares of the iteration by provenance, on plans whose busy time one can take apart by hand."""

from dataclasses import dataclass
from functools import cache

import pytest

from costmodel.events import CommEvent, ComputeEvent, Event
from costmodel.pricing import Pricer
from costmodel.simulator import iteration_ns
from costmodel.strategy import Strategy
from costmodel.units import NS_PER_S
from planner.coefficients import Arrangement, coefficients
from planner.price_shares import PriceShares
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from tests.builders import make_scenario

WHOLE = Arrangement(cuts=(0, 4), recomputed=(0,))
HALVES = Arrangement(cuts=(0, 2, 4), recomputed=(0, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flat:
    """A table that prices all matmuls, and perhaps all else, at flat times."""

    matmul: str = "measured"
    rest: str = ""
    seconds: float = 1e-2

    def lookup(self, event: Event) -> tuple[float, str] | None:
        """Return the flat time with the provenance of the kind of event."""
        is_matmul = isinstance(event, ComputeEvent) and event.op == "matmul"
        name = self.matmul if is_matmul else self.rest
        return (self.seconds, name) if name else None


@cache
def _scenario() -> Scenario:
    return make_scenario(layers=4, gpus=2, batch=8)


def _shares(table: _Flat, strategy: Strategy, arrangement: Arrangement) -> dict[str, float]:
    return PriceShares(_pricer(table)).of(strategy, arrangement)


def _pricer(table: _Flat) -> Pricer:
    scenario = _scenario()
    return Pricer(scenario.graph, scenario.cluster, scenario.training, tables=[table])


def test_without_overlap_a_share_is_count_times_seconds_over_the_iteration() -> None:
    strategy, table = Strategy(dp=1, microbatches=8), _Flat()
    cost = _pricer(table).time_cost(strategy)
    busy = 8 * sum(
        4 * term.layer[0] + term.first + term.last
        for term in (*cost.forward, *cost.backward)
        if term.name == "matmul"
    )
    whole = iteration_ns(coefficients(cost, 0.0).work(WHOLE)) / NS_PER_S
    found = _shares(table, strategy, WHOLE)
    assert found["measured"] == pytest.approx(busy / whole, rel=1e-3)
    assert sum(found.values()) == pytest.approx(1.0)


def test_with_all_events_in_tables_only_constants_are_computed() -> None:
    table = _Flat(rest="interpolated", seconds=1.0)
    found = _shares(table, Strategy(dp=1, microbatches=8), WHOLE)
    assert min(found["measured"], found["interpolated"]) > 0.3
    assert found["analytic"] < 1e-3


def test_bubbles_take_the_shares_of_what_is_waited_for() -> None:
    found = _shares(_Flat(seconds=1.0), Strategy(pp=2, microbatches=2), HALVES)
    assert found["measured"] > 0.99


def test_hidden_communication_has_no_share() -> None:
    """A gradient reduction behind the backward is paid in part only, whatever its whole length."""

    @dataclass(frozen=True, slots=True)
    class _Comm:
        def lookup(self, event: Event) -> tuple[float, str] | None:
            return (1e-9, "measured") if isinstance(event, CommEvent) else None

    scenario = _scenario()
    pricer = Pricer(scenario.graph, scenario.cluster, scenario.training, tables=[_Comm()])
    found = PriceShares(pricer).of(Strategy(dp=2, microbatches=4), WHOLE)
    assert found["measured"] < 1e-4
    assert found["analytic"] > 0.999


def test_without_tables_all_is_computed() -> None:
    shares = PriceShares(make_pricer(_scenario())).of(Strategy(dp=2, microbatches=4), WHOLE)
    assert shares == {"measured": 0.0, "interpolated": 0.0, "analytic": 1.0}
