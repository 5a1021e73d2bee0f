"""Better placements nearby: move a layer from where the critical path visits much to where it visits little.

Every critical path seen on the way is kept: it is a valid lower bound of every placement, so it tells without
simulation that most neighbours cannot be better, and the exact proof starts from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from costmodel.simulator import critical_path
from costmodel.timeline import CriticalPath, PipelineWork
from planner.stage_values import StageValues

_SOURCES, _TARGETS = 4, 6
"""How many of the most and least visited stages give and take a layer."""
_NEWEST = 40
"""Paths tried on a neighbour before it is simulated."""


@dataclass(slots=True, kw_only=True)
class Incumbent:
    """The best placement of a strategy so far, and the critical paths met.

    Attributes:
        cuts: Positions at which stages begin and end.
        time_ns: Its simulated iteration.
        paths: Critical paths of the placements that were looked at, without repeats.
    """

    cuts: tuple[int, ...]
    time_ns: int
    paths: dict[CriticalPath, None] = field(default_factory=dict)

    def learn(self, work: PipelineWork) -> CriticalPath:
        """Keep and return the critical path of ``work``."""
        path = critical_path(work)
        self.paths.setdefault(path)
        return path


def improve(values: StageValues, start: Incumbent, *, simulations: int, goal_ns: int = 0) -> None:
    """Improve ``start`` in place until no neighbour is better.

    Args:
        values: Stage values of the strategy.
        start: A placement that fits, with its time.
        simulations: How many neighbours may be simulated.
        goal_ns: Stop once the time is not above this (a proven lower bound).
    """
    spent, better = 0, True
    while better and start.time_ns > goal_ns:
        better = False
        work = values.work(start.cuts)
        if work is None:
            return
        path = start.learn(work)
        for cuts in _neighbours(path, work, start.cuts):
            if spent >= simulations:
                return
            other = values.work(cuts)
            if other is None or _excluded(start, other):
                continue
            spent += 1
            values.simulated += 1
            time_ns = start.learn(other).length_ns(other)
            if time_ns < start.time_ns:
                start.cuts, start.time_ns, better = cuts, time_ns, True
                break


def _excluded(known: Incumbent, work: PipelineWork) -> bool:
    newest = islice(reversed(known.paths), _NEWEST)
    return any(path.length_ns(work) >= known.time_ns for path in newest)


def gather_paths(values: StageValues, known: Incumbent, cuts: tuple[int, ...], count: int) -> None:
    """Keep the critical paths of up to ``count`` neighbours of a placement that fits, better or not."""
    work = values.work(cuts)
    if work is None:
        return
    for other in islice(_neighbours(known.learn(work), work, cuts), count):
        neighbour = values.work(other)
        if neighbour is not None:
            known.learn(neighbour)


def _neighbours(
    path: CriticalPath, work: PipelineWork, cuts: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Yield cuts with one layer moved, the most promising moves first."""
    stages = range(len(cuts) - 1)
    load = [
        (path.forward[s] * work.forward_ns[s] + path.backward[s] * work.backward_ns[s])
        / max(1, cuts[s + 1] - cuts[s])
        for s in stages
    ]
    ranked = sorted(stages, key=lambda s: (load[s], s))
    sources = [s for s in reversed(ranked) if cuts[s + 1] - cuts[s] > 1][:_SOURCES]
    pairs = [(s, t) for s in sources for t in ranked[:_TARGETS] if s != t]
    for source, target in sorted(pairs, key=lambda pair: (load[pair[1]] - load[pair[0]], pair)):
        yield moved(cuts, source, target)


def moved(cuts: tuple[int, ...], source: int, target: int) -> tuple[int, ...]:
    """Return cuts with one layer less on ``source`` and one more on ``target``."""
    step = -1 if source < target else 1
    low, high = sorted((source, target))
    return tuple(cut + step if low < at <= high else cut for at, cut in enumerate(cuts))
