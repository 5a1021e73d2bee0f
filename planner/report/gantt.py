"""A shared pool: who holds which nodes when, what that is worth, and when each model is done."""

from collections.abc import Mapping, Sequence

from planner.pool.model import GpuGroup
from planner.pool.share import Segment, ShareResult
from planner.report.axes import WIDTH, Scale, bottom_axis, drawing, shortened, words
from planner.report.markup import Markup, join, tag
from planner.report.page import Section
from planner.report.patterns import fill
from planner.report.tables import Cell, number, sortable, word

_LEFT, _RIGHT, _TOP = 130.0, WIDTH - 20.0, 10.0
_GAP = 18.0
_TEXT_HEIGHT = 13.0


def share_section(result: ShareResult, heading: str = "Shared pool") -> Section:
    """Return the section of a shared schedule: the answer, a Gantt chart, and the tables."""
    if not result.segments:
        return Section(heading=heading, body=tag("p", "No schedule: " + "; ".join(result.reasons)))
    body = join([_summary(result), _by_hand(result), _gantt(result), _jobs(result), _runs(result)])
    return Section(heading=heading, body=body)


def _summary(result: ShareResult) -> Markup:
    text = (
        f"{result.objective}: {result.value:.5g} {result.unit}; no schedule does better than "
        f"{result.bound:.5g}, so the gap is {result.gap:.2%}. {result.utilisation:.0%} of the pool's node-hours "
        f"are in use until the last model ends at {result.makespan_h:.1f} h."
    )
    if result.cost:
        text += f" Everything costs {result.cost:,.0f}."
    return tag("p", text.replace("_", " "))


def _by_hand(result: ShareResult) -> Markup:
    items = []
    for item in result.comparisons:
        told = f"{item.name}: finds no schedule"
        if item.value is not None and item.gain is not None:
            late = f", {item.missed} deadlines missed" if item.missed else ""
            told = (
                f"{item.name}: {item.value:.5g} {result.unit}{late}; the plan saves {item.gain:.1%}"
            )
        items.append(tag("li", told))
    return join([tag("p", "Made by hand it would be:"), tag("ul", items)])


def _gantt(result: ShareResult) -> Markup:
    x = Scale(low=0.0, high=result.makespan_h, first=_LEFT, last=_RIGHT)
    fills = {job.job: place for place, job in enumerate(result.jobs)}
    top, bands = _TOP, []
    for group in result.groups:
        height = _band_height(group)
        own = [segment for segment in result.segments if segment.group == group.name]
        bands.append(_band(group, own, fills, x, top, height))
        top += height + _GAP
    bottom = top - _GAP
    axis = bottom_axis(x, _TOP, bottom, lambda hours: f"{hours:g} h")
    told = "Gantt chart: nodes of each group over hours, one box per model and run"
    return tag("figure", drawing(join([axis, *bands]), bottom + 24, told))


def _band_height(group: GpuGroup) -> float:
    return min(max(group.nodes * 18.0, 40.0), 420.0)


def _band(
    group: GpuGroup,
    segments: Sequence[Segment],
    fills: Mapping[str, int],
    x: Scale,
    top: float,
    height: float,
) -> Markup:
    label = join(
        [
            words(shortened(group.name, _LEFT - 16), _LEFT - 8, top + 14, anchor="end", class_="strong"),
            words(f"{group.gpus} GPUs", _LEFT - 8, top + 30, anchor="end"),
        ]
    )  # fmt: skip
    frame = tag("rect", x=_LEFT, y=top, width=_RIGHT - _LEFT, height=height, class_="frame")
    y = Scale(low=0.0, high=float(group.nodes), first=top, last=top + height)
    boxes = [_boxes(segment, fills[segment.job], x, y) for segment in segments]
    return tag("g", frame, label, boxes)


def _boxes(segment: Segment, number_: int, x: Scale, y: Scale) -> Markup:
    """Return a box per range of nodes, with the name where it fits."""
    left, width = x(segment.start_h), x(segment.end_h) - x(segment.start_h)
    terms = ", spot" if segment.spot else ""
    again = ", after a restart" if segment.restarted else ""
    told = (
        f"{segment.job}: {segment.gpus} GPUs, {segment.start_h:.1f} to {segment.end_h:.1f} h"
        f"{terms}{again}, {segment.plan}"
    )
    boxes = [
        tag(
            "rect", tag("title", told), x=left, y=y(first), width=width, height=y(end) - y(first),
            fill=fill(number_), class_="outline spot" if segment.spot else "outline",
        )
        for first, end in segment.nodes
    ]  # fmt: skip
    name = shortened(segment.job + terms, width - 12)
    labels = [
        words(name, left + 5, (y(first) + y(end)) / 2 + 4, class_="strong halo")
        for first, end in segment.nodes
        if name and y(end) - y(first) >= _TEXT_HEIGHT
    ]
    return tag("g", boxes, labels)


def _jobs(result: ShareResult) -> Markup:
    rows: list[list[Cell]] = [
        [
            word(job.job),
            number(job.priority),
            number(job.start_h, f"{job.start_h:.1f}"),
            number(job.end_h, f"{job.end_h:.1f}"),
            number(job.deadline_h, None if job.deadline_h is None else f"{job.deadline_h:.1f}"),
            word({None: "-", True: "met", False: "MISSED"}[job.met]),
            number(job.cost, f"{job.cost:,.0f}"),
        ]
        for job in result.jobs
    ]
    heads = ("model", "priority", "start h", "end h", "deadline h", "deadline", "cost")
    return sortable(heads, rows, "When each model is done")


def _runs(result: ShareResult) -> Markup:
    rows: list[list[Cell]] = [
        [
            word(segment.job),
            word(segment.group),
            number(segment.gpus),
            number(segment.start_h, f"{segment.start_h:.1f}"),
            number(segment.end_h, f"{segment.end_h:.1f}"),
            word("spot" if segment.spot else "on demand"),
            word(segment.plan),
            word("yes" if segment.restarted else "-"),
        ]
        for segment in result.segments
    ]
    heads = ("model", "group", "GPUs", "start h", "end h", "terms", "strategy", "restarted")
    return sortable(heads, rows, "Who runs where")
