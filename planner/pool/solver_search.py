"""From nothing to a proven schedule: list, bound, promising modes, the whole model; ends when the gap is met."""

import dataclasses
from collections.abc import Sequence

from planner.pool.heuristic import schedule
from planner.pool.instance import Block, Instance, value_of
from planner.pool.model import Objective
from planner.pool.solver import Answer, solve
from planner.pool.solver_bound import Bound, Choice, makespan_bound
from planner.pool.solver_weighted import weighted_lp_bound

# Share of the time for schedules in the modes that the bound could not exclude.
_SHARE_OF_CHOICES = 0.4


def search(instance: Instance, gap: float, time_limit_s: float, workers: int = 1) -> Answer:
    """Return the best schedule found and what is proven.

    Args:
        instance: The pool.
        gap: Relative distance to the bound at which to stop.
        time_limit_s: Seconds of solving.
        workers: Threads of the solver.
    """
    known = schedule(instance)
    bound = first_bound(instance, known)
    slice_s = time_limit_s * _SHARE_OF_CHOICES / max(1, len(bound.choices))
    for choice in bound.choices:
        if _close(instance, known, bound.value, gap):
            break
        known = _in_modes(instance, choice, known, bound.value, gap, slice_s)
    if known and _close(instance, known, bound.value, gap):
        return Answer(blocks=known, bound=bound.value)
    rest_s = time_limit_s * (1 - _SHARE_OF_CHOICES) if bound.choices else time_limit_s
    return solve(instance, known, bound.value, gap, rest_s, workers)


def first_bound(instance: Instance, known: Sequence[Block] | None) -> Bound:
    """Return what is proven about the objective before schedules are searched for; 0 where nothing is.

    Args:
        instance: The pool.
        known: A schedule, if there is one; bounds need not look beyond it.
    """
    end = max(block.end for block in known) if known else instance.horizon
    if instance.objective is Objective.MAKESPAN:
        return makespan_bound(instance, end)
    if instance.objective is Objective.WEIGHTED_COMPLETION:
        return Bound(value=weighted_lp_bound(instance, end))
    return Bound(value=0)


def _close(instance: Instance, known: Sequence[Block] | None, bound: int, gap: float) -> bool:
    return known is not None and value_of(instance, known) * (1 - gap) <= bound


def _in_modes(
    instance: Instance,
    choice: Choice,
    known: tuple[Block, ...] | None,
    bound: int,
    gap: float,
    time_limit_s: float,
) -> tuple[Block, ...] | None:
    """Return the better of ``known`` and a schedule in which every piece runs in its chosen mode."""
    pairs = zip(instance.works, choice, strict=True)
    works = tuple(
        dataclasses.replace(work, pieces=tuple((mode,) for mode in modes)) for work, modes in pairs
    )
    fixed = dataclasses.replace(instance, works=works)
    found = solve(fixed, schedule(fixed), bound, gap, time_limit_s).blocks
    schedules = [blocks for blocks in (known, found) if blocks]
    return min(schedules, key=lambda blocks: value_of(instance, blocks), default=None)
