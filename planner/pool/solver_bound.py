"""A makespan bound by refutation: for a given T, no choice of modes satisfies all rows of planner.pool.bound.

The rows bind the choice of modes of all jobs together, which a bound per job cannot: a mode that is cheap in
energy may be too long to share a node with anything. CP-SAT decides the choice exactly.
"""

from ortools.sat.python import cp_model

from planner.pool.bound import energy_bound, rows_within
from planner.pool.instance import Instance, Mode

# Deterministic seconds per tested T; a test that ends undecided counts as not refuted.
_SECONDS_PER_TEST = 1.0
# The search for the largest refuted T stops at this share of T.
_RESOLUTION = 1e-4

_Chosen = list[tuple[cp_model.IntVar, Mode]]


def makespan_bound(instance: Instance, known: int) -> int:
    """Return a T that no schedule undercuts, at least the energy bound.

    Args:
        instance: The pool.
        known: Makespan of some schedule, where the search for the bound ends.
    """
    low, high = energy_bound(instance), known
    if low >= high or not is_refuted(instance, low):
        return min(low, high)
    while high - low > max(1, _RESOLUTION * low):
        middle = (low + high) // 2
        if is_refuted(instance, middle):
            low = middle
        else:
            high = middle
    return low + 1


def is_refuted(instance: Instance, ticks: int) -> bool:
    """Return whether it is proven that not everything can be done within ``ticks``."""
    model = cp_model.CpModel()
    chosen: list[_Chosen] = []
    for work in instance.works:
        own = [_choose(model, instance, piece, ticks) for piece in work.pieces]
        if not all(own):
            return True
        model.add(sum(b * mode.ticks for piece in own for b, mode in piece) <= ticks)
        chosen += own
    for group in range(len(instance.capacities)):
        _add_rows(model, instance, group, ticks, chosen)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = _SECONDS_PER_TEST
    return bool(solver.solve(model) == cp_model.INFEASIBLE)


def _choose(
    model: cp_model.CpModel, instance: Instance, piece: tuple[Mode, ...], ticks: int
) -> _Chosen:
    own = [
        (model.new_bool_var(""), mode)
        for mode in piece
        if mode.ticks <= _length(instance, mode.group, ticks)
    ]
    if own:
        model.add_exactly_one(literal for literal, _ in own)
    return own


def _length(instance: Instance, group: int, ticks: int) -> int:
    first, end = instance.windows[group]
    return min(end, ticks) - first


def _add_rows(
    model: cp_model.CpModel, instance: Instance, group: int, ticks: int, chosen: list[_Chosen]
) -> None:
    terms = [(b, mode) for piece in chosen for b, mode in piece if mode.group == group]
    if not terms:
        return
    modes = (mode for _, mode in terms)
    length = _length(instance, group, ticks)
    for row in rows_within(modes, instance.capacities[group], length):
        model.add(sum(b * row.weight(mode) for b, mode in terms) <= row.limit)
