"""The pricer of a scenario: its graph, cluster and training with the tables and calibration it names."""

from costmodel.calibration import read_calibration
from costmodel.pricing import Pricer
from costmodel.table import ScaledTable, Table
from planner.scenario import Scenario


def make_pricer(scenario: Scenario) -> Pricer:
    """Return the pricer; tables are read first to last, the formula prices what no table holds.

    Raises:
        InputError: If a table or the calibration cannot be read.
    """
    tables = [ScaledTable(table=Table.load(path)) for path in scenario.prices]
    return Pricer(
        scenario.graph,
        scenario.cluster,
        scenario.training,
        calibration=read_calibration(scenario.calibration) if scenario.calibration else None,
        tables=tables,
    )
