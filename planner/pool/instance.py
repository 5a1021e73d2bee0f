"""The shared-pool problem in integers: ticks, nodes and cents, rounded here and nowhere else."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.errors import InputError
from planner.pool.model import FrontPoint, GpuGroup, Job, Objective

CENTS = 100  # costs are compared to the hundredth of the user's currency


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way to run one piece of a job.

    Attributes:
        point: Index into the job's front; equal points run on without a restart.
        group: Index of the group.
        nodes: Whole nodes reserved.
        ticks: Duration without restart.
        cents_per_tick: Price of those nodes for one tick.
    """

    point: int
    group: int
    nodes: int
    ticks: int
    cents_per_tick: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One job: its pieces in order, each with its modes.

    Attributes:
        pieces: For each piece between checkpoints the modes to choose from.
        restart: Ticks added to a piece that does not continue its predecessor.
        deadline: Tick by which the last piece should end, None without.
    """

    name: str
    weight: int
    pieces: tuple[tuple[Mode, ...], ...]
    restart: int
    deadline: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """All jobs and groups.

    Attributes:
        capacities: Nodes of each group.
        windows: First tick and end tick of each group; the end is at most ``horizon``.
        horizon: A tick by which everything can be done if it can be done at all.
        tick_h: Hours of a tick.
    """

    capacities: tuple[int, ...]
    windows: tuple[tuple[int, int], ...]
    works: tuple[Work, ...]
    horizon: int
    tick_h: float
    objective: Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece that runs: ``end - start`` is the mode's ticks, and the restart if ``restarted``."""

    work: int
    piece: int
    mode: Mode
    start: int
    end: int
    restarted: bool = False


def build_instance(
    groups: Sequence[GpuGroup], jobs: Sequence[Job], objective: Objective, tick_h: float
) -> Instance:
    """Round a pool to integers; hours go up to whole ticks, GPUs up to whole nodes.

    Raises:
        InputError: If a job has no way to run in any group.
    """
    works = tuple(_work(job, groups, tick_h) for job in jobs)
    start = max(math.ceil(group.from_h / tick_h) for group in groups)
    slowest = (max(mode.ticks for mode in piece) for work in works for piece in work.pieces)
    restarts = sum(work.restart * (len(work.pieces) - 1) for work in works)
    horizon = start + sum(slowest) + restarts
    return Instance(
        capacities=tuple(group.nodes for group in groups),
        windows=tuple(_window(group, tick_h, horizon) for group in groups),
        works=works,
        horizon=horizon,
        tick_h=tick_h,
        objective=objective,
    )


def completion(blocks: Sequence[Block], works: int) -> list[int]:
    """Return the tick at which each of ``works`` jobs ends."""
    ends = [0] * works
    for block in blocks:
        ends[block.work] = max(ends[block.work], block.end)
    return ends


def runs_of(blocks: Sequence[Block]) -> list[list[Block]]:
    """Return the blocks by job, joined where a piece continues its predecessor without restart."""
    runs: list[list[Block]] = []
    for block in sorted(blocks, key=lambda block: (block.work, block.piece)):
        if block.piece and not block.restarted:
            runs[-1].append(block)
        else:
            runs.append([block])
    return runs


def block_cents(block: Block) -> int:
    """Return the cents of one block, rounded up as the solver rounds them."""
    return math.ceil(block.mode.cents_per_tick * (block.end - block.start) - 1e-9)


def value_of(instance: Instance, blocks: Sequence[Block]) -> int:
    """Return the objective: ticks, weighted ticks, weight of missed deadlines, or cents."""
    ends = completion(blocks, len(instance.works))
    if instance.objective is Objective.MAKESPAN:
        return max(ends)
    if instance.objective is Objective.COST:
        return sum(block_cents(block) for block in blocks)
    pairs = zip(instance.works, ends, strict=True)
    if instance.objective is Objective.WEIGHTED_COMPLETION:
        return sum(work.weight * end for work, end in pairs)
    return sum(work.weight for work, end in pairs if is_late(work, end))


def is_late(work: Work, end: int) -> bool:
    """Return whether a job that ends at ``end`` misses its deadline."""
    return work.deadline is not None and end > work.deadline


def _window(group: GpuGroup, tick_h: float, horizon: int) -> tuple[int, int]:
    first = math.ceil(group.from_h / tick_h)
    if group.until_h is None:
        return first, horizon
    return first, max(first, min(horizon, math.floor(group.until_h / tick_h + 1e-9)))


def _work(job: Job, groups: Sequence[GpuGroup], tick_h: float) -> Work:
    bounds = (0.0, *job.checkpoints, 1.0)
    shares = [after - before for before, after in itertools.pairwise(bounds)]
    pieces = tuple(_modes(job, groups, share, tick_h) for share in shares)
    if not pieces[0]:
        raise InputError("must fit on some group of the pool", key=f"models.{job.name}")
    deadline = None if job.deadline_h is None else math.floor(job.deadline_h / tick_h + 1e-9)
    return Work(
        name=job.name,
        weight=job.priority,
        pieces=pieces,
        restart=math.ceil(job.restart_h / tick_h - 1e-9),
        deadline=deadline,
    )


def _modes(job: Job, groups: Sequence[GpuGroup], share: float, tick_h: float) -> tuple[Mode, ...]:
    index = {group.name: place for place, group in enumerate(groups)}
    modes = [
        _mode(place, point, index[point.group], groups[index[point.group]], share, tick_h)
        for place, point in enumerate(job.front)
    ]
    return tuple(mode for mode in modes if mode.nodes <= groups[mode.group].nodes)


def _mode(
    place: int, point: FrontPoint, index: int, group: GpuGroup, share: float, tick_h: float
) -> Mode:
    return Mode(
        point=place,
        group=index,
        nodes=-(-point.gpus // group.gpus_per_node),
        ticks=max(1, math.ceil(point.hours * share / tick_h - 1e-9)),
        cents_per_tick=CENTS * point.cost / point.hours * tick_h,
    )
