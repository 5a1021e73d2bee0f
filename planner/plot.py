"""A simulated iteration as a picture: one row for each pipeline rank, tasks as boxes.

SVG is written here; PNG needs matplotlib (the extra ``plot``).
"""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

from costmodel.errors import InputError
from costmodel.timeline import Timeline
from costmodel.units import NS_PER_S, format_seconds
from planner.files import write_all

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours of Okabe and Ito (2008), told apart with every kind of colour blindness.
COLOURS: Mapping[str, str] = {
    "forward": "#56B4E9",
    "backward": "#009E73",
    "input gradient": "#009E73",
    "weight gradient": "#F0E442",
    "finish": "#E69F00",
}
_KINDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
_WIDTH, _ROW, _GAP, _LEFT, _TOP = 1200, 26, 6, 70, 56
_SMALLEST_LABEL = 18  # boxes narrower than this many pixels carry no number


class Box(NamedTuple):
    """One box of the picture, in nanoseconds."""

    rank: int
    kind: str
    label: str
    start_ns: int
    end_ns: int


def write_plot(path: Path, timeline: Timeline, title: str) -> Path:
    """Draw the timeline into a file; its ending selects SVG or PNG.

    Raises:
        InputError: If the ending is another, matplotlib is missing for PNG, or the file cannot be written.
    """
    return write_all({path: picture(path.name, timeline, title)})[0]


def picture(name: str, timeline: Timeline, title: str) -> str | bytes:
    """Return the content of a picture file; the ending of its ``name`` selects SVG or PNG.

    Raises:
        InputError: If the ending is another, or matplotlib is missing for PNG.
    """
    check_picture_name(name)
    return svg(timeline, title) if name.endswith(".svg") else png(timeline, title)


def check_picture_name(name: str) -> None:
    """Check that a picture can be drawn into a file called ``name``.

    Raises:
        InputError: If its ending is neither .svg nor .png.
    """
    if not name.endswith((".svg", ".png")):
        raise InputError("must end in .svg or .png", key="plot", value=name)


def boxes(timeline: Timeline) -> Iterator[Box]:
    """Yield the tasks of every rank and what follows its last one."""
    for rank, spans in enumerate(timeline.spans):
        for span in spans:
            label = str(span.microbatch)
            yield Box(rank, _KINDS[span.kind], label, span.start_ns, span.end_ns)
        end = timeline.end_ns(rank)
        if timeline.work.finish_ns[rank]:
            yield Box(rank, "finish", "", end, end + timeline.work.finish_ns[rank])


def svg(timeline: Timeline, title: str) -> str:
    """Return the picture as SVG text."""
    found = list(boxes(timeline))
    ranks = len(timeline.spans)
    height = _TOP + ranks * (_ROW + _GAP) + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"',
        f' width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="11">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
        *_legend(dict.fromkeys(box.kind for box in found)),
        *(_rank_label(rank) for rank in range(ranks)),
        *(line for box in found for line in _box(box, timeline.iteration_ns)),
        *_axis(timeline.iteration_ns, height - 24),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def import_figure() -> "type[Figure]":
    """Return matplotlib's figure, which draws without a window.

    Raises:
        InputError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            "needs matplotlib: pip install 'shardplan[plot]'", key="plot", nearest=".svg"
        ) from error
    return Figure


def png(timeline: Timeline, title: str) -> bytes:
    """Return the picture as PNG bytes.

    Raises:
        InputError: If matplotlib is not installed.
    """
    figure_type = import_figure()
    from matplotlib.patches import Patch

    figure = figure_type(figsize=(12, 1.5 + 0.35 * len(timeline.spans)), layout="constrained")
    axes = figure.subplots()
    found = list(boxes(timeline))
    for box in found:
        span = (box.start_ns / NS_PER_S, (box.end_ns - box.start_ns) / NS_PER_S)
        axes.broken_barh(
            [span],
            (box.rank - 0.4, 0.8),
            facecolor=COLOURS[box.kind],
            edgecolor="white",
            linewidth=0.3,
        )
    axes.set_yticks(
        range(len(timeline.spans)), [f"PP {rank}" for rank in range(len(timeline.spans))]
    )
    axes.invert_yaxis()
    axes.set_xlim(0, timeline.iteration_ns / NS_PER_S)
    axes.set_xlabel("seconds")
    axes.set_title(title)
    kinds = dict.fromkeys(box.kind for box in found)
    figure.legend(
        handles=[Patch(color=COLOURS[kind], label=kind) for kind in kinds],
        loc="outside lower center",
        ncols=len(kinds),
    )
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _x(moment_ns: int, whole_ns: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - 20) * moment_ns / whole_ns


def _y(rank: int) -> int:
    return _TOP + rank * (_ROW + _GAP)


def _rank_label(rank: int) -> str:
    return f'<text x="{_LEFT - 8}" y="{_y(rank) + 17}" text-anchor="end">PP {rank}</text>'


def _box(box: Box, whole_ns: int) -> Iterator[str]:
    left, right = _x(box.start_ns, whole_ns), _x(box.end_ns, whole_ns)
    seconds = format_seconds((box.end_ns - box.start_ns) / NS_PER_S)
    tip = f"<title>{box.kind} {box.label}: {seconds}</title>"
    yield (
        f'<rect x="{left:.2f}" y="{_y(box.rank)}" width="{right - left:.2f}" height="{_ROW}" '
        f'fill="{COLOURS[box.kind]}" stroke="white" stroke-width="0.5">{tip}</rect>'
    )
    if box.label and right - left >= _SMALLEST_LABEL:
        middle = (left + right) / 2
        yield f'<text x="{middle:.2f}" y="{_y(box.rank) + 17}" text-anchor="middle">{box.label}</text>'


def _legend(kinds: Mapping[str, None]) -> Iterator[str]:
    for place, kind in enumerate(kinds):
        x = _LEFT + 130 * place
        yield f'<rect x="{x}" y="30" width="12" height="12" fill="{COLOURS[kind]}"/>'
        yield f'<text x="{x + 17}" y="40">{kind}</text>'


def _axis(whole_ns: int, y: int) -> Iterator[str]:
    for step in range(6):
        x = _x(whole_ns * step, whole_ns * 5)
        label = format_seconds(whole_ns * step / 5 / NS_PER_S) if step else "0"
        yield f'<line x1="{x:.2f}" y1="{y}" x2="{x:.2f}" y2="{y + 5}" stroke="black"/>'
        anchor = "end" if step == 5 else "middle"
        yield f'<text x="{x:.2f}" y="{y + 17}" text-anchor="{anchor}">{label}</text>'
