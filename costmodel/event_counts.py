"""How often each unique event occurs in an iteration, counted by the pricer itself.

Prices may be arrays with a lane for each of many trials (costmodel.lanes). Here each event has a lane of its own in which
it alone takes a unit of time and all others none: sums then count, micro-batches multiply, and as no lane holds two
events nothing hides behind anything. So no list of what a layer issues is kept beside the one that prices it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from costmodel.cost import Finish, StrategyCost
from costmodel.events import CommEvent, Event
from costmodel.linear import ChunkContent, StageTerm
from costmodel.pricing import Pricer
from costmodel.strategy import Strategy

# Seconds of an event in its lane: so many that the model's constants (launches, overheads) are lost beside it.
_UNIT_S = 1e12
Counts = NDArray[np.float64]


class Notebook:
    """A table that knows no price and notes what it is asked for; a group of one rank has nothing to exchange."""

    def __init__(self) -> None:
        self.asked: dict[Event, None] = {}

    def lookup(self, event: Event) -> tuple[float, str] | None:
        """Note the event."""
        if not isinstance(event, CommEvent) or event.group_size > 1:
            self.asked[event] = None
        return None


class _Lanes:
    """A table in which each event takes a unit of time in its own lane."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = list(events)
        self._index = {event: index for index, event in enumerate(self._events)}

    def lookup(self, event: Event) -> tuple[float, str]:
        """Return the event's lanes; what was not asked for takes no time."""
        lanes = np.zeros(len(self._events))
        if event in self._index:
            lanes[self._index[event]] = _UNIT_S
        return cast("float", lanes), "measured"

    def counted(self, seconds: Counts) -> dict[Event, float]:
        """Return the events of lanes with their counts; whole numbers are freed of rounding."""
        counts = seconds / _UNIT_S
        whole = np.rint(counts)
        near = np.abs(counts - whole) <= 1e-6 * np.maximum(whole, 1.0)
        return dict(zip(self._events, np.where(near, whole, counts).tolist(), strict=True))


def unique_events(pricer: Pricer, strategy: Strategy) -> tuple[Event, ...]:
    """Return the events that the prices of ``strategy`` are made of."""
    notebook = Notebook()
    Pricer(
        pricer.graph,
        pricer.cluster,
        pricer.training,
        constants=pricer.constants,
        tables=[notebook],
    ).time_cost(strategy)
    return tuple(notebook.asked)


def event_counts(
    pricer: Pricer, strategy: Strategy, chunks: Sequence[ChunkContent]
) -> Mapping[Event, float]:
    """Return the unique events of an iteration with their counts, summed over the pipeline ranks of one replica.

    Each rank counts the collectives it takes part in. What is composed of unit prices counts in units: bytes of gradients
    in buckets, of the optimizer in streams of its event's size. An event may count 0: it is priced as a rate only.

    Args:
        pricer: Whose model, cluster, training and constants count.
        strategy: The strategy.
        chunks: What each virtual stage holds, in model order.
    """
    lanes = _Lanes(unique_events(pricer, strategy))
    cost = Pricer(
        pricer.graph, pricer.cluster, pricer.training, constants=pricer.constants, tables=[lanes]
    ).time_cost(strategy)
    return lanes.counted(_passes(cost, chunks) + _transfers(cost, chunks) + _ends(cost, chunks))


def _passes(cost: StrategyCost, chunks: Sequence[ChunkContent]) -> Counts:
    terms = (*cost.forward, *cost.backward)
    each = [_value(terms, [chunk]) for chunk in chunks]
    return cost.strategy.microbatches * sum(each[1:], start=each[0])


def _transfers(cost: StrategyCost, chunks: Sequence[ChunkContent]) -> Counts:
    """Every micro-batch passes each boundary of virtual stages forward and back."""
    crossed = cost.transfer_s and [
        cost.transfer_s[stage % cost.strategy.pp] for stage in range(len(chunks) - 1)
    ]
    return np.asarray(2.0 * cost.strategy.microbatches * sum(crossed))


def _ends(cost: StrategyCost, chunks: Sequence[ChunkContent]) -> Counts:
    pp = cost.strategy.pp
    ranks = [_end(cost.finish, chunks[rank::pp]) for rank in range(pp)]
    return sum(ranks[1:], start=ranks[0])


def _end(finish: Sequence[Finish], chunks: Sequence[ChunkContent]) -> Counts:
    """Return the longest alternative, lane by lane: that in which nothing is hidden."""
    ways = [_value(item.terms, chunks) for item in finish]
    return np.asarray(np.maximum.reduce(np.broadcast_arrays(0.0, *ways)))


def _value(terms: Sequence[StageTerm], chunks: Sequence[ChunkContent]) -> Counts:
    return np.asarray(sum(item.value(chunks) for item in terms))
