"""The certified search of a scenario, on one kind of GPU or on several."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from costmodel.cost import StrategyCost
from costmodel.pricing import Pricer
from costmodel.strategy import Strategy
from planner.engine import EngineResult, search
from planner.mixed.cluster import is_mixed
from planner.mixed.relaxed import RelaxedRows
from planner.mixed.scenario import MixedPricer, make_mixed_pricer
from planner.mixed.search import search_mixed
from planner.no_recomputation import search_prices
from planner.plans import Placement
from planner.price_shares import PriceShares
from planner.priced_rows import RowPricer
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.simulation import arrangement_of
from planner.space import Space, enumerate_space
from planner.systems import apply_system


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What searches of one scenario under different memory limits share: prices, strategies, and what was proven.

    Attributes:
        pricer: Prices as if all GPUs were of the slowest kind.
        shares: Tells by provenance which share of a plan's time its prices have, by the same pricer.
        groups: Prices of each device group, None where there is one.
    """

    pricer: Pricer
    space: Space
    rows: RowPricer
    shares: PriceShares
    groups: MixedPricer | None = None

    def cost(self, strategy: Strategy, device_groups: Sequence[int] = ()) -> StrategyCost:
        """Return the prices of a strategy whose pipeline ranks run on the given device groups."""
        if self.groups is None or not device_groups:
            return self.pricer.cost(strategy)
        return self.groups.cost(strategy, device_groups)

    def price_shares(self, strategy: Strategy, placement: Placement) -> dict[str, float]:
        """Return which share of the iteration's time is measured, interpolated and computed."""
        arrangement, groups = arrangement_of(placement), placement.device_groups
        if self.groups is None or not groups:
            return self.shares.of(strategy, arrangement)
        return self.groups.price_shares(strategy, arrangement, groups)


def open_session(scenario: Scenario, pricer: Pricer | None = None) -> Session:
    """Return a session with nothing searched yet.

    Raises:
        InputError: If a table or the calibration of the scenario cannot be read.
    """
    scenario = apply_system(scenario)
    pricer, space = pricer or make_pricer(scenario), enumerate_space(scenario)
    shares = PriceShares(pricer)
    if not is_mixed(scenario.cluster):
        rows = RowPricer(search_prices(scenario, pricer), space.columns)
        return Session(pricer=pricer, space=space, rows=rows, shares=shares)
    groups = make_mixed_pricer(scenario)
    relaxed = RelaxedRows(groups.searched, space.columns)
    return Session(pricer=pricer, space=space, rows=relaxed, shares=shares, groups=groups)


def search_scenario(
    scenario: Scenario,
    session: Session,
    *,
    top: int = 1,
    tolerance: float = 1e-3,
    time_limit_s: float | None = None,
) -> EngineResult:
    """Return the ``top`` fastest plans of the scenario within its memory limit."""
    rows, columns = session.rows, session.space.columns
    run = (
        partial(search_mixed, columns, rows.prices, rows=rows)
        if isinstance(rows, RelaxedRows)
        else partial(search, columns, rows.pricer, rows=rows)
    )
    return run(
        memory_limit_bytes=scenario.memory_limit_bytes,
        top=top,
        tolerance=tolerance,
        time_limit_s=time_limit_s,
        uneven=scenario.uneven_stages,
    )
