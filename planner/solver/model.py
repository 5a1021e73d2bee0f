"""Solves the placement of one strategy within a cutoff."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from ortools.sat.python import cp_model

from costmodel.timeline import CriticalPath
from planner.coefficients import Coefficients
from planner.rows import rows_below
from planner.solver.constraints import Constraints
from planner.solver.objective import minimise_iteration
from planner.solver.variables import PlacementVariables
from planner.stage_tables import stage_tables
from planner.windows import Budgets, Windows


class Outcome(NamedTuple):
    """What a solve proved.

    Attributes:
        bound_ns: No placement is faster; the cutoff if there is none below it.
        cuts: A placement that attains the best value of the rows; None if none was found.
        effort: Deterministic seconds spent.
    """

    bound_ns: int
    cuts: tuple[int, ...] | None
    effort: float


class Effort(NamedTuple):
    """How much a solve may take: deterministic seconds, and wall seconds."""

    deterministic_s: float
    wall_s: float = math.inf


def solve_placement(
    given: Coefficients,
    paths: Iterable[CriticalPath],
    *,
    cutoff_ns: int,
    hint: tuple[int, ...] | None = None,
    effort: Effort,
) -> Outcome:
    """Find the placement with the smallest rows below ``cutoff_ns``, or prove that there is none."""
    windows = Budgets(given).narrow(cutoff_ns)
    if windows is None:
        return Outcome(cutoff_ns, None, 0.0)
    rows = rows_below(given, stage_tables(given, windows), cutoff_ns)
    if rows is None:
        return Outcome(cutoff_ns, None, 0.0)
    model = cp_model.CpModel()
    variables = PlacementVariables(model, given, rows.tables, cutoff_ns)
    Constraints(variables, paths).add_all()
    minimise_iteration(variables)
    if hint is not None and _inside(hint, rows.tables.windows):
        _hint(model, variables, hint)
    return _solve(model, variables, cutoff_ns, effort)


def _inside(cuts: tuple[int, ...], windows: Windows) -> bool:
    return all(
        low <= cut <= high for cut, low, high in zip(cuts, windows.low, windows.high, strict=True)
    )


def _hint(model: cp_model.CpModel, variables: PlacementVariables, cuts: tuple[int, ...]) -> None:
    for variable, cut in zip(variables.cuts, cuts, strict=True):
        if not isinstance(variable, int):
            model.add_hint(variable, cut)


def _solve(
    model: cp_model.CpModel, variables: PlacementVariables, cutoff_ns: int, effort: Effort
) -> Outcome:
    run = run_solver(model, cutoff_ns, effort)
    if run.solver is None:
        return Outcome(run.bound_ns, None, run.effort)
    value = run.solver.value
    cuts = tuple(cut if isinstance(cut, int) else value(cut) for cut in variables.cuts)
    return Outcome(run.bound_ns, cuts, run.effort)


class Run(NamedTuple):
    """One call of the solver: the bound it proved, deterministic seconds, and itself where it has a solution."""

    bound_ns: int
    effort: float
    solver: cp_model.CpSolver | None


def run_solver(model: cp_model.CpModel, cutoff_ns: int, effort: Effort) -> Run:
    """Minimise the objective of ``model``, nanoseconds below a cutoff."""
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    # One worker and a deterministic limit make runs repeat; presolve costs more than it saves on models this small.
    parameters.num_workers = 1
    parameters.cp_model_presolve = False
    parameters.linearization_level = 1
    parameters.random_seed = 1
    parameters.max_deterministic_time = effort.deterministic_s
    # Ctrl-C ends the whole search, not one proof of many.
    parameters.catch_sigint_signal = False
    if math.isfinite(effort.wall_s):
        parameters.max_time_in_seconds = max(0.01, effort.wall_s)
    status = solver.solve(model)
    spent = float(solver.response_proto.deterministic_time)
    if status == cp_model.INFEASIBLE:
        return Run(cutoff_ns, spent, None)
    bound = min(cutoff_ns, math.ceil(solver.best_objective_bound - 0.5))
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return Run(bound, spent, solver if found else None)
