"""Which unique events strategies need, which a table lacks, and what measuring them once saves.

The pricer itself is asked: a table that knows nothing stands before its formulas and notes what is looked up, so that what
is measured is exactly what will be priced.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from costmodel.events import CommEvent, ComputeEvent, Event
from costmodel.frameworks import behaviour
from costmodel.pricing import Pricer
from costmodel.split import local_sizes, operator_work
from costmodel.strategy import Strategy
from costmodel.table import Table
from planner.engine import search
from planner.mixed.cluster import spread_limit_bytes
from planner.pricer import PricerLike
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.simulation import simulate_placement
from planner.space import enumerate_space
from planner.strategy_text import parse_placement

LARGEST_GROUP = 8
"""Larger groups are scaled by law (costmodel.table.Table.scaled), as in DistSim (CF'23, section 4.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Cost of measuring unique events against running the whole iteration on all GPUs, as often.

    Attributes:
        events: Unique events at this size.
        events_s: GPU-seconds of one repeat of each.
        direct_s: GPU-seconds of one iteration.
    """

    gpus: int
    events: int
    events_s: float
    direct_s: float

    @property
    def share(self) -> float:
        """Unique events over direct profiling."""
        return self.events_s / self.direct_s


class _Notebook:
    """A table that knows no price and notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: dict[Event, None] = {}

    def lookup(self, event: Event) -> tuple[float, str] | None:
        """Note the event."""
        if not isinstance(event, CommEvent) or event.group_size > 1:
            self.asked[event] = None
        return None


def needed_events(scenario: Scenario, strategies: Iterable[Strategy]) -> dict[Event, int]:
    """Return the unique events of ``strategies`` with their count.

    Compute events are counted over one iteration of one data-parallel replica and tensor-parallel rank, all pipeline
    stages; what the pricer composes of unit prices (collectives, optimizer) counts once.
    """
    notebook = _Notebook()
    counts: dict[Event, int] = {}
    pricer = Pricer(scenario.graph, scenario.cluster, scenario.training, tables=[notebook])
    for strategy in strategies:
        pricer.cost(strategy)
        for event, count in _compute_counts(scenario, strategy).items():
            counts[event] = max(counts.get(event, 0), count)
    return {event: counts.get(event, 1) for event in notebook.asked}


def missing_events(wanted: dict[Event, int], tables: Sequence[Table]) -> dict[Event, int]:
    """Return those of ``wanted`` that no table measured or tried; interpolated ones are still wanted."""
    return Table.merge(tables).missing(wanted)


def best_strategies(scenario: Scenario, top: int) -> tuple[Strategy, ...]:
    """Return the strategies of the ``top`` best plans."""
    found = search(
        enumerate_space(scenario).columns,
        cast("PricerLike", make_pricer(scenario)),
        memory_limit_bytes=spread_limit_bytes(scenario),
        top=top,
        uneven=scenario.uneven_stages,
    )
    return tuple(ranked.strategy for ranked in found.ranked)


def savings(
    scenario: Scenario, strategy: Strategy, sizes: Sequence[int] = (16, 64, 1024)
) -> tuple[Saving, ...]:
    """Return what unique events save at several numbers of GPUs, data parallelism growing with them.

    Prices are the scenario's (tables first); sizes that do not hold whole replicas are left out.
    """
    model_parallel = strategy.tp * strategy.pp * strategy.cp
    found = (
        _saving(scenario, replace(strategy, dp=size // model_parallel))
        for size in sizes
        if size % model_parallel == 0
    )
    return tuple(saving for saving in found if saving is not None)


def _saving(scenario: Scenario, strategy: Strategy) -> Saving | None:
    scaled = _scaled(scenario, strategy)
    placement = parse_placement(None, strategy, len(scenario.graph.layers))
    if placement is None:
        return None
    pricer = make_pricer(scaled)
    plan = simulate_placement(scaled, pricer, strategy, placement).plan
    events = needed_events(scaled, [strategy])
    if plan is None:
        return None
    return Saving(
        gpus=strategy.gpus,
        events=len(events),
        events_s=_device_seconds(pricer, events),
        direct_s=plan.iteration_s * strategy.gpus,
    )


def _device_seconds(pricer: Pricer, events: Iterable[Event]) -> float:
    """Return the GPU-seconds of one repeat of each event: compute on one, a collective on its ranks."""
    return sum(
        pricer.prices.compute([event])[0]
        if isinstance(event, ComputeEvent)
        else pricer.prices.comm(event) * min(event.group_size, LARGEST_GROUP)
        for event in events
    )


def _scaled(scenario: Scenario, strategy: Strategy) -> Scenario:
    group = replace(scenario.cluster.groups[0], gpus=strategy.gpus)
    return replace(
        scenario,
        cluster=replace(scenario.cluster, groups=(group,)),
        gpu_counts=(strategy.gpus,),
        training=replace(scenario.training, global_batch=strategy.global_batch),
    )


def _compute_counts(scenario: Scenario, strategy: Strategy) -> dict[Event, int]:
    framework = behaviour(scenario.training)
    local = local_sizes(scenario.training, strategy)
    graph = scenario.graph
    layers = [*zip(graph.kinds, graph.kind_counts(), strict=True)]
    layers += [(graph.embedding, 1), (graph.head, 1)]
    counts: dict[Event, int] = {}
    for layer, number in layers:
        for operator in layer.operators:
            work = operator_work(operator, local, framework)
            for _, event in (*work.forward, *work.backward, *work.weight):
                counts[event] = counts.get(event, 0) + number * strategy.microbatches
    return counts
