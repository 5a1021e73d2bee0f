"""One pool shared by many models: from their fronts to a schedule with its gap and its gain over handwork."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.plans import SearchStatus
from planner.pool.baseline import equal_split, first_come_first_served
from planner.pool.check import violations
from planner.pool.compact import compact
from planner.pool.instance import (
    CENTS,
    Block,
    Instance,
    block_cents,
    build_instance,
    completion,
    is_late,
    runs_of,
    value_of,
)
from planner.pool.model import GpuGroup, Job, Objective, Pool
from planner.pool.nodes import NodeRange, assign_nodes

UNITS = {
    Objective.MAKESPAN: "h",
    Objective.WEIGHTED_COMPLETION: "weighted h",
    Objective.DEADLINES: "missed",
    Objective.COST: "cost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One model on some GPUs without interruption.

    Attributes:
        gpus: GPUs the plan uses; ``nodes`` are the half-open ranges of the group's nodes reserved for them.
        restarted: Whether the model was resized or paused before, and pays its restart here.
    """

    job: str
    group: str
    gpus: int
    nodes: tuple[NodeRange, ...]
    start_h: float
    end_h: float
    spot: bool
    restarted: bool
    cost: float
    plan: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """When a model is done and what it costs; ``met`` is None without a deadline."""

    job: str
    priority: int
    start_h: float
    end_h: float
    deadline_h: float | None
    met: bool | None
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A schedule made by hand, judged by the same objective.

    Attributes:
        value: Its objective; None if the rule of thumb finds no schedule at all.
        gain: Share of that value which the planned schedule saves.
        missed: How many models end after their deadline.
    """

    name: str
    value: float | None
    gain: float | None
    missed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareResult:
    """A shared schedule with its certificate.

    Attributes:
        value: The objective: hours, weighted hours, weight of missed deadlines, or cost.
        bound: No schedule of these fronts does better.
        gap: (value - bound) / value.
        utilisation: Share of the pool's node-hours until the makespan that is reserved.
        reasons: If there is no schedule, why, in words.
    """

    status: SearchStatus
    objective: Objective
    unit: str
    value: float
    bound: float
    gap: float
    makespan_h: float
    cost: float
    utilisation: float
    groups: tuple[GpuGroup, ...]
    segments: tuple[Segment, ...]
    jobs: tuple[JobOutcome, ...]
    comparisons: tuple[Comparison, ...]
    reasons: tuple[str, ...] = ()


def share(pool: Pool, jobs: Sequence[Job], workers: int = 1) -> ShareResult:
    """Decide how many GPUs of which group each job gets and when.

    Args:
        pool: Groups, objective and when to stop; its requests are not read.
        jobs: The models with their fronts, in the order of the file.
        workers: Threads of the solver; with one, the same pool gives the same answer.

    Raises:
        InputError: If there is no job, or one fits on no group.
    """
    instance = build_instance(pool.groups, jobs, pool.objective, pool.tick_h)
    blocks, bound, infeasible = _solve(instance, pool, workers)
    if blocks is None:
        return _no_schedule(pool, infeasible)
    tidy = compact(instance, blocks)
    broken = violations(instance, tidy)
    if broken:
        raise AssertionError(f"the schedule breaks its rules: {broken}")
    return _result(pool, jobs, instance, tidy, bound)


def _solve(
    instance: Instance, pool: Pool, workers: int
) -> tuple[Sequence[Block] | None, int, bool]:
    from planner.pool.solver_search import search

    answer = search(instance, pool.gap, pool.time_limit_s, workers)
    return answer.blocks, answer.bound, answer.infeasible


def _no_schedule(pool: Pool, infeasible: bool) -> ShareResult:
    reasons = ["no schedule was found within the time limit"]
    if infeasible:
        reasons = ["the groups' hours do not hold all models"]
        if pool.objective is Objective.COST:
            reasons = ["not all deadlines can be met; the objective deadlines shows which ones can"]
    return ShareResult(
        status=SearchStatus.INFEASIBLE,
        objective=pool.objective,
        unit=UNITS[pool.objective],
        value=0.0,
        bound=0.0,
        gap=0.0,
        makespan_h=0.0,
        cost=0.0,
        utilisation=0.0,
        groups=pool.groups,
        segments=(),
        jobs=(),
        comparisons=(),
        reasons=tuple(reasons),
    )


def _result(
    pool: Pool, jobs: Sequence[Job], instance: Instance, blocks: Sequence[Block], bound: int
) -> ShareResult:
    value = value_of(instance, blocks)
    gap = (value - bound) / value if value else 0.0
    scale = _scale(instance)
    makespan = max(block.end for block in blocks)
    used = sum(block.mode.nodes * (block.end - block.start) for block in blocks)
    return ShareResult(
        status=SearchStatus.OPTIMAL if gap <= pool.gap else SearchStatus.FEASIBLE,
        objective=pool.objective,
        unit=UNITS[pool.objective],
        value=value * scale,
        bound=bound * scale,
        gap=gap,
        makespan_h=makespan * instance.tick_h,
        cost=sum(block_cents(block) for block in blocks) / CENTS,
        utilisation=used / (sum(instance.capacities) * makespan),
        groups=pool.groups,
        segments=_segments(pool, jobs, instance, blocks),
        jobs=_outcomes(instance, blocks),
        comparisons=_comparisons(instance, value),
    )


def _scale(instance: Instance) -> float:
    """Return what one unit of the integer objective is for people."""
    if instance.objective is Objective.COST:
        return 1 / CENTS
    return 1.0 if instance.objective is Objective.DEADLINES else instance.tick_h


def _segments(
    pool: Pool, jobs: Sequence[Job], instance: Instance, blocks: Sequence[Block]
) -> tuple[Segment, ...]:
    runs = runs_of(blocks)
    segments = []
    for run, nodes in zip(runs, assign_nodes(instance, runs), strict=True):
        first, job = run[0], jobs[run[0].work]
        point = job.front[first.mode.point]
        segments.append(
            Segment(
                job=job.name,
                group=pool.groups[first.mode.group].name,
                gpus=point.gpus,
                nodes=nodes,
                start_h=first.start * instance.tick_h,
                end_h=run[-1].end * instance.tick_h,
                spot=point.spot,
                restarted=first.restarted,
                cost=sum(block_cents(block) for block in run) / CENTS,
                plan=point.plan,
            )
        )
    return tuple(segments)


def _outcomes(instance: Instance, blocks: Sequence[Block]) -> tuple[JobOutcome, ...]:
    ends = completion(blocks, len(instance.works))
    outcomes = []
    for index, (work, end) in enumerate(zip(instance.works, ends, strict=True)):
        own = [block for block in blocks if block.work == index]
        due = None if work.deadline is None else work.deadline * instance.tick_h
        outcomes.append(
            JobOutcome(
                job=work.name,
                priority=work.weight,
                start_h=min(block.start for block in own) * instance.tick_h,
                end_h=end * instance.tick_h,
                deadline_h=due,
                met=None if due is None else not is_late(work, end),
                cost=sum(block_cents(block) for block in own) / CENTS,
            )
        )
    return tuple(outcomes)


def _comparisons(instance: Instance, value: int) -> tuple[Comparison, ...]:
    rules = {"equal split": equal_split, "first come first served": first_come_first_served}
    return tuple(_compare(instance, name, rule(instance), value) for name, rule in rules.items())


def _compare(
    instance: Instance, name: str, blocks: Sequence[Block] | None, value: int
) -> Comparison:
    if blocks is None:
        return Comparison(name=name, value=None, gain=None, missed=0)
    ends = completion(blocks, len(instance.works))
    own = value_of(instance, blocks)
    return Comparison(
        name=name,
        value=own * _scale(instance),
        gain=(own - value) / own if own else 0.0,
        missed=sum(is_late(work, end) for work, end in zip(instance.works, ends, strict=True)),
    )
