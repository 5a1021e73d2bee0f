"""Pools one can compute by hand, and an exhaustive search that shares no code with the planner's."""

import itertools
import random
from collections.abc import Iterator

from planner.pool.instance import Block, Instance, Mode, Work, build_instance, value_of
from planner.pool.model import FrontPoint, GpuGroup, Job, Objective

HOUR = 1.0


def make_group(name: str = "h100", nodes: int = 4, **values: float) -> GpuGroup:
    """Return a group of ``nodes`` nodes of one GPU each."""
    return GpuGroup(name=name, cluster="any", gpus=nodes, gpus_per_node=1, **values)  # type: ignore[arg-type]


def make_point(nodes: int, hours: float, group: str = "h100", price: float = 1.0) -> FrontPoint:
    """Return a point whose price is per node and hour."""
    return FrontPoint(
        group=group, gpus=nodes, iteration_s=1.0, hours=hours, cost=nodes * hours * price
    )


def make_job(name: str, *points: tuple[int, float], **values: object) -> Job:
    """Return a job with a front of (nodes, hours)."""
    front = tuple(make_point(nodes, hours) for nodes, hours in points)
    return Job(name=name, front=front, **values)  # type: ignore[arg-type]


def make_instance(
    *jobs: Job, nodes: int = 4, objective: Objective = Objective.MAKESPAN
) -> Instance:
    """Return an instance on one group with ticks of one hour."""
    return build_instance([make_group(nodes=nodes)], jobs, objective, HOUR)


def random_instance(seed: int, objective: Objective, jobs: int = 3) -> Instance:
    """Return a small pool with two groups, deadlines and priorities."""
    rng = random.Random(seed)
    groups = [make_group("h100", 3), make_group("a100", 2, from_h=float(seed % 2))]
    made = []
    for number in range(jobs):
        hours = rng.randint(2, 4)
        fast = make_point(2, max(1, hours - rng.randint(1, 2)), price=2.0)
        front = (make_point(1, hours, price=2.0), fast, make_point(1, hours + 1, "a100"))
        deadline = float(rng.randint(2, 6)) if rng.random() < 0.6 else None
        priority = rng.randint(1, 3)
        made.append(Job(name=f"job {number}", front=front, deadline_h=deadline, priority=priority))
    return build_instance(groups, made, objective, HOUR)


def best_by_enumeration(instance: Instance) -> int | None:
    """Return the best objective over all modes and all starts; None if nothing is feasible."""
    values = (value_of(instance, blocks) for blocks in _all_schedules(instance))
    return min(values, default=None)


def _all_schedules(instance: Instance) -> Iterator[list[Block]]:
    choices = [list(_all_runs(instance, work, j)) for j, work in enumerate(instance.works)]
    for picked in itertools.product(*choices):
        blocks = [block for run in picked for block in run]
        if _holds(instance, blocks):
            yield blocks


def _all_runs(instance: Instance, work: Work, job: int) -> Iterator[tuple[Block, ...]]:
    per_piece = [
        [
            _block(job, piece, mode, start, work.restart * again, again)
            for mode in modes
            for again in (False, True)[: 1 + (piece > 0)]
            for start in range(instance.horizon)
        ]
        for piece, modes in enumerate(work.pieces)
    ]
    for run in itertools.product(*per_piece):
        if all(_follows(a, b) for a, b in itertools.pairwise(run)) and _in_hours(instance, run):
            yield run


def _block(job: int, piece: int, mode: Mode, start: int, extra: int, again: bool) -> Block:
    end = start + mode.ticks + extra
    return Block(work=job, piece=piece, mode=mode, start=start, end=end, restarted=again)


def _follows(before: Block, after: Block) -> bool:
    if after.restarted:
        return after.start >= before.end
    return after.start == before.end and after.mode.point == before.mode.point


def _in_hours(instance: Instance, run: tuple[Block, ...]) -> bool:
    windows = [instance.windows[block.mode.group] for block in run]
    return all(w[0] <= b.start and b.end <= w[1] for w, b in zip(windows, run, strict=True))


def _holds(instance: Instance, blocks: list[Block]) -> bool:
    if instance.objective is Objective.COST:
        for block in blocks:
            deadline = instance.works[block.work].deadline
            if deadline is not None and block.end > deadline:
                return False
    for moment in {block.start for block in blocks}:
        used = [0] * len(instance.capacities)
        for block in blocks:
            if block.start <= moment < block.end:
                used[block.mode.group] += block.mode.nodes
        if any(u > c for u, c in zip(used, instance.capacities, strict=True)):
            return False
    return True
