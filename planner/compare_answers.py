"""A comparison of systems as table, plain values, picture and a recommendation in words."""

from collections.abc import Iterator
from typing import Any

from costmodel.units import GIB, format_bytes, format_seconds
from planner.answer_json import plan_to_json
from planner.answer_text import bullets, table
from planner.compare import FREE, Comparison, Outcome
from planner.line_chart import Panel, line_chart
from planner.scenario import Scenario
from planner.systems import SYSTEMS

SCHEMA = 1
_NOTABLE_DROP = 0.1
"""Loss of efficiency, by as much more communication, from one node to more that is worth a sentence."""


def comparison_to_text(comparison: Comparison, scenario: Scenario) -> str:
    """Return heading, table, warnings and recommendation."""
    model, cluster = scenario.graph.model.name, scenario.cluster
    heading = (
        f"{model} on {cluster.name} ({cluster.device.name}), {scenario.training.sequence} tokens, "
        f"{comparison.scaling} scaling; limit {format_bytes(scenario.memory_limit_bytes)} per GPU"
    )
    columns = ["system", "GPUs", "batch", "strategy", "mbs x m", "zero", "iteration", "samples/s"]
    columns += ["efficiency", "memory/GPU", "communication"]
    rows = [_row(comparison, outcome) for outcome in comparison.outcomes if outcome.plan]
    parts = [heading, table(columns, rows), *_absent(comparison)]
    return (
        "\n\n".join([*parts, "Recommendation:\n" + bullets(recommendation(comparison, scenario))])
        + "\n"
    )


def _row(comparison: Comparison, outcome: Outcome) -> list[str]:
    plan = outcome.plan
    if plan is None:
        raise ValueError("only outcomes with a plan have a row")
    strategy = plan.strategy
    return [
        outcome.system,
        str(outcome.gpus),
        str(outcome.global_batch),
        strategy.label(),
        f"{strategy.micro_batch} x {strategy.microbatches}",
        str(strategy.zero),
        format_seconds(plan.iteration_s),
        f"{outcome.samples_per_s:,.1f}",
        f"{comparison.efficiency(outcome):.0%}",
        f"{plan.peak_memory_bytes / GIB:.1f} GiB",
        f"{_communication(outcome):.0%}",
    ]


def _communication(outcome: Outcome) -> float:
    """Return the share of the busiest rank's iteration that exposed communication takes."""
    time = outcome.plan.time if outcome.plan else {}
    names = [
        name for name in time if name.endswith("_comm") or name in ("gather", "tied_embedding")
    ]
    return sum(outcome.share(name) for name in names)


