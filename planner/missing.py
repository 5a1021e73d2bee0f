"""Which unique events strategies need, which a table lacks, and what measuring them once saves.

The pricer itself is asked (costmodel.event_counts), so that what is measured is exactly what will be priced.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from costmodel.event_counts import event_counts
from costmodel.events import ComputeEvent, Event
from costmodel.linear import ChunkContent
from costmodel.pricing import Pricer
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


def needed_events(scenario: Scenario, strategies: Iterable[Strategy]) -> dict[Event, int]:
    """Return the unique events of ``strategies`` with their count, the largest of any strategy.

    Counts are those of an iteration of one data-parallel replica and tensor-parallel rank, all pipeline ranks together
    (costmodel.event_counts), and at least 1: what is priced as a rate is measured too.
    """
    pricer = Pricer(scenario.graph, scenario.cluster, scenario.training)
    counts: dict[Event, int] = {}
    for strategy in strategies:
        found = event_counts(pricer, strategy, _anywhere(scenario, strategy))
        for event, count in found.items():
            counts[event] = max(counts.get(event, 1), round(count))
    return counts


def _anywhere(scenario: Scenario, strategy: Strategy) -> list[ChunkContent]:
    """Return virtual stages that hold all layers: sums over stages do not ask on which."""
    nothing = (0,) * len(scenario.graph.kinds)
    layers, stages = scenario.graph.kind_counts(), strategy.pp * strategy.vpp
    again = layers if strategy.recompute == "full" else nothing
    return [
        ChunkContent(
            layers=nothing if stage else layers,
            recomputed=nothing if stage else again,
            first=stage == 0,
            last=stage == stages - 1,
        )
        for stage in range(stages)
    ]


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
