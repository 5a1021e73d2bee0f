"""The cutting-stock program: can the nodes of a group be cut into pieces of the chosen lengths at all?

Every node is a bin of T ticks; a mode of w nodes and d ticks asks for w pieces of length d. If the linear program
over fillings (Gilmore and Gomory, Operations Research 9, 1961) needs more bins than there are nodes, its prices
are a dual feasible function that refutes the choice of modes, and a row that every other choice must obey.
"""

from collections.abc import Mapping

from ortools.linear_solver import pywraplp

from planner.pool.cutting import Prices, best_filling, best_worth, units_of

# Prices are whole multiples of one over this.
_SCALE = 10**6
_MAX_FILLINGS = 200
# A price this much above the program's own is taken for equal.
_TOLERANCE = 1e-4


def refuting_prices(demand: Mapping[int, int], nodes: int, ticks: int) -> Prices | None:
    """Return prices that prove ``demand`` does not fit on ``nodes`` within ``ticks``; None if none do.

    Args:
        demand: Pieces asked for by length.
        nodes: Bins.
        ticks: Length of a bin.
    """
    program = _Program(demand, ticks)
    unit = units_of(ticks)
    for _ in range(_MAX_FILLINGS):
        prices = program.prices()
        best = best_worth(prices, ticks // unit, unit)
        worth = sum(count * prices[length] for length, count in demand.items())
        if worth > nodes * int(best[-1]):
            return Prices(of=prices)
        if program.bins <= nodes or best[-1] <= _SCALE * (1 + _TOLERANCE):
            return None
        program.add(best_filling(prices, best, unit))
    return None


class _Program:
    """The restricted program; fillings are added as they are found."""

    def __init__(self, demand: Mapping[int, int], ticks: int) -> None:
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        infinity = self._solver.infinity()
        self._rows = {
            length: self._solver.Constraint(float(count), infinity)
            for length, count in sorted(demand.items())
        }
        self._solver.Objective().SetMinimization()
        for length in self._rows:
            self.add({length: ticks // length})

    @property
    def bins(self) -> float:
        """Bins that the program needs."""
        return float(self._solver.Objective().Value())

    def add(self, filling: Mapping[int, int]) -> None:
        """Add one filling."""
        column = self._solver.NumVar(0, self._solver.infinity(), "")
        self._solver.Objective().SetCoefficient(column, 1)
        for length, count in filling.items():
            self._rows[length].SetCoefficient(column, count)

    def prices(self) -> dict[int, int]:
        """Solve, and return the whole price of each length."""
        self._solver.Solve()
        return {
            length: max(0, int(row.dual_value() * _SCALE)) for length, row in self._rows.items()
        }
