"""Answers as text for a terminal: the ranked table, the certificate and the reasons for rejection."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from costmodel.spec import ClusterSpec, TrainingSpec
from costmodel.units import format_bytes, format_count, format_seconds
from costmodel.verdict import Verdict
from planner.input_rate import input_sentences
from planner.launching import launches, obstacles
from planner.plans import Plan, SearchResult, SearchStatus
from planner.scenario import Scenario
from planner.simulation import Simulation
from planner.systems import SYSTEMS

_SECONDS_PER_DAY = 86400.0
_MARK = "*"


def result_to_text(result: SearchResult, scenario: Scenario) -> str:
    """Return the whole answer of ``plan``: heading, table, certificate, rejections."""
    parts = [_heading(scenario)]
    if result.plans:
        parts += [marked_table(result.plans, scenario), _where_time_goes(result.plans[0])]
        parts += input_sentences(result.plans[0], scenario)
    parts.append(_certificate(result))
    if result.rejected:
        parts.append(_rejections(result))
    if result.levers:
        parts.append("What would make it fit:\n" + bullets(result.levers))
    return "\n\n".join(parts) + "\n"


def simulation_to_text(simulation: Simulation, scenario: Scenario) -> str:
    """Return the prediction of one strategy with its stages, or the rules it breaks."""
    if simulation.plan is None:
        broken = bullets(f"{item.rule}: {item.text}" for item in simulation.violations)
        return f"{_heading(scenario)}\n\nIllegal: {simulation.strategy.label()}\n{broken}\n"
    plan = simulation.plan
    parts = [
        _heading(scenario),
        marked_table([plan], scenario),
        _stages(plan),
        _where_time_goes(plan),
        *input_sentences(plan, scenario),
    ]
    parts.append(_fit(plan, simulation.verdict))
    return "\n\n".join(parts) + "\n"


def _fit(plan: Plan, found: Verdict | None) -> str:
    if found == "fits":
        return "It fits."
    if found == "oom":
        return f"It does not fit: {_overrun(plan)}."
    return (
        f"Borderline: {_overrun(plan)}. It may run once the allocator has given back what it cached, "
        "slower, or fail after a while."
    )


def _stages(plan: Plan) -> str:
    columns = [
        "stage",
        "layers",
        "recomputed",
        "forward",
        "backward",
        "allocated",
        "reserved",
        "peak at",
    ]
    rows = [
        [
            str(index),
            " + ".join(f"{c.first_layer}-{c.first_layer + c.layers - 1}" for c in stage.chunks),
            str(sum(chunk.recomputed for chunk in stage.chunks)),
            format_seconds(stage.forward_s),
            format_seconds(stage.backward_s),
            format_bytes(stage.allocated_bytes),
            format_bytes(stage.memory_bytes),
            stage.peak_moment,
        ]
        for index, stage in enumerate(plan.stages)
    ]
    return table(columns, rows)


def _overrun(plan: Plan) -> str:
    fullest = max(plan.stages, key=lambda stage: stage.memory_bytes)
    over = fullest.memory_bytes - plan.memory_limit_bytes
    largest = max(fullest.memory.items(), key=lambda item: item[1])
    return (
        f"stage {plan.stages.index(fullest)} is {format_bytes(over)} over the limit at {fullest.peak_moment}; "
        f"its largest term is {largest[0]}, {format_bytes(largest[1])}"
    )


def marked_table(plans: Sequence[Plan], scenario: Scenario) -> str:
    """Return the ranked table and, below it, why the framework does not launch the marked plans as they are."""
    notes = (f"{_MARK} {why}" for why in obstacles(scenario, plans))
    return "\n".join([plans_table(plans, scenario), *notes])


def plans_table(plans: Sequence[Plan], scenario: Scenario) -> str:
    """Return the ranked table, one plan a line."""
    columns = ["#", "strategy", "mbs x m", "schedule", "zero", "layers per stage", "recompute"]
    columns += ["iteration (80 % band)", "tokens/s", "MFU", "peak / limit"]
    training, price = scenario.training, scenario.cluster.price_per_gpu_hour
    if training.tokens:
        columns.append("days")
    if training.tokens and price:
        columns.append("cost")
    rows = [[_rank(plan, scenario), *_row(plan, training, scenario.cluster)] for plan in plans]
    return table(columns, rows)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return aligned columns; the first row is underlined, numbers stand as given."""
    lines = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    padded = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([padded[0], "-" * max(len(line) for line in padded), *padded[1:]])


def layers_label(counts: Sequence[int]) -> str:
    """Return ``20/20/20/20`` for few stages, ``8x10, 1x9`` runs for many."""
    if len(counts) <= 8:
        return "/".join(str(count) for count in counts)
    runs = [(count, len(list(group))) for count, group in groupby(counts)]
    return " ".join(f"{length}x{count}" if length > 1 else str(count) for count, length in runs)


