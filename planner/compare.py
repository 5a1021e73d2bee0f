"""Published systems side by side: the best plan of each over numbers of GPUs, as the survey of frameworks drew them.

Efficiency is throughput per GPU over that of the smallest number of GPUs on which the system has a plan.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from costmodel.errors import InputError
from costmodel.pricing import Pricer
from planner.coefficients import Arrangement, coefficients
from planner.engine import search
from planner.plans import Plan
from planner.scenario import Bound, Scenario
from planner.scenario_pricer import make_pricer
from planner.segments import min_max_segments
from planner.simulation import simulate_placement
from planner.space import Space, enumerate_space
from planner.systems import SYSTEMS, System, apply_system

Scaling = Literal["strong", "weak", "survey"]

FREE = "free"
"""The row that is no system: everything the scenario's own framework and bounds allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One system on one number of GPUs.

    Attributes:
        system: Its name, or FREE.
        global_batch: Sequences of an iteration; 0 where the system cannot run there at all.
        plan: Its fastest plan that fits, None if there is none.
        reason: Why there is none.
    """

    system: str
    gpus: int
    global_batch: int
    plan: Plan | None
    reason: str = ""

    @property
    def samples_per_s(self) -> float:
        """Sequences a second, 0 without a plan."""
        return self.global_batch / self.plan.iteration_s if self.plan else 0.0

    def share(self, term: str) -> float:
        """Return which share of the iteration of the busiest rank goes to ``term``."""
        return self.plan.time.get(term, 0.0) / self.plan.iteration_s if self.plan else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All outcomes, system by system and by rising number of GPUs.

    Attributes:
        scaling: How the batch follows the GPUs.
        batch_limit: ``limits.max_global_batch``, where given.
    """

    scaling: Scaling
    outcomes: tuple[Outcome, ...]
    batch_limit: int | None

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems, in order."""
        return tuple(dict.fromkeys(outcome.system for outcome in self.outcomes))

    def of(self, system: str) -> tuple[Outcome, ...]:
        """Return the outcomes of one system."""
        return tuple(outcome for outcome in self.outcomes if outcome.system == system)

    def at(self, system: str, gpus: int) -> Outcome:
        """Return one outcome."""
        return next(outcome for outcome in self.of(system) if outcome.gpus == gpus)

    def efficiency(self, outcome: Outcome) -> float:
        """Return its throughput per GPU over that of the system's first plan."""
        first = next((item for item in self.of(outcome.system) if item.plan), None)
        if first is None:
            return 0.0
        return outcome.samples_per_s / outcome.gpus / (first.samples_per_s / first.gpus)


def compare(
    scenario: Scenario, systems: Sequence[str], gpu_counts: Iterable[int], scaling: Scaling
) -> Comparison:
    """Return the best plan of every system on every number of GPUs.

    Args:
        scenario: The question; its global batch belongs to its full budget.
        systems: Names from planner.systems, or FREE.
        gpu_counts: Numbers of GPUs, in rising order.
        scaling: strong: the same global batch throughout. weak: the same batch per GPU. survey: as the
            survey ran each system (planner.systems.SurveyRule). No batch exceeds the scenario's limit.

    Raises:
        InputError: If the GPUs are of several kinds, or weak scaling does not give whole sequences per GPU.
    """
    if len(scenario.cluster.groups) > 1:
        raise InputError("must have GPUs of one kind for a comparison", key="cluster.groups")
    counts = tuple(gpu_counts)
    outcomes = tuple(_outcome(scenario, name, gpus, scaling) for name in systems for gpus in counts)
    return Comparison(scaling=scaling, outcomes=outcomes, batch_limit=scenario.max_global_batch)


def _outcome(scenario: Scenario, name: str, gpus: int, scaling: Scaling) -> Outcome:
    system = SYSTEMS.get(name)
    if system and system.one_node and gpus > scenario.cluster.gpus_per_node:
        reason = f"runs inside one node of {scenario.cluster.gpus_per_node} GPUs"
        return Outcome(system=name, gpus=gpus, global_batch=0, plan=None, reason=reason)
    scaled = scaled_scenario(scenario, system, gpus, scaling)
    batch = scaled.training.global_batch
    try:
        if system:
            scaled = apply_system(replace(scaled, system=name))
        plan, reason = best_plan(scaled, system)
    except InputError as error:  # the scenario's own bounds leave this system nothing
        plan, reason = None, str(error)
    return Outcome(system=name, gpus=gpus, global_batch=batch, plan=plan, reason=reason)


