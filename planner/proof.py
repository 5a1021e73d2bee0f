"""Exact proof of one strategy: solve, simulate, add the critical paths met, until the bound is reached."""

import math
import time

from costmodel.timeline import CriticalPath
from planner.candidate import Candidate
from planner.local_search import Incumbent, improve
from planner.stage_values import StageValues

_BUNDLE = 30
"""Neighbours of a solver placement that are simulated for their paths; fewer mean more solves."""
_PATHS = 240
"""Rows kept for a solve; beyond that only the tightest at the incumbent."""
_FIRST_SLICE_S, _BUDGET_S = 1.0, 60.0
"""Deterministic seconds of the first solve, and of all solves of a strategy where a gap is tolerated."""
_NEVER = 1 << 62


def prove(candidate: Candidate, tolerance: float, worst_ns: float, deadline: float) -> bool:
    """Raise the lower bound of ``candidate`` to its goal, improving its placement on the way.

    Args:
        candidate: A candidate with its stage values.
        tolerance: Relative gap that counts as proved.
        worst_ns: Time of the K-th best plan of the search; bounds above it are of no interest.
        deadline: Monotonic seconds at which to stop.

    Returns:
        Whether the goal was reached; the lower bound is valid either way.
    """
    # Only searches that need the solver pay for loading it.
    from planner.solver.model import Effort, solve_placement

    values, incumbent = candidate.values, candidate.incumbent
    if values is None or incumbent is None:
        raise ValueError("a proof starts from a simulated placement with free cuts")
    slice_s, left = _FIRST_SLICE_S, _BUDGET_S if tolerance else math.inf
    while candidate.lower_ns < (goal := _goal(incumbent, tolerance, worst_ns)):
        wall = deadline - time.monotonic()
        if wall <= 0 or left <= 0:
            return False
        outcome = solve_placement(
            candidate.given,
            _rows(candidate, incumbent),
            # The first solve may show the placement optimal; later ones only need to reach the goal.
            cutoff_ns=goal if candidate.solved else min(incumbent.time_ns, _whole(worst_ns)),
            hint=incumbent.cuts,
            effort=Effort(min(slice_s, left), wall),
        )
        candidate.solved += 1
        left -= max(outcome.effort, 1e-3)
        candidate.lower_ns = max(candidate.lower_ns, outcome.bound_ns)
        if outcome.cuts is None:
            slice_s *= 2
        else:
            _learn(candidate, values, incumbent, outcome.cuts)
    return True


def _goal(incumbent: Incumbent, tolerance: float, worst_ns: float) -> int:
    return math.ceil(min(incumbent.time_ns, worst_ns) * (1 - tolerance))


def _whole(time_ns: float) -> int:
    return _NEVER if math.isinf(time_ns) else int(time_ns)


def _rows(candidate: Candidate, incumbent: Incumbent) -> list[CriticalPath]:
    """Return the paths for the next solve: the newest, and the longest at the best placement.

    The limit grows with every solve, so that no path is dropped for ever.
    """
    paths = list(incumbent.paths)
    limit = _PATHS + _BUNDLE * candidate.solved // 4
    work = candidate.values.work(incumbent.cuts) if candidate.values else None
    if len(paths) <= limit or work is None:
        return paths
    older, newest = paths[:-_BUNDLE], paths[-_BUNDLE:]
    lengths = {path: path.length_ns(work) for path in older}
    return sorted(older, key=lambda path: -lengths[path])[: limit - _BUNDLE] + newest


def _learn(
    candidate: Candidate, values: StageValues, incumbent: Incumbent, cuts: tuple[int, ...]
) -> None:
    """Simulate a placement of the solver and its neighbours; keep their paths and the best of them."""
    work = values.work(cuts)
    if work is None:
        raise ValueError("the solver placed layers where they do not fit")
    before = values.simulated
    start = Incumbent(cuts=cuts, time_ns=values.simulate(work), paths=incumbent.paths)
    improve(values, start, simulations=_BUNDLE, goal_ns=candidate.lower_ns)
    candidate.simulated += values.simulated - before
    if start.time_ns < incumbent.time_ns:
        incumbent.cuts, incumbent.time_ns = start.cuts, start.time_ns
