"""The pricer of a scenario: its graph, cluster and training with the tables and calibration it names."""

import re
from collections.abc import Sequence

from costmodel.calibration import read_calibration
from costmodel.pricing import Pricer
from costmodel.spec import DeviceSpec
from costmodel.table import ScaledTable, Table
from planner.scenario import Scenario


def make_pricer(scenario: Scenario) -> Pricer:
    """Return the pricer; tables are read first to last, the formula prices what no table holds.

    In a cluster of several device groups it prices the slowest, with the tables that were measured on its device.

    Raises:
        InputError: If a table or the calibration cannot be read.
    """
    tables = read_tables(scenario)
    if len(scenario.cluster.groups) > 1:
        tables = tables_of(tables, scenario.cluster.device)
    return pricer_with(scenario, tables)


def read_tables(scenario: Scenario) -> list[Table]:
    """Return the tables that the scenario names."""
    return [Table.load(path) for path in scenario.prices]


def pricer_with(scenario: Scenario, tables: Sequence[Table]) -> Pricer:
    """Return the pricer of the scenario with the given tables."""
    return Pricer(
        scenario.graph,
        scenario.cluster,
        scenario.training,
        calibration=read_calibration(scenario.calibration) if scenario.calibration else None,
        tables=[ScaledTable(table=table) for table in tables],
    )


def tables_of(tables: Sequence[Table], device: DeviceSpec) -> list[Table]:
    """Return the tables that name no device, or this one by its model: the first part of its name with a digit."""
    parts = _parts(device.name)
    model = next((part for part in parts if any(map(str.isdigit, part))), device.name)
    return [
        table
        for table in tables
        if not table.sources or any(model in _parts(source.device) for source in table.sources)
    ]


def _parts(name: str) -> list[str]:
    return re.split(r"[^a-z0-9]+", name.lower())