def scaled_scenario(
    scenario: Scenario, system: System | None, gpus: int, scaling: Scaling
) -> Scenario:
    """Return the scenario on ``gpus`` GPUs with the batch that the scaling asks for.

    Raises:
        InputError: If weak scaling does not give whole sequences per GPU.
    """
    group = replace(scenario.cluster.groups[0], gpus=gpus)
    batch = _batch(scenario, system, gpus, scaling)
    scaled = replace(
        scenario,
        cluster=replace(scenario.cluster, groups=(group,)),
        gpu_counts=(gpus,),
        training=replace(scenario.training, global_batch=batch),
    )
    if scaling == "survey" and system:
        return _as_surveyed(scaled, system, gpus)
    return scaled


def _batch(scenario: Scenario, system: System | None, gpus: int, scaling: Scaling) -> int:
    batch, budget = scenario.training.global_batch, scenario.cluster.gpus
    if scaling != "strong":
        per_gpu, rest = divmod(batch, budget)
        if rest:
            raise InputError(
                f"must be a multiple of the {budget} GPUs where the batch per GPU stays",
                key="training.global_batch",
                value=batch,
                nearest=max(1, round(batch / budget)) * budget,
            )
        grows = scaling == "weak" or system is None or system.survey.batch_grows
        batch = per_gpu * gpus if grows else per_gpu
    return min(batch, scenario.max_global_batch or batch)


def _as_surveyed(scenario: Scenario, system: System, gpus: int) -> Scenario:
    """Fix micro-batches and precision as the survey ran the system."""
    rule = system.survey
    microbatches = rule.microbatches * (gpus if rule.per_gpu else 1)
    sizes = {
        scenario.training.global_batch // (microbatches * replicas)
        for replicas in range(1, gpus + 1)
        if gpus % replicas == 0
    }
    bounds = {
        **scenario.bounds,
        "microbatches": Bound(allowed=(microbatches,)),
        "micro_batch": Bound(allowed=tuple(sorted(sizes - {0}))),
    }
    training = scenario.training
    if not rule.mixed_precision:
        tensor = "tf32" in scenario.cluster.device.peak_flops
        training = replace(training, precision="tf32" if tensor else "fp32")
    return replace(scenario, bounds=bounds, training=training)


def best_plan(scenario: Scenario, system: System | None) -> tuple[Plan | None, str]:
    """Return the fastest plan that fits, or None and the reason why there is none."""
    space, pricer = enumerate_space(scenario), make_pricer(scenario)
    if not len(space.columns):
        return None, _commonest(space, scenario)
    if system and system.partition == "time":
        return _best_by_time(scenario, space, pricer)
    found = search(
        space.columns,
        pricer,
        memory_limit_bytes=scenario.memory_limit_bytes,
        uneven=scenario.uneven_stages,
    )
    if not found.ranked:
        return None, "no plan fits the memory"
    first = found.ranked[0]
    return simulate_placement(scenario, pricer, first.strategy, first.placement).plan, ""


def _best_by_time(scenario: Scenario, space: Space, pricer: Pricer) -> tuple[Plan | None, str]:
    """Return the fastest plan whose stages are balanced by time alone, whatever they send or hold."""
    best: Plan | None = None
    for row in range(len(space.columns)):
        strategy = space.columns.strategy(row)
        given = coefficients(pricer.cost(strategy), scenario.memory_limit_bytes)
        times = [given.forward.layer[k] + given.backward.layer[k] for k in given.layer_kinds]
        times[0] += given.forward.first + given.backward.first
        times[-1] += given.forward.last + given.backward.last
        cuts = min_max_segments(times, strategy.pp)
        sizes = [stop - start for start, stop in pairwise(cuts)]
        again = tuple(sizes) if given.recompute_all else (0,) * len(sizes)
        placement = Arrangement(cuts, again).placement()
        plan = simulate_placement(scenario, pricer, strategy, placement).plan
        if plan and plan.fits and (best is None or plan.iteration_s < best.iteration_s):
            best = plan
    return best, "" if best else "no plan fits the memory"


def _commonest(space: Space, scenario: Scenario) -> str:
    """Return the rule to which the last strategies fell."""
    if space.rejections:
        return space.rejections[-1].rule.text
    return f"its bounds leave no strategy for a batch of {scenario.training.global_batch}"
