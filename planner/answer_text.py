"""Answers as text for a terminal: the ranked table, the certificate and the reasons for rejection."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from costmodel.spec import ClusterSpec, TrainingSpec
from costmodel.units import format_bytes, format_count, format_seconds
from costmodel.verdict import Verdict
from planner.input_rate import input_sentences
from planner.launching import launches, obstacles
from planner.mixed.cluster import limits_bytes
from planner.plans import Plan, SearchResult, SearchStatus, StageReport
from planner.scenario import Scenario
from planner.simulation import Simulation
from planner.systems import SYSTEMS

_SECONDS_PER_DAY = 86400.0
_MARK = "*"
_SHORT = re.compile(r"[a-z-]*\d[a-z0-9]*")
"""A device name up to its first part with a digit: ``a100`` of ``a100-sxm-80gb``."""


def result_to_text(result: SearchResult, scenario: Scenario) -> str:
    """Return the whole answer of ``plan``: heading, table, certificate, rejections."""
    parts = [_heading(scenario)]
    if result.plans:
        parts += [marked_table(result.plans, scenario), *_stages_of_mixed(result.plans[0])]
        parts.append(_where_time_goes(result.plans[0]))
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


def _stages_of_mixed(plan: Plan) -> Iterator[str]:
    """Yield the stages of a plan whose pipeline ranks stand on several device groups."""
    if len(set(plan.placement.device_groups)) > 1:
        yield f"Plan {plan.rank}, stage by stage:\n{_stages(plan)}"


def _stages(plan: Plan) -> str:
    mixed = any(stage.device for stage in plan.stages)
    columns = [
        "stage",
        *(["runs on"] if mixed else []),
        "layers",
        "recomputed",
        "forward",
        "backward",
        "allocated",
        "reserved",
        *(["limit"] if mixed else []),
        "peak at",
    ]
    rows = [
        [
            str(index),
            *([_runs_on(plan, stage)] if mixed else []),
            " + ".join(f"{c.first_layer}-{c.first_layer + c.layers - 1}" for c in stage.chunks),
            str(sum(chunk.recomputed for chunk in stage.chunks)),
            format_seconds(stage.forward_s),
            format_seconds(stage.backward_s),
            format_bytes(stage.allocated_bytes),
            format_bytes(stage.memory_bytes),
            *([format_bytes(stage.memory_limit_bytes)] if mixed else []),
            stage.peak_moment,
        ]
        for index, stage in enumerate(plan.stages)
    ]
    return table(columns, rows)


def _runs_on(plan: Plan, stage: StageReport) -> str:
    return f"{plan.strategy.gpus // plan.strategy.pp} {stage.device}"


def _overrun(plan: Plan) -> str:
    fullest = plan.tightest
    over = fullest.memory_bytes - plan.limit_bytes(fullest)
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
    if len(scenario.cluster.groups) > 1:
        columns.insert(6, "devices")
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
        f"{graph.model.name} ({format_count(graph.parameters)} parameters) on {cluster.kinds} "
        f"({cluster.name}), batch {training.global_batch} x {training.sequence} tokens, "
        f"{training.framework}, {training.precision}\n"
        f"limit {_limits(scenario)}; MFU counts causal attention at half and "
        f"no recomputation{notes}"
    )


def _limits(scenario: Scenario) -> str:
    """Return what a GPU may hold; of several device groups, what each may."""
    groups = scenario.cluster.groups
    if len(groups) == 1:
        return f"{format_bytes(scenario.memory_limit_bytes)} per GPU"
    limits = limits_bytes(scenario, range(len(groups)))
    return ", ".join(
        f"{format_bytes(limit)} per {group.device.name}"
        for limit, group in zip(limits, groups, strict=True)
    )


def devices_label(plan: Plan, cluster: ClusterSpec) -> str:
    """Return on which devices the pipeline ranks run, in their order; how a plan without ranks of its own is priced."""
    groups = plan.placement.device_groups
    if not groups:
        return f"all, each as {cluster.device.name}"
    names = [_short_names(cluster)[group] for group in groups]
    runs = [(name, len(list(same))) for name, same in groupby(names)]
    if len(runs) == 1:
        return runs[0][0]
    return " ".join(f"{length}x{name}" if length > 1 else name for name, length in runs)


def _short_names(cluster: ClusterSpec) -> list[str]:
    """Return the names of the groups' devices, up to the first part with a digit where that tells them apart."""
    names = [group.device.name for group in cluster.groups]
    short = [_SHORT.match(name) for name in names]
    found = [match[0] if match else name for match, name in zip(short, names, strict=True)]
    return found if len(set(found)) == len(set(names)) else names


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
    strategy, tightest = plan.strategy, plan.tightest
    half = (plan.iteration_s_high - plan.iteration_s_low) / 2 / plan.iteration_s
    row = [
        strategy.label() + (" sp" if strategy.sequence_parallel else ""),
        f"{strategy.micro_batch} x {strategy.microbatches}",
        strategy.schedule if strategy.pp > 1 else "-",
        str(strategy.zero),
        layers_label(plan.placement.layer_counts()),
        *([devices_label(plan, cluster)] if len(cluster.groups) > 1 else []),
        recompute_label(plan),
        f"{format_seconds(plan.iteration_s)} +-{half:.0%}",
        f"{plan.tokens_per_s:,.0f}",
        f"{plan.mfu:.1%}",
        f"{tightest.memory_bytes / 2**30:.1f} / {plan.limit_bytes(tightest) / 2**30:.1f} GiB",
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
    fullest = plan.tightest
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
