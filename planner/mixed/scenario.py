"""Prices of a scenario whose cluster has several device groups."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from costmodel.cost import StrategyCost
from costmodel.pricing import Pricer
from costmodel.spec import DeviceGroup
from costmodel.strategy import Strategy
from planner.mixed.prices import Group, GroupPrices
from planner.no_recomputation import search_prices
from planner.scenario import Scenario
from planner.scenario_pricer import pricer_with, read_tables, tables_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPricer:
    """Prices of a scenario's groups.

    Attributes:
        by_group: One pricer for each group.
        prices: The same, with what lies between the groups.
        searched: As the search uses them: its bounds may exclude full recomputation.
    """

    by_group: tuple[Pricer, ...]
    prices: GroupPrices
    searched: GroupPrices

    def cost(self, strategy: Strategy, device_groups: Sequence[int]) -> StrategyCost:
        """Return the prices of ``strategy`` with each rank on its group."""
        return self.prices.cost(strategy, device_groups)

    def price_shares(self, strategy: Strategy, device_groups: Sequence[int]) -> dict[str, float]:
        """Return which share of the priced seconds is measured, interpolated and computed: the mean over ranks."""
        found = {group: self.by_group[group].price_shares(strategy) for group in set(device_groups)}
        names = next(iter(found.values()))
        return {
            name: sum(found[group][name] for group in device_groups) / len(device_groups)
            for name in names
        }


def make_mixed_pricer(scenario: Scenario) -> MixedPricer:
    """Return the prices of each group of the scenario's cluster.

    Raises:
        InputError: If a table or the calibration cannot be read.
    """
    cluster, tables = scenario.cluster, read_tables(scenario)
    parts = [_only(scenario, group) for group in cluster.groups]
    pricers = tuple(pricer_with(part, tables_of(tables, part.cluster.device)) for part in parts)

    def priced(wrap: bool) -> GroupPrices:
        return GroupPrices(
            [
                Group(
                    pricer=search_prices(part, pricer) if wrap else pricer,
                    gpus=group.gpus,
                    usable_bytes=group.device.usable_bytes,
                    inner_gpus=_inner_gpus(group),
                )
                for part, pricer, group in zip(parts, pricers, cluster.groups, strict=True)
            ],
            cluster.groups.index(cluster.slowest),
        )

    return MixedPricer(by_group=pricers, prices=priced(False), searched=priced(True))


def _only(scenario: Scenario, group: DeviceGroup) -> Scenario:
    return replace(scenario, cluster=replace(scenario.cluster, groups=(group,)))


def _inner_gpus(group: DeviceGroup) -> int:
    return group.levels[-2].gpus if len(group.levels) > 1 else 1
