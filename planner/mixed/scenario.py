"""Prices of a scenario whose cluster has several device groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.cost import StrategyCost
from costmodel.pricing import Pricer
from costmodel.simulator import iteration_ns
from costmodel.spec import DeviceGroup
from costmodel.strategy import Strategy
from planner.coefficients import Arrangement
from planner.mixed.prices import Group, GroupPrices
from planner.no_recomputation import search_prices
from planner.price_shares import LOOKED_UP, shares_of, with_grown
from planner.pricer import PricerLike
from planner.scenario import Scenario
from planner.scenario_pricer import pricer_with, read_tables, tables_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPricer:
    """Prices of a scenario's groups.

    Attributes:
        by_group: One pricer for each group.
        prices: The same, with what lies between the groups.
        searched: As the search uses them: its bounds may exclude full recomputation.
        grown: With larger prices of one provenance, where there are tables (planner.price_shares).
    """

    by_group: tuple[Pricer, ...]
    prices: GroupPrices
    searched: GroupPrices
    grown: Mapping[str, GroupPrices]

    def cost(self, strategy: Strategy, device_groups: Sequence[int]) -> StrategyCost:
        """Return the prices of ``strategy`` with each rank on its group."""
        return self.prices.cost(strategy, device_groups)

    def price_shares(
        self, strategy: Strategy, arrangement: Arrangement, device_groups: Sequence[int]
    ) -> dict[str, float]:
        """Return which share of the iteration's time is measured, interpolated and computed."""

        def time_ns(prices: GroupPrices) -> int:
            return iteration_ns(prices.coefficients(strategy, 0.0).work(arrangement, device_groups))

        grown = {name: time_ns(prices) for name, prices in self.grown.items()}
        return shares_of(time_ns(self.prices) if grown else 0, grown)


def make_mixed_pricer(scenario: Scenario) -> MixedPricer:
    """Return the prices of each group of the scenario's cluster.

    Raises:
        InputError: If a table or the calibration cannot be read.
    """
    cluster, tables = scenario.cluster, read_tables(scenario)
    parts = [_only(scenario, group) for group in cluster.groups]
    pricers = tuple(pricer_with(part, tables_of(tables, part.cluster.device)) for part in parts)

    def priced(by_group: Iterable[PricerLike]) -> GroupPrices:
        return GroupPrices(
            [
                Group(
                    pricer=pricer,
                    gpus=group.gpus,
                    usable_bytes=group.device.usable_bytes,
                    inner_gpus=_inner_gpus(group),
                )
                for pricer, group in zip(by_group, cluster.groups, strict=True)
            ],
            cluster.groups.index(cluster.slowest),
        )

    searched = map(search_prices, parts, pricers)
    measured = LOOKED_UP if any(pricer.prices.tables for pricer in pricers) else ()
    grown = {name: priced(with_grown(pricer, name) for pricer in pricers) for name in measured}
    return MixedPricer(
        by_group=pricers, prices=priced(pricers), searched=priced(searched), grown=grown
    )


def _only(scenario: Scenario, group: DeviceGroup) -> Scenario:
    return replace(scenario, cluster=replace(scenario.cluster, groups=(group,)))


def _inner_gpus(group: DeviceGroup) -> int:
    return group.levels[-2].gpus if len(group.levels) > 1 else 1