def _absent(comparison: Comparison) -> Iterator[str]:
    """Yield one paragraph of the outcomes without a plan, equal reasons together."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for outcome in comparison.outcomes:
        if outcome.plan is None:
            reasons.setdefault((outcome.system, outcome.reason), []).append(str(outcome.gpus))
    if reasons:
        yield "No plan:\n" + bullets(
            f"{system} on {', '.join(gpus)} GPUs: {reason}"
            for (system, reason), gpus in reasons.items()
        )


def comparison_to_json(comparison: Comparison, scenario: Scenario) -> dict[str, Any]:
    """Return the comparison in plain values."""
    return {
        "schema": SCHEMA,
        "scaling": comparison.scaling,
        "max_global_batch": comparison.batch_limit,
        "systems": {
            name: {
                "title": SYSTEMS[name].title if name in SYSTEMS else "the planner's own choice",
                "warning": SYSTEMS[name].warning if name in SYSTEMS else "",
                "source": SYSTEMS[name].source if name in SYSTEMS else "",
                "outcomes": [_outcome(comparison, outcome) for outcome in comparison.of(name)],
            }
            for name in comparison.systems
        },
        "recommendation": list(recommendation(comparison, scenario)),
    }


def _outcome(comparison: Comparison, outcome: Outcome) -> dict[str, Any]:
    known: dict[str, Any] = {"gpus": outcome.gpus, "global_batch": outcome.global_batch}
    if outcome.plan is None:
        return {**known, "plan": None, "reason": outcome.reason}
    return {
        **known,
        "samples_per_s": outcome.samples_per_s,
        "efficiency": comparison.efficiency(outcome),
        "communication_share": _communication(outcome),
        "plan": plan_to_json(outcome.plan),
    }


def comparison_to_svg(comparison: Comparison, scenario: Scenario) -> str:
    """Return throughput, iteration and memory per GPU over the number of GPUs."""
    throughput: dict[str, list[tuple[float, float]]] = {}
    memory: dict[str, list[tuple[float, float]]] = {}
    seconds: dict[str, list[tuple[float, float]]] = {}
    for outcome in comparison.outcomes:
        if outcome.plan:
            for lines, value in (
                (throughput, outcome.samples_per_s),
                (seconds, outcome.plan.iteration_s),
                (memory, outcome.plan.peak_memory_bytes / GIB),
            ):
                lines.setdefault(outcome.system, []).append((outcome.gpus, value))
    panels = [
        Panel(title="samples/s", lines=throughput),
        Panel(title="seconds per iteration", lines=seconds),
        Panel(title="GiB per GPU", lines=memory, log=False),
    ]
    heading = (
        f"{scenario.graph.model.name} on {scenario.cluster.name}, {comparison.scaling} scaling"
    )
    return line_chart(heading, "GPUs", panels)


def recommendation(comparison: Comparison, scenario: Scenario) -> Iterator[str]:
    """Yield sentences that say what to take on the largest number of GPUs and why, with the numbers."""
    gpus = max((o.gpus for o in comparison.outcomes if o.plan), default=0)
    there = [o for o in comparison.outcomes if o.plan and o.gpus == gpus and not _warning(o)]
    if not there:
        yield "no system has a plan: more GPUs, a smaller batch or more memory are needed"
        return
    there.sort(key=lambda outcome: -outcome.samples_per_s)
    best = there[0]
    yield _choice(comparison, best)
    yield from _rivals(best, there[1:])
    yield from _leanest(best, there)
    yield from _smallest_count(comparison)
    yield from _leaving_the_node(comparison, scenario)
    yield from _batches(comparison, gpus)
    yield from _prices(comparison, best, scenario)
    for name in comparison.systems:
        if name in SYSTEMS and SYSTEMS[name].warning:
            yield f"{name} is not recommended whatever its time: {SYSTEMS[name].warning}"


def _warning(outcome: Outcome) -> str:
    return SYSTEMS[outcome.system].warning if outcome.system in SYSTEMS else ""


def _named(outcome: Outcome) -> str:
    label = outcome.plan.strategy.label() if outcome.plan else ""
    name = "the planner's free choice" if outcome.system == FREE else outcome.system
    return f"{name} ({label})"


def _choice(comparison: Comparison, best: Outcome) -> str:
    plan = best.plan
    if plan is None:
        raise ValueError("only an outcome with a plan is recommended")
    return (
        f"on {best.gpus} GPUs take {_named(best)}: {best.samples_per_s:,.0f} samples/s, "
        f"{format_seconds(plan.iteration_s)} per iteration of {best.global_batch} sequences, "
        f"{plan.peak_memory_bytes / GIB:.1f} GiB per GPU, efficiency {comparison.efficiency(best):.0%}"
    )


def _rivals(best: Outcome, others: list[Outcome]) -> Iterator[str]:
    """Say which are as fast within the band of the prediction, and how far the rest is."""
    if best.plan is None or not others:
        return
    band = best.plan.iteration_s_low / best.plan.iteration_s
    near = [o for o in others if o.samples_per_s >= band * best.samples_per_s]
    far = [o for o in others if o not in near]
    if near:
        yield f"within the error band of it: {', '.join(_behind(best, o) for o in near)}"
    if far:
        yield f"slower: {', '.join(_behind(best, o) for o in far)}"


def _behind(best: Outcome, other: Outcome) -> str:
    return f"{_named(other)} {other.samples_per_s / best.samples_per_s - 1:+.0%}"


def _memory(outcome: Outcome) -> float:
    return outcome.plan.peak_memory_bytes if outcome.plan else float("inf")


def _leanest(best: Outcome, there: list[Outcome]) -> Iterator[str]:
    lean = min(there, key=_memory)
    if _memory(lean) < 0.95 * _memory(best):
        yield (
            f"least memory: {_named(lean)} with {_memory(lean) / GIB:.1f} instead of "
            f"{_memory(best) / GIB:.1f} GiB, at {lean.samples_per_s / best.samples_per_s:.0%} of the throughput"
        )


def _smallest_count(comparison: Comparison) -> Iterator[str]:
    """Say from how many GPUs on each system has a plan, where it is not from the first on."""
    first = min((o.gpus for o in comparison.outcomes), default=0)
    for name in comparison.systems:
        fitting = [o.gpus for o in comparison.of(name) if o.plan]
        if fitting and fitting[0] > first:
            yield f"{name} has a plan from {fitting[0]} GPUs on"


def _leaving_the_node(comparison: Comparison, scenario: Scenario) -> Iterator[str]:
    node = scenario.cluster.gpus_per_node
    for name in comparison.systems:
        inside = [o for o in comparison.of(name) if o.plan and o.gpus <= node]
        outside = [o for o in comparison.of(name) if o.plan and o.gpus > node]
        if inside and outside:
            before, after = inside[-1], outside[0]
            drop = comparison.efficiency(before) - comparison.efficiency(after)
            more = _communication(after) - _communication(before)
            if min(drop, more) > _NOTABLE_DROP:
                yield (
                    f"{name} loses {drop:.0%} of efficiency from {before.gpus} to {after.gpus} GPUs, across nodes: "
                    f"communication takes {_communication(after):.0%} of its time, {_communication(before):.0%} before"
                )


def _prices(comparison: Comparison, best: Outcome, scenario: Scenario) -> Iterator[str]:
    """Say on how many GPUs a sample is cheapest, where the cluster has a price."""
    price = scenario.cluster.price_per_gpu_hour
    if not price:
        return
    running = [item for item in comparison.outcomes if item.plan and not _warning(item)]
    cheapest = min(running, key=lambda item: item.gpus / item.samples_per_s)
    least, fastest = (_cost(item, price) for item in (cheapest, best))
    yield (
        f"cheapest: {_named(cheapest)} on {cheapest.gpus} GPUs at {least:,.2f} per million samples, against "
        f"{fastest:,.2f} for the fastest; a spot price instead of {price:g} per GPU-hour lowers both alike"
    )


def _cost(outcome: Outcome, price_per_gpu_hour: float) -> float:
    """Return the cost of a million samples."""
    return price_per_gpu_hour * outcome.gpus / 3600 / outcome.samples_per_s * 1e6


def _batches(comparison: Comparison, gpus: int) -> Iterator[str]:
    batches = [outcome.global_batch for outcome in comparison.outcomes if outcome.global_batch]
    if comparison.batch_limit and max(batches) == comparison.batch_limit:
        yield f"the global batch stays at limits.max_global_batch, {comparison.batch_limit} sequences"
    if min(batches) < max(batches):
        yield (
            f"the global batch grows from {min(batches)} to {max(batches)} sequences up to {gpus} GPUs: throughput "
            f"gained with it is not convergence gained, as large batches take more samples; bound it with "
            f"limits.max_global_batch"
        )
