"""What people do by hand: the schedules that the planned one is compared with."""

from collections.abc import Sequence

from planner.pool.heuristic import Profile, empty_profiles
from planner.pool.instance import Block, Instance, Mode, Work


def first_come_first_served(instance: Instance) -> tuple[Block, ...] | None:
    """Take the jobs in the order of the file: each takes what ends it soonest, none overtakes.

    A job starts at the earliest when its predecessor in the file has started, and keeps its GPUs from start to
    end.

    Returns:
        None if a job fits nowhere in the hours of its groups.
    """
    profiles = empty_profiles(instance)
    blocks: list[Block] = []
    ready = 0
    for index, work in enumerate(instance.works):
        found = _soonest(profiles, work, ready)
        if found is None:
            return None
        point, ready = found
        own = _run(work, index, point, ready)
        profiles[own[0].mode.group].reserve(own[0].mode.nodes, ready, own[-1].end)
        blocks += own
    return tuple(blocks)


def equal_split(instance: Instance) -> tuple[Block, ...] | None:
    """Cut the pool into equal slices, as many as there are jobs if the largest job fits into one.

    The slice is the pool's nodes over the number of jobs, raised to what the most demanding job needs at least.
    Jobs take slices in the order of the file, each the one in which it ends soonest, with the fastest mode that
    the slice holds.

    Returns:
        None if a job fits nowhere in the hours of its groups.
    """
    even = sum(instance.capacities) // len(instance.works)
    size = max(1, even, *(min(mode.nodes for mode in work.pieces[0]) for work in instance.works))
    slices = [
        _Slice(group=group, nodes=size, free_at=first, end=end)
        for group, capacity in enumerate(instance.capacities)
        for first, end in (instance.windows[group],)
        for _ in range(capacity // size)
    ]
    blocks: list[Block] = []
    for index, work in enumerate(instance.works):
        own = _into_slice(slices, work, index)
        if own is None:
            return None
        blocks += own
    return tuple(blocks)


class _Slice:
    """A fixed part of a group, used by one job at a time."""

    __slots__ = ("end", "free_at", "group", "nodes")

    def __init__(self, *, group: int, nodes: int, free_at: int, end: int) -> None:
        self.group, self.nodes, self.free_at, self.end = group, nodes, free_at, end

    def fastest(self, work: Work) -> Mode | None:
        """Return the mode that is over soonest among those the slice holds until its hours end."""
        fitting = [
            mode
            for mode in work.pieces[0]
            if mode.group == self.group
            and mode.nodes <= self.nodes
            and self.free_at + whole_ticks(work, mode.point) <= self.end
        ]
        return min(fitting, key=lambda mode: whole_ticks(work, mode.point), default=None)


def whole_ticks(work: Work, point: int) -> int:
    """Return the ticks of all pieces of a job run in one mode."""
    return sum(_at(piece, point).ticks for piece in work.pieces)


def _into_slice(slices: Sequence[_Slice], work: Work, index: int) -> list[Block] | None:
    options = [
        (part.free_at + whole_ticks(work, mode.point), place, mode.point)
        for place, part in enumerate(slices)
        if (mode := part.fastest(work)) is not None
    ]
    if not options:
        return None
    end, place, point = min(options)
    own = _run(work, index, point, slices[place].free_at)
    slices[place].free_at = end
    return own


def _soonest(profiles: Sequence[Profile], work: Work, ready: int) -> tuple[int, int] | None:
    options = []
    for mode in work.pieces[0]:
        ticks = whole_ticks(work, mode.point)
        start = profiles[mode.group].earliest(mode.nodes, ticks, ready)
        if start is not None:
            options.append((start + ticks, mode.nodes, mode.point, start))
    if not options:
        return None
    _, _, point, start = min(options)
    return point, start


def _run(work: Work, index: int, point: int, start: int) -> list[Block]:
    blocks = []
    for piece, modes in enumerate(work.pieces):
        mode = _at(modes, point)
        blocks.append(
            Block(work=index, piece=piece, mode=mode, start=start, end=start + mode.ticks)
        )
        start += mode.ticks
    return blocks


def _at(modes: Sequence[Mode], point: int) -> Mode:
    return next(mode for mode in modes if mode.point == point)
