"""What-if: the same question with one thing changed, answered by searching again on prices made before."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from costmodel.errors import InputError
from costmodel.units import KIB
from planner.explain import with_gpus
from planner.plans import Plan, SearchResult, SearchStatus
from planner.scenario import Scenario
from planner.scenario_search import open_session
from planner.search import plan
from planner.source import Source

MAX_STEPS = 512
"""Thresholds a memory sweep finds at most before it says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStep:
    """From ``memory_bytes`` per GPU on, ``plan`` is the best, until the next step.

    Attributes:
        lower_bound_s: No plan within this memory (just below the next step) simulates faster.
    """

    memory_bytes: float
    plan: Plan
    lower_bound_s: float

    @property
    def gap(self) -> float:
        """Return how far from the proven bound the plan is, relative to its time."""
        return (self.plan.iteration_s - self.lower_bound_s) / self.plan.iteration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One changed scenario and its answer.

    Attributes:
        label: What was changed, for people; ``changes`` holds the keys and values where keys were set.
        error: Why the change itself is refused.
    """

    label: str
    result: SearchResult | None
    error: str | None = None
    changes: Mapping[str, object] = field(default_factory=dict)

    @property
    def best(self) -> Plan | None:
        """Return the first plan, if any."""
        return self.result.plans[0] if self.result and self.result.plans else None


def memory_points(scenario: Scenario, limits_bytes: Sequence[float]) -> tuple[Variant, ...]:
    """Return the answer at each memory limit, in the order given; what more memory proved serves less."""
    session = open_session(scenario)
    results = {
        limit: plan(
            replace(scenario, memory_limit_bytes=limit), top=1, session=session, explain=False
        )
        for limit in sorted(set(limits_bytes), reverse=True)
    }
    return tuple(
        Variant(label=f"{limit / 2**30:g}GiB", result=results[limit]) for limit in limits_bytes
    )


def memory_sweep(
    scenario: Scenario,
    *,
    tolerance: float = 0.0,
    on_step: Callable[[MemoryStep], None] | None = None,
) -> tuple[MemoryStep, ...]:
    """Return every memory threshold at which the best plan changes, in rising memory.

    The best plan at a limit needs some demand; the next smaller threshold is found by searching with a limit
    one KiB below that demand, until nothing fits. Between two thresholds the plan stays proven best, since
    less memory only removes plans.

    Args:
        scenario: Its device's memory is where the sweep begins (from above).
        tolerance: Gap of each search.
        on_step: Called with every step as it is found, for progress.
    """
    steps: list[MemoryStep] = []
    for step in itertools.islice(_falling(scenario, tolerance), MAX_STEPS):
        if steps and steps[-1].plan.iteration_s == step.plan.iteration_s:
            steps.pop()
        steps.append(step)
        if on_step:
            on_step(step)
    return tuple(reversed(steps))


def _falling(scenario: Scenario, tolerance: float) -> Iterator[MemoryStep]:
    session = open_session(scenario)
    limit: float = max(group.device.memory_bytes for group in scenario.cluster.groups)
    while limit > 0:
        changed = replace(scenario, memory_limit_bytes=limit)
        result = plan(changed, top=1, tolerance=tolerance, session=session, explain=False)
        if result.status is SearchStatus.INFEASIBLE:
            return
        best = result.plans[0]
        yield MemoryStep(
            memory_bytes=best.demand_bytes, plan=best, lower_bound_s=result.lower_bound_s
        )
        limit = best.demand_bytes - KIB


def price_of_memory(steps: Sequence[MemoryStep], limit_bytes: float) -> float | None:
    """Return seconds of an iteration saved per GiB more than ``limit_bytes``, None where more does not help."""
    above = [step for step in steps if step.memory_bytes > limit_bytes]
    here = [step for step in steps if step.memory_bytes <= limit_bytes]
    if not above or not here:
        return None
    saved = here[-1].plan.iteration_s - above[0].plan.iteration_s
    return saved / ((above[0].memory_bytes - limit_bytes) / 2**30)


def set_grid(source: Source, grid: Mapping[str, Sequence[object]]) -> tuple[Variant, ...]:
    """Return the answer for each combination of values of the given keys of a scenario.

    Raises:
        InputError: If the scenario itself is wrong or has no such key; a wrong combination stands in its
            variant's ``error``.
    """
    source.scenario()
    variants = []
    for values in itertools.product(*grid.values()):
        changes = dict(zip(grid, values, strict=True))
        variants.append(_variant(source, changes))
    return tuple(variants)


def _variant(source: Source, changes: Mapping[str, object]) -> Variant:
    for key, value in changes.items():
        source = source.changed(key, value)
    label = ", ".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in changes.items()
    )
    try:
        result = plan(source.scenario(), top=1, explain=False)
        return Variant(label=label, result=result, changes=changes)
    except InputError as error:
        return Variant(label=label, result=None, error=str(error), changes=changes)


def gpu_sweep(scenario: Scenario, counts: Sequence[int] | None = None) -> tuple[Variant, ...]:
    """Return the answer for each number of GPUs (powers of two from one node up to the budget by default)."""
    budget = scenario.gpu_counts[-1]
    if counts is None:
        counts = [1 << i for i in range(budget.bit_length()) if 1 << i < budget] + [budget]
    return tuple(
        Variant(label=f"{count}", result=plan(with_gpus(scenario, count), top=1, explain=False))
        for count in counts
    )


def fewest_gpus(scenario: Scenario) -> Variant | None:
    """Return the smallest number of GPUs, up to the budget, on which any plan fits.

    Numbers are tried in rising order over those whose node count is whole or that lie inside one node; not
    every larger number fits where a smaller one does, so no bisection is possible.
    """
    budget, node = scenario.gpu_counts[-1], scenario.cluster.gpus_per_node
    counts = [*range(1, min(node, budget) + 1), *range(2 * node, budget + 1, node)]
    for count in counts:
        result = plan(with_gpus(scenario, count), top=1, explain=False)
        if result.plans:
            return Variant(label=f"{count}", result=result)
    return None


def largest(
    changed: Callable[[int], Scenario], start: int, limit: int
) -> tuple[int, SearchResult] | None:
    """Return the largest multiple of ``start`` up to ``limit`` whose ``changed`` scenario still has a plan.

    Doubles until nothing fits, then halves the step; demand grows with what is enlarged, so the answer is exact.
    """
    best: tuple[int, SearchResult] | None = None
    low, step = start, start
    while low <= limit:
        result = plan(changed(low), top=1, explain=False)
        if not result.plans:
            break
        best, step = (low, result), low
        low *= 2
    step //= 2
    while best is not None and step >= start:
        trial = best[0] + step
        if trial <= limit and trial % start == 0:
            result = plan(changed(trial), top=1, explain=False)
            best = (trial, result) if result.plans else best
        step //= 2
    return best