def _heading(scenario: Scenario) -> str:
    graph, cluster, training = scenario.graph, scenario.cluster, scenario.training
    notes = "".join(f"\nnote: {note}" for note in (*graph.model.notes, *_system_notes(scenario)))
    return (
        f"{graph.model.name} ({format_count(graph.parameters)} parameters) on {_gpus(cluster)} "
        f"({cluster.name}), batch {training.global_batch} x {training.sequence} tokens, "
        f"{training.framework}, {training.precision}\n"
        f"limit {format_bytes(scenario.memory_limit_bytes)} per GPU; MFU counts causal attention at half and "
        f"no recomputation{notes}"
    )


def _gpus(cluster: ClusterSpec) -> str:
    """Return the number of GPUs of each kind; a mixed cluster says how it is priced."""
    kinds = " + ".join(f"{group.gpus} {group.device.name}" for group in cluster.groups)
    return kinds if len(cluster.groups) == 1 else f"{kinds}, each priced as {cluster.device.name}"


def _system_notes(scenario: Scenario) -> Iterator[str]:
    """Say whose rules the answer follows, and what that system makes one accept."""
    if scenario.system:
        system = SYSTEMS[scenario.system]
        yield f"as {system.title} does it: framework {system.framework}"
        if system.warning:
            yield f"{scenario.system}: {system.warning}"


def _rank(plan: Plan, scenario: Scenario) -> str:
    """Return the rank, ``=`` where other plans are as fast within the band, marked if the framework does not launch it."""
    tied = "=" if plan.tied_with else ""
    return f"{plan.rank}{tied}{_MARK if launches(scenario, plan) is False else ''}"


def _row(plan: Plan, training: TrainingSpec, cluster: ClusterSpec) -> list[str]:
    strategy = plan.strategy
    half = (plan.iteration_s_high - plan.iteration_s_low) / 2 / plan.iteration_s
    row = [
        strategy.label() + (" sp" if strategy.sequence_parallel else ""),
        f"{strategy.micro_batch} x {strategy.microbatches}",
        strategy.schedule if strategy.pp > 1 else "-",
        str(strategy.zero),
        layers_label(plan.placement.layer_counts()),
        recompute_label(plan),
        f"{format_seconds(plan.iteration_s)} +-{half:.0%}",
        f"{plan.tokens_per_s:,.0f}",
        f"{plan.mfu:.1%}",
        f"{plan.peak_memory_bytes / 2**30:.1f} / {plan.memory_limit_bytes / 2**30:.1f} GiB",
    ]
    if training.tokens:
        days = training.tokens / plan.tokens_per_s / _SECONDS_PER_DAY
        row.append(f"{days:.1f}")
        if cluster.price_per_gpu_hour:
            row.append(f"{days * 24 * strategy.gpus * cluster.price_per_gpu_hour:,.0f}")
    return row


def recompute_label(plan: Plan) -> str:
    """Return what a plan recomputes: a kind, or the fully recomputed layers of each stage."""
    counts = [sum(chunk.recomputed for chunk in stage.chunks) for stage in plan.stages]
    if not any(counts):
        return plan.strategy.recompute
    totals = [sum(chunk.layers for chunk in stage.chunks) for stage in plan.stages]
    return "full" if counts == totals else f"full {layers_label(counts)}"


def _where_time_goes(plan: Plan) -> str:
    shares = sorted(plan.time.items(), key=lambda item: -item[1])
    parts = [f"{name} {seconds / plan.iteration_s:.0%}" for name, seconds in shares if seconds > 0]
    fullest = max(plan.stages, key=lambda stage: stage.memory_bytes)
    memory = sorted(fullest.memory.items(), key=lambda item: -item[1])
    held = [f"{name} {size / 2**30:.1f}" for name, size in memory if size >= 2**28]
    index = plan.stages.index(fullest)
    return (
        f"Plan 1, busiest rank: {', '.join(parts)}\n"
        f"Plan 1, fullest stage ({index}, at {fullest.peak_moment}): {', '.join(held)} GiB{_priced(plan)}"
    )


def _priced(plan: Plan) -> str:
    """Say which share of the iteration was measured, where any was."""
    if plan.price_shares.get("analytic", 1.0) >= 1.0:
        return ""
    parts = [f"{share:.0%} {name}" for name, share in plan.price_shares.items()]
    return f"\nPlan 1, prices behind its iteration time: {', '.join(parts)}"


def _certificate(result: SearchResult) -> str:
    counts = result.counts
    effort = (
        f"{counts.strategies:,} strategies considered, {counts.solved} placements solved, "
        f"{counts.simulated} plans simulated in {format_seconds(counts.seconds)}"
    )
    if result.status is SearchStatus.INFEASIBLE:
        return f"No plan exists within these bounds: {effort}."
    kind = "optimal" if result.status is SearchStatus.OPTIMAL else "best found (time limit)"
    return (
        f"Status: {kind}; no plan of this space simulates faster than "
        f"{format_seconds(result.lower_bound_s)} (gap {result.gap:.2%}).\n{effort}."
    )


def _rejections(result: SearchResult) -> str:
    common = sorted(result.rejected, key=lambda item: (-item.count, item.reason))[:3]
    return "Commonest reasons for rejection:\n" + bullets(
        f"{item.reason} ({item.count:,}): {item.nearest}" for item in common
    )


def bullets(lines: Iterable[str]) -> str:
    """Return the lines as a list."""
    return "\n".join(f"  - {line}" for line in lines)
