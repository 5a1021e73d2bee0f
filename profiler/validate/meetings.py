"""What a rank does between collectives, and how long the collectives themselves take, in a run that holds both.

DTensor and fully_shard issue theirs inside the modules. A collective lasts from when the last rank has come to when the last
has gone: what the earlier ranks wait for it belongs to the computation before it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from costmodel.events import Collective, CommEvent

# fully_shard calls the short names since PyTorch 2.13, where the long ones wrap them.
_SHORT = hasattr(dist, "all_gather_single")
_ISSUERS: Mapping[Collective, tuple[ModuleType, str]] = {
    "all_reduce": (functional, "all_reduce"),
    "all_gather": (dist, "all_gather_single" if _SHORT else "all_gather_into_tensor"),
    "reduce_scatter": (dist, "reduce_scatter_single" if _SHORT else "reduce_scatter_tensor"),
}
"""What DTensor and fully_shard call: module and function."""
Pieces = list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """One collective on one rank."""

    event: CommEvent
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A run on one rank.

    Attributes:
        pieces: Seconds before, between and behind its collectives.
        meetings: The collectives, in order.
    """

    pieces: Pieces
    meetings: list[Meeting]


def watch(run: Callable[[], object]) -> Watched:
    """Run ``run``, all ranks starting together."""
    meetings: list[Meeting] = []
    dist.barrier()
    with _noted(meetings):
        start = time.perf_counter()
        run()
        end = time.perf_counter()
    return Watched(pieces=between(start, meetings, end), meetings=meetings)


def between(start: float, meetings: Sequence[Meeting], end: float) -> Pieces:
    """Return what lies between ``start`` and ``end`` outside of the meetings."""
    begins = [*(meeting.begin_s for meeting in meetings), end]
    ends = [start, *(meeting.end_s for meeting in meetings)]
    return [begin - ended for ended, begin in zip(ends, begins, strict=True)]


def lasted(meetings: Sequence[Meeting]) -> dict[CommEvent, list[float]]:
    """Return the seconds of each collective from the last rank's begin to the last one's end; all ranks call this."""
    if not meetings:
        return {}
    times = torch.tensor([[m.begin_s, m.end_s] for m in meetings], dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    found: dict[CommEvent, list[float]] = {}
    for meeting, (begin, end) in zip(meetings, times.tolist(), strict=True):
        found.setdefault(meeting.event, []).append(end - begin)
    return found


@contextmanager
def _noted(meetings: list[Meeting]) -> Iterator[None]:
    """Note every collective; each is waited for at once, as its user does a little later."""
    kept = {name: getattr(*place) for name, place in _ISSUERS.items()}
    for name, place in _ISSUERS.items():
        setattr(*place, _timed(name, kept[name], meetings))
    try:
        yield
    finally:
        for name, place in _ISSUERS.items():
            setattr(*place, kept[name])


def _timed(
    name: Collective, inner: Callable[..., Any], meetings: list[Meeting]
) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = inner(*args, **kwargs)
        if hasattr(result, "wait"):
            result.wait()
        end = time.perf_counter()
        event = _event(name, [*args, *kwargs.values()])
        meetings.append(Meeting(event=event, begin_s=begin, end_s=end))
        return result

    return timed


def _event(name: Collective, arguments: Sequence[object]) -> CommEvent:
    ranks = dist.get_world_size()
    sizes = [value.nbytes for value in arguments if isinstance(value, torch.Tensor)]
    return CommEvent(collective=name, bytes=max(sizes), group_size=ranks, per_node=ranks, level=0)
