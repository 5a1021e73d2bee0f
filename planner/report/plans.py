"""Ranked plans: the table, where the time goes, and each stage's memory against the limit."""

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.strategy import FIELD_NAMES, Strategy
from costmodel.units import GIB, format_bytes, format_seconds
from planner.answer_text import layers_label
from planner.report.bars import Bar, stacked_bars
from planner.report.markup import Markup, join, tag
from planner.report.page import Section
from planner.report.tables import Cell, folded, number, sortable, word

_SHOWN_PLANS = 20
Json = Mapping[str, Any]


def plans_sections(answer: Json) -> list[Section]:
    """Return the sections of one answer of ``plan``.

    Args:
        answer: The contract's JSON (planner.answer_json.result_to_json).
    """
    plans = answer["plans"]
    if not plans:
        return [Section(heading="No plan", body=_no_plan(answer))]
    shown = plans[:_SHOWN_PLANS]
    return [
        Section(
            heading="Ranked plans",
            body=join([certificate(answer), plan_table(plans), *_mark(plans)]),
        ),
        Section(heading="Where the time goes", body=_time(shown)),
        Section(heading=f"Memory per stage of plan {plans[0]['rank']}", body=memory(plans[0])),
        *_rejected(answer),
    ]


def strategy_label(plan: Json) -> str:
    """Return the short form of a plan's strategy."""
    known = {name: plan["strategy"][name] for name in FIELD_NAMES if name in plan["strategy"]}
    return Strategy(**known).label()


def layers(plan: Json) -> str:
    """Return how many layers each stage holds, shortened where there are many."""
    counts = str(plan.get("placement", "")).split("/")
    if not all(count.isdecimal() for count in counts):
        return "/".join(counts)
    return layers_label([int(count) for count in counts])


def certificate(answer: Json) -> Markup:
    """Return in words how good the list is proven to be."""
    counts = answer["search"]
    proof = (
        f"{answer['status']}: no plan of the space is faster than "
        f"{format_seconds(answer['lower_bound_s'])}; the first plan is within {answer['gap']:.2%} of that. "
        f"{counts['strategies']:,} strategies, {counts['solved']:,} solved exactly, "
        f"{counts['simulated']:,} simulated."
    )
    return tag("p", proof)


def plan_table(plans: Sequence[Json]) -> Markup:
    """Return the ranked table."""
    heads = (
        "rank", "strategy", "micro-batch", "layers", "schedule", "ZeRO", "recompute", "iteration",
        "likely range", "tokens/s", "MFU", "peak memory", "ties with",
    )  # fmt: skip
    return sortable(heads, [_plan_row(plan) for plan in plans], "Fastest first")


def memory(plan: Json) -> Markup:
    """Return the stacked memory of each stage against the limit."""
    bars = [_stage_bar(place, stage) for place, stage in enumerate(plan["stages"])]
    limit = plan["memory_limit_bytes"] / GIB
    told = f"Peak memory of each stage of {strategy_label(plan)}, by term, against the limit"
    return stacked_bars(bars, _gib, "GiB", told, (limit, f"limit {_gib(limit)}"))


def _plan_row(plan: Json) -> list[Cell]:
    strategy = plan["strategy"]
    low, high = plan["iteration_s_low"], plan["iteration_s_high"]
    peak = plan["peak_memory_bytes"]
    ties = ", ".join(str(rank) for rank in plan.get("tied_with", []))
    return [
        number(plan["rank"], f"{plan['rank']}{'' if _launched(plan) else '*'}"),
        word(strategy_label(plan)),
        number(strategy["micro_batch"], f"{strategy['micro_batch']} x {strategy['microbatches']}"),
        word(layers(plan)),
        word(strategy["schedule"]),
        number(strategy["zero"]),
        word(strategy["recompute"]),
        number(plan["iteration_s"], format_seconds(plan["iteration_s"])),
        number(low, f"{format_seconds(low)} to {format_seconds(high)}"),
        number(plan["tokens_per_s"], f"{plan['tokens_per_s']:,.0f}"),
        number(plan["mfu"], f"{plan['mfu']:.1%}"),
        number(peak, format_bytes(peak)),
        word(ties or "-"),
    ]


def _launched(plan: Json) -> bool:
    """Whether the framework launches the plan as it is, as far as that is known."""
    return plan.get("launches") is not False


def _mark(plans: Sequence[Json]) -> list[Markup]:
    if all(map(_launched, plans)):
        return []
    return [
        tag(
            "p",
            "* the framework does not launch this plan as it is; --export writes the nearest that it does, or says why not.",
        )
    ]


def _time(plans: Sequence[Json]) -> Markup:
    bars = [
        Bar(label=f"{plan['rank']}. {strategy_label(plan)}", parts=plan["time"]) for plan in plans
    ]
    return stacked_bars(bars, format_seconds, "s", "Seconds of an iteration by term, for each plan")


def _stage_bar(place: int, stage: Json) -> Bar:
    held = f"{stage['first_layer']}-{stage['last_layer']}"
    chunks = stage.get("chunks", [])
    if len(chunks) > 1:
        held = f"{stage['layers']} layers in {len(chunks)} chunks"
    recomputed = stage.get("recomputed_layers", 0)
    again = f", {recomputed} again" if recomputed else ""
    parts = {name: size / GIB for name, size in stage["memory"].items()}
    limit = stage.get("memory_limit_bytes")
    device = f" on {stage['device']}, limit {format_bytes(limit)}" if limit else ""
    return Bar(label=f"stage {place}: {held}{again}{device}", parts=parts)


def _gib(value: float) -> str:
    return format_bytes(value * GIB)


def _rejected(answer: Json) -> list[Section]:
    rows = [
        [word(item["reason"]), number(item["count"], f"{item['count']:,}"), word(item["nearest"])]
        for item in answer["rejected"]
    ]
    if not rows:
        return []
    table = sortable(("reason", "strategies", "what would lift it"), rows, "By rule or resource")
    return [Section(heading="Rejected", body=folded(f"{len(rows)} reasons", table))]


def _no_plan(answer: Json) -> Markup:
    levers = [tag("li", lever) for lever in answer.get("levers", [])]
    told = tag("p", "No strategy fits. The smallest changes that would help:")
    return join([told, tag("ul", levers), *(part.body for part in _rejected(answer))])
