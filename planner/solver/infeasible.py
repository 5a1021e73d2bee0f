"""Why nothing is legal: the smallest set of rules that conflict, and the fewest that must give way.

A rule is a named mask over candidates: which of them keep it. Rules conflict when no candidate keeps all of them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

Mask = NDArray[np.bool_]


class Relaxation(NamedTuple):
    """The fewest rules without which a candidate is legal, and the first such candidate."""

    rules: tuple[str, ...]
    candidate: int


def smallest_conflict(rules: Mapping[str, Mask]) -> tuple[str, ...]:
    """Return the smallest set of rules that no candidate keeps together; empty if some candidate keeps all.

    The smallest set of rules such that every candidate breaks one of them: a minimum hitting set over the distinct
    patterns of broken rules. Equal sizes are decided by the order of ``rules``.
    """
    names = list(rules)
    patterns = _broken_patterns(rules)
    if not len(patterns) or not patterns.any(axis=1).all():
        return ()
    model = cp_model.CpModel()
    chosen = [model.new_bool_var(name) for name in names]
    for pattern in patterns:
        model.add_bool_or([chosen[at] for at in np.flatnonzero(pattern)])
    size = len(names) + 1
    # One more rule always costs more than all orders of preference together.
    model.minimize(sum((size * size + at) * literal for at, literal in enumerate(chosen)))
    solver = _solver()
    if solver.solve(model) != cp_model.OPTIMAL:
        raise ValueError("the rules have no smallest conflict")
    return tuple(name for name, literal in zip(names, chosen, strict=True) if solver.value(literal))


def conflict_with_assumptions(rules: Mapping[str, Mask]) -> tuple[str, ...]:
    """Return some set of conflicting rules from one infeasible solve; empty if there is no conflict.

    One literal selects each pattern of broken rules, one assumption literal stands for each rule; the solver names the
    assumptions it needed. Not always the smallest set, but found without optimising.
    """
    names, patterns = list(rules), _broken_patterns(rules)
    model = cp_model.CpModel()
    holds = [model.new_bool_var(name) for name in names]
    selected = [model.new_bool_var("") for _ in patterns]
    model.add_exactly_one(selected)
    for literal, pattern in zip(selected, patterns, strict=True):
        for at in np.flatnonzero(pattern):
            model.add_bool_or([~literal, ~holds[at]])
    model.add_assumptions(holds)
    solver = _solver()
    if solver.solve(model) != cp_model.INFEASIBLE:
        return ()
    core = {
        model.proto.variables[index].name
        for index in solver.sufficient_assumptions_for_infeasibility()
    }
    return tuple(name for name in names if name in core)


def fewest_relaxations(rules: Mapping[str, Mask]) -> Relaxation | None:
    """Return the smallest set of rules whose removal admits a candidate; None without candidates."""
    names = list(rules)
    broken = ~np.stack([rules[name] for name in names], axis=1)
    if not len(broken):
        return None
    candidate = int(broken.sum(axis=1).argmin())
    return Relaxation(tuple(names[at] for at in np.flatnonzero(broken[candidate])), candidate)


def _broken_patterns(rules: Mapping[str, Mask]) -> Mask:
    """Return the distinct patterns of broken rules, one a row."""
    broken = ~np.stack(list(rules.values()), axis=1)
    packed = np.unique(np.packbits(broken, axis=1), axis=0)
    return np.unpackbits(packed, axis=1, count=len(rules)).astype(np.bool_)


def _solver() -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    return solver
