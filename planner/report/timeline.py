"""The pipeline timeline of one plan: drawn by the page's script, so that it can be zoomed and moved."""

from typing import Any

from costmodel.timeline import Span, Timeline
from costmodel.units import NS_PER_S, format_seconds
from planner.report.markup import json_data, tag
from planner.report.page import Section

# Tasks that a page carries at about 20 bytes each; beyond, the steady middle of the iteration is left out.
_MAX_TASKS = 60_000
_ROW = 30
_AXIS = 30


def timeline_section(timeline: Timeline, heading: str = "Pipeline timeline") -> Section:
    """Return the timeline of one simulated iteration.

    Args:
        timeline: From costmodel.simulator.simulate.
        heading: Heading of the section.
    """
    data, left_out = _data(timeline)
    ranks = len(timeline.spans)
    told = (
        f"{ranks} pipeline ranks over {format_seconds(timeline.iteration_ns / NS_PER_S)}. "
        "Forward is plain, backward hatched, weight gradients dotted, the end of the iteration crossed; numbers "
        "are micro-batches. Zoom with the wheel, the buttons or + and -, move by dragging or with the arrows."
    )
    if left_out:
        told += f" {left_out:,} tasks of the steady middle are left out."
    buttons = [
        tag("button", text, type="button", class_="control", data_action=action)
        for text, action in (("+", "in"), ("-", "out"), ("whole", "whole"))
    ]
    canvas = tag(
        "canvas",
        "The timeline needs the page's script.",
        class_="timeline",
        height=ranks * _ROW + _AXIS,
        tabindex=0,
        role="img",
        aria_label=f"Tasks of {ranks} pipeline ranks over one iteration",
    )
    told_at = tag("p", "", class_="hover", aria_live="polite")
    body = tag(
        "figure",
        tag("p", told),
        tag("div", buttons, class_="buttons"),
        canvas,
        told_at,
        json_data(data, class_="timeline-data"),
        class_="timeline-figure",
    )
    return Section(heading=heading, body=body)


def _data(timeline: Timeline) -> tuple[dict[str, Any], int]:
    """Return flat arrays of kind, chunk, micro-batch, start and length per rank, and what was left out."""
    per_rank = max(2, _MAX_TASKS // len(timeline.spans))
    ranks, left_out = [], 0
    for spans in timeline.spans:
        kept = _ends(spans, per_rank)
        left_out += len(spans) - len(kept)
        ranks.append([value for span in kept for value in _flat(span)])
    finish = list(timeline.work.finish_ns)
    ends = [spans[-1].end_ns for spans in timeline.spans]
    data = {
        "iteration": timeline.iteration_ns,
        "chunks": timeline.work.shape.chunks,
        "ranks": ranks,
        "finish": [[end, length] for end, length in zip(ends, finish, strict=True)],
        "row": _ROW,
    }
    return data, left_out


def _ends(spans: tuple[Span, ...], most: int) -> tuple[Span, ...]:
    if len(spans) <= most:
        return spans
    half = most // 2
    return spans[:half] + spans[-half:]


def _flat(span: Span) -> tuple[int, int, int, int, int]:
    kind = "FBIW".index(span.kind)
    return (kind, span.chunk, span.microbatch, span.start_ns, span.end_ns - span.start_ns)
