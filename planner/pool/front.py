"""From planned sizes to a job's front: which GPUs, how many, for how long, at what price."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.pool.model import FrontPoint, GpuGroup, Job, Request
from planner.pool.read import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSize:
    """The best plan of a model on ``gpus`` GPUs of one group."""

    group: str
    gpus: int
    iteration_s: float
    tokens_per_s: float
    plan: str


def sizes_to_plan(request: Request, group: GpuGroup) -> tuple[int, ...]:
    """Return the numbers of GPUs to plan for: doublings of a node within the range, and its upper end.

    Whole nodes are reserved, so sizes are whole nodes; a model is not asked for more than the group has.
    """
    node = group.gpus_per_node
    low = -(-(request.min_gpus or node) // node) * node
    high = min(group.gpus, request.max_gpus or group.gpus) // node * node
    sizes = set()
    while low <= high:
        sizes.add(low)
        low *= 2
    return tuple(sorted(sizes | {high})) if sizes else ()


def allowed_groups(request: Request, groups: Sequence[GpuGroup]) -> tuple[GpuGroup, ...]:
    """Return the groups a model may use."""
    return tuple(g for g in groups if not request.groups or g.name in request.groups)


def job_from(
    request: Request, tokens: float, groups: Sequence[GpuGroup], sizes: Iterable[PlannedSize]
) -> Job:
    """Return the job with its front, on demand and on spot GPUs where those are offered.

    Args:
        request: What the pool file asks.
        tokens: Tokens to train.
        groups: The pool's groups.
        sizes: The planned sizes that fit.
    """
    by_name = {group.name: group for group in groups}
    points = [
        point
        for size in sizes
        for spot in (False, True)
        if (point := _point(size, by_name[size.group], tokens, spot)) is not None
    ]
    return Job(
        name=request.name,
        front=_undominated(points),
        priority=request.priority,
        deadline_h=request.deadline_h,
        checkpoints=request.checkpoints,
        restart_h=request.restart_h,
    )


def _point(size: PlannedSize, group: GpuGroup, tokens: float, spot: bool) -> FrontPoint | None:
    nodes = -(-size.gpus // group.gpus_per_node)
    hours: float | None = tokens / size.tokens_per_s / SECONDS_PER_HOUR
    price = group.price_per_gpu_hour
    if spot:
        if group.spot is None or hours is None:
            return None
        hours = group.spot.stretched_hours(hours, nodes)
        price *= 1 - group.spot.discount
    if hours is None:
        return None
    return FrontPoint(
        group=size.group,
        gpus=size.gpus,
        iteration_s=size.iteration_s,
        hours=hours,
        cost=nodes * group.gpus_per_node * hours * price,
        spot=spot,
        plan=size.plan,
    )


def _undominated(points: Sequence[FrontPoint]) -> tuple[FrontPoint, ...]:
    """Drop what is no faster than fewer nodes of the same group at the same terms."""
    kept: list[FrontPoint] = []
    fastest: dict[tuple[str, bool], float] = {}
    ordered = sorted(points, key=lambda p: (p.group, p.spot, p.gpus, p.hours))
    for point in ordered:
        if point.hours < fastest.get((point.group, point.spot), float("inf")):
            fastest[point.group, point.spot] = point.hours
            kept.append(point)
    return tuple(kept)
