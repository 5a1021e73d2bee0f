"""What-if answers: the step function of a memory sweep, and the curve or bars of other variants."""

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.units import GIB, format_bytes, format_seconds
from planner.report.axes import WIDTH, Scale, bottom_axis, drawing, left_axis, words
from planner.report.bars import Bar, stacked_bars
from planner.report.markup import Markup, join, tag
from planner.report.page import Section
from planner.report.plans import layers, strategy_label
from planner.report.tables import Cell, folded, number, sortable, word

_LEFT, _RIGHT, _TOP, _BOTTOM = 90.0, WIDTH - 30.0, 30.0, 330.0
_NUMBERED_STEPS = 30
Json = Mapping[str, Any]


def whatif_section(answer: Json, heading: str = "What if") -> Section:
    """Return the section of one what-if answer.

    Args:
        answer: The JSON of ``whatif``: ``steps`` of a memory sweep, or ``variants``.
        heading: Heading of the section.
    """
    if "steps" in answer:
        return Section(heading=heading, body=_sweep(answer))
    return Section(heading=heading, body=_variants(answer["variants"]))


def _sweep(answer: Json) -> Markup:
    steps = answer["steps"]
    if not steps:
        return tag("p", "Nothing fits at any memory the device has.")
    rows = [_step_row(place, step) for place, step in enumerate(steps, 1)]
    heads = ("step", "from memory", "iteration", "strategy", "layers", "gap")
    table = sortable(heads, rows, "Each step is the best plan from its memory up to the next one")
    if len(steps) > _NUMBERED_STEPS:
        table = folded(f"{len(steps)} steps", table)
    return tag("figure", _steps(steps, answer.get("memory_limit_bytes")), table)


def _step_row(place: int, step: Json) -> list[Cell]:
    plan = step["plan"]
    return [
        number(place),
        number(step["memory_bytes"], format_bytes(step["memory_bytes"])),
        number(step["iteration_s"], format_seconds(step["iteration_s"])),
        word(strategy_label(plan)),
        word(layers(plan)),
        number(step.get("gap"), f"{step.get('gap', 0.0):.2%}"),
    ]


def _steps(steps: Sequence[Json], limit: float | None) -> Markup:
    memory = [step["memory_bytes"] / GIB for step in steps]
    seconds = [step["iteration_s"] for step in steps]
    end = max(memory[-1] * 1.06, (limit or 0.0) / GIB * 1.02)
    margin = (end - memory[0]) * 0.06
    x = Scale(low=max(0.0, memory[0] - margin), high=end, first=_LEFT, last=_RIGHT)
    room = (max(seconds) - min(seconds)) * 0.08 or max(seconds) * 0.05
    y = Scale(low=min(seconds) - room, high=max(seconds) + room, first=_BOTTOM, last=_TOP)
    content = join(
        [
            bottom_axis(x, _TOP, _BOTTOM, lambda value: f"{value:.4g} GiB"),
            left_axis(y, _LEFT, _RIGHT, lambda value: f"{value:.4g} s"),
            _nothing_fits(x, memory[0]),
            tag("path", d=_staircase(x, y, memory, seconds, end), class_="curve"),
            _marks(x, y, memory, seconds),
            _limit(x, limit),
        ]
    )
    told = (
        f"Iteration time of the best plan against memory: {len(steps)} steps from "
        f"{format_bytes(steps[0]['memory_bytes'])}, below which nothing fits"
    )
    return drawing(content, _BOTTOM + 30, told)


def _staircase(
    x: Scale, y: Scale, memory: Sequence[float], seconds: Sequence[float], end: float
) -> str:
    path = f"M{x(memory[0]):.1f} {y(seconds[0]):.1f}"
    for at, value in zip(memory[1:], seconds[1:], strict=True):
        path += f"H{x(at):.1f}V{y(value):.1f}"
    return f"{path}H{x(end):.1f}"


def _marks(x: Scale, y: Scale, memory: Sequence[float], seconds: Sequence[float]) -> Markup:
    """Return a dot where each step begins, numbered as in the table while there are few."""
    marks = []
    for place, (at, value) in enumerate(zip(memory, seconds, strict=True), 1):
        told = f"step {place}: from {at:.2f} GiB, {format_seconds(value)}"
        marks.append(tag("circle", tag("title", told), cx=x(at), cy=y(value), r=3.5, class_="dot"))
        if len(memory) <= _NUMBERED_STEPS:
            marks.append(words(str(place), x(at) + 5, y(value) - 6, class_="strong halo"))
    return join(marks)


def _nothing_fits(x: Scale, first: float) -> Markup:
    width = x(first) - _LEFT
    box = tag(
        "rect", tag("title", "nothing fits"), x=_LEFT, y=_TOP, width=width, height=_BOTTOM - _TOP,
        class_="forbidden",
    )  # fmt: skip
    return tag("g", box)


def _limit(x: Scale, limit: float | None) -> Markup:
    if limit is None or not x.low <= limit / GIB <= x.high:
        return join(())
    at = x(limit / GIB)
    line = tag("line", x1=at, x2=at, y1=_TOP, y2=_BOTTOM, class_="limit")
    return tag("g", line, words("limit now", at, _TOP - 8, anchor="middle", class_="strong"))


def _variants(variants: Sequence[Json]) -> Markup:
    rows = [_variant_row(variant) for variant in variants]
    heads = ("variant", "iteration", "strategy", "layers", "peak memory", "efficiency", "note")
    table = sortable(heads, rows, "Best plan of each variant")
    bars = [
        Bar(label=str(v["label"]), parts={"iteration": v["iteration_s"]})
        for v in variants
        if v.get("iteration_s")
    ]
    told = "Iteration time of the best plan of each variant"
    return join([stacked_bars(bars, format_seconds, "s", told) if bars else "", table])


def _variant_row(variant: Json) -> list[Cell]:
    plan = variant.get("plan")
    label = str(variant["label"])
    first = number(float(label), label) if label.isdecimal() else word(label)
    efficiency = variant.get("efficiency")
    if plan is None:
        told = variant.get("error") or "no plan fits"
        return [first, number(None), word("-"), word("-"), number(None), number(None), word(told)]
    peak = plan["peak_memory_bytes"]
    return [
        first,
        number(plan["iteration_s"], format_seconds(plan["iteration_s"])),
        word(strategy_label(plan)),
        word(layers(plan)),
        number(peak, format_bytes(peak)),
        number(efficiency, None if efficiency is None else f"{efficiency:.0%}"),
        word(""),
    ]
