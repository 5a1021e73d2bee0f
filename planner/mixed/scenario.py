"""Prices of a scenario whose cluster has several device groups."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from costmodel.cost import StrategyCost
from costmodel.pricing import Pricer
from costmodel.spec import DeviceGroup
from costmodel.strategy import Strategy
from costmodel.table import Table
from planner.mixed.prices import Group, GroupPrices
from planner.no_recomputation import search_prices
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer


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
    parts = [_only(scenario, group) for group in scenario.cluster.groups]
    pricers = tuple(make_pricer(part) for part in parts)

    def priced(wrap: bool) -> GroupPrices:
        return GroupPrices(
            [
                Group(
                    pricer=search_prices(part, pricer) if wrap else pricer,
                    gpus=group.gpus,
                    usable_bytes=group.device.usable_bytes,
                    inner_gpus=_inner_gpus(group),
                )
                for part, pricer, group in zip(parts, pricers, scenario.cluster.groups, strict=True)
            ]
        )

    return MixedPricer(by_group=pricers, prices=priced(False), searched=priced(True))


def _only(scenario: Scenario, group: DeviceGroup) -> Scenario:
    """Return the scenario on one group alone, with the tables that were measured on its device."""
    tables = tuple(path for path in scenario.prices if _measured_on(Table.load(path), group))
    return replace(scenario, cluster=replace(scenario.cluster, groups=(group,)), prices=tables)


def _measured_on(table: Table, group: DeviceGroup) -> bool:
    """Return whether a table names no device, or the group's by its model (the first part with a digit)."""
    model = next(filter(_has_digit, _parts(group.device.name)), group.device.name)
    return not table.sources or any(model in _parts(source.device) for source in table.sources)


def _parts(name: str) -> list[str]:
    return re.split(r"[^a-z0-9]+", name.lower())


def _has_digit(part: str) -> bool:
    return any(letter.isdigit() for letter in part)


def _inner_gpus(group: DeviceGroup) -> int:
    return group.levels[-2].gpus if len(group.levels) > 1 else 1
