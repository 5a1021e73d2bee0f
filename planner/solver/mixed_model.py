"""Solves the placement of one strategy on several device groups within a cutoff."""

from collections.abc import Iterable
from typing import NamedTuple

from ortools.sat.python import cp_model

from costmodel.timeline import CriticalPath
from planner.mixed.coefficients import Assignment, MixedCoefficients
from planner.mixed.tables import state_windows
from planner.solver.mixed_constraints import MixedConstraints
from planner.solver.mixed_variables import MixedVariables
from planner.solver.model import Effort, run_solver
from planner.solver.objective import minimise_iteration
from planner.windows import whole_windows


class MixedOutcome(NamedTuple):
    """What a solve proved.

    Attributes:
        bound_ns: No placement on any assignment is faster; the cutoff if there is none below it.
        chosen: A placement that attains the best value of the rows; None if none was found.
        effort: Deterministic seconds spent.
    """

    bound_ns: int
    chosen: Assignment | None
    effort: float


def solve_assignment(
    given: MixedCoefficients,
    paths: Iterable[CriticalPath],
    *,
    cutoff_ns: int,
    hint: Assignment | None = None,
    effort: Effort,
) -> MixedOutcome:
    """Find cuts and groups with the smallest rows below ``cutoff_ns``, or prove that there are none."""
    windows = _windows(given, cutoff_ns)
    if not windows:
        return MixedOutcome(cutoff_ns, None, 0.0)
    model = cp_model.CpModel()
    variables = MixedVariables(model, given, windows, cutoff_ns)
    MixedConstraints(variables, paths).add_all()
    minimise_iteration(variables)
    if hint is not None:
        _hint(model, variables, hint)
    run = run_solver(model, cutoff_ns, effort)
    if run.solver is None:
        return MixedOutcome(run.bound_ns, None, run.effort)
    value = run.solver.value
    cuts = tuple(value(cut) for cut in variables.cuts)
    groups = tuple(
        next(group for group, literal in enumerate(literals) if value(literal))
        for literals in variables.on
    )
    return MixedOutcome(run.bound_ns, Assignment(cuts, groups), run.effort)


def _windows(given: MixedCoefficients, cutoff_ns: int) -> list[tuple[int, int]]:
    """Return lowest and highest position of each cut; empty where nothing can stay below the cutoff."""
    try:
        windows = state_windows(given, cutoff_ns)
        return windows.cuts() if windows else []
    except OverflowError:
        low, high = whole_windows(given.layers, given.shape.ranks)
        return list(zip(low.tolist(), high.tolist(), strict=True))


def _hint(model: cp_model.CpModel, variables: MixedVariables, hint: Assignment) -> None:
    for variable, cut in zip(variables.cuts, hint.cuts, strict=True):
        model.add_hint(variable, cut)
    for literals, group in zip(variables.on, hint.groups, strict=True):
        for at, literal in enumerate(literals):
            model.add_hint(literal, at == group)
