"""Every tensor x pipeline x data configuration of a scenario, as DistSim's search case tabulates them.

DistSim (Lu et al., CF 2023, arXiv 2306.08423) profiles what is unique in all of them once: an operator with its shapes,
a collective with its bytes, group and link. What that costs against running every configuration is counted here too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from costmodel.events import CommEvent, Event
from costmodel.pricing import Pricer
from costmodel.simulator import iteration_ns, simulate
from costmodel.strategy import Strategy
from costmodel.timeline import Timeline
from planner.coefficients import coefficients
from planner.mixed.cluster import spread_limit_bytes
from planner.plans import Placement, Plan
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.simulation import arrangement_of, simulate_placement
from planner.space import enumerate_space
from planner.strategy_text import parse_placement
from planner.systems import apply_system

MEASURED_RANKS = 8
"""GPUs on which a larger collective is measured; the ring law gives the rest (DistSim, section 4.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The fastest plan of one combination of degrees, whether it fits or not.

    Attributes:
        plan: Its prediction.
        timeline: Its simulated iteration, one row for each pipeline rank.
        tried: How many micro-batch sizes and switches were simulated for it.
    """

    plan: Plan
    timeline: Timeline
    tried: int

    @property
    def label(self) -> str:
        """DistSim's notation: 2M4P2D is tensor 2, pipeline 4, data 2."""
        return distsim_label(self.plan.strategy)

    @property
    def utilisation(self) -> tuple[float, ...]:
        """Share of the iteration in which the GPUs of each pipeline rank work on micro-batches."""
        ranks = range(self.plan.strategy.pp)
        return tuple(self.timeline.busy_ns(r) / self.timeline.iteration_ns for r in ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiling:
    """What measuring costs, in GPU-seconds of one repetition.

    Attributes:
        events: Unique events of all configurations.
        unique_gpu_s: Each measured once, on as many GPUs as it needs.
        direct_gpu_s: One iteration of every configuration on all its GPUs.
    """

    events: int
    unique_gpu_s: float
    direct_gpu_s: float

    @property
    def share(self) -> float:
        """Cost of unique events over that of running everything."""
        return self.unique_gpu_s / self.direct_gpu_s


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeGrid:
    """All configurations, fastest first, with what profiling them costs."""

    configurations: tuple[Configuration, ...]
    profiling: Profiling

    @property
    def spread(self) -> float:
        """Throughput of the best configuration over that of the worst."""
        best, worst = self.configurations[0], self.configurations[-1]
        return worst.plan.iteration_s / best.plan.iteration_s


def distsim_label(strategy: Strategy) -> str:
    """Return the degrees as DistSim writes them."""
    return f"{strategy.tp}M{strategy.pp}P{strategy.dp}D"


def degree_grid(scenario: Scenario) -> DegreeGrid | None:
    """Return every configuration with equal stages; None where the scenario leaves no strategy."""
    scenario = apply_system(scenario)
    pricer, columns = make_pricer(scenario), enumerate_space(scenario).columns
    found: dict[str, list[_Try]] = {}
    for row in range(len(columns)):
        attempt = _tried(scenario, pricer, columns.strategy(row))
        if attempt:
            found.setdefault(distsim_label(attempt.strategy), []).append(attempt)
    if not found:
        return None
    best = [_configuration(scenario, pricer, attempts) for attempts in found.values()]
    best.sort(key=lambda item: item.plan.iteration_s)
    return DegreeGrid(configurations=tuple(best), profiling=_profiling(pricer.prices.priced, best))


class _Try(NamedTuple):
    """One strategy: whether it lacks memory, its nanoseconds, where its layers stand."""

    lacks: bool
    iteration_ns: int
    strategy: Strategy
    placement: Placement


def _tried(scenario: Scenario, pricer: Pricer, strategy: Strategy) -> _Try | None:
    placement = parse_placement(None, strategy, len(scenario.graph.layers))
    if placement is None:
        return None
    given = coefficients(pricer.cost(strategy), spread_limit_bytes(scenario))
    arrangement = arrangement_of(placement)
    time_ns = iteration_ns(given.work(arrangement))
    return _Try(not given.fits(arrangement), time_ns, strategy, placement)


def _configuration(scenario: Scenario, pricer: Pricer, attempts: Sequence[_Try]) -> Configuration:
    """Return the fastest of those that fit, of all where none does."""
    first = min(attempts, key=lambda attempt: attempt[:2])
    simulation = simulate_placement(scenario, pricer, first.strategy, first.placement)
    if simulation.plan is None or simulation.work is None:
        raise ValueError(f"{first.strategy.label()} was legal a moment ago")
    return Configuration(
        plan=simulation.plan, timeline=simulate(simulation.work), tried=len(attempts)
    )


def _profiling(seconds: Mapping[Event, float], all_of_them: Sequence[Configuration]) -> Profiling:
    plans = [item.plan for item in all_of_them]
    return Profiling(
        events=len(seconds),
        unique_gpu_s=sum(value * _gpus(event) for event, value in seconds.items()),
        direct_gpu_s=sum(plan.iteration_s * plan.strategy.gpus for plan in plans),
    )


def _gpus(event: Event) -> int:
    return min(event.group_size, MEASURED_RANKS) if isinstance(event, CommEvent) else 1
