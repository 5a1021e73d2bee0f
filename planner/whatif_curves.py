"""What-if answers as curves: the step function of memory, or a line over limits or numbers of GPUs."""

import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from costmodel.errors import InputError
from costmodel.units import GIB
from planner.line_chart import Panel, Points, line_chart
from planner.plot import check_picture_name, import_figure

Json = Mapping[str, Any]


class Curve(NamedTuple):
    """Seconds of the best plan over one quantity; where ``stepped``, a value holds until the next point."""

    x_title: str
    points: Points
    stepped: bool

    def drawn(self) -> Points:
        """Return the points to join by straight lines."""
        if not self.stepped or not self.points:
            return self.points
        corners = [point for a, b in pairwise(self.points) for point in (a, (b[0], a[1]))]
        return [*corners, self.points[-1]]


def curve_of(data: Json) -> Curve | None:
    """Return the curve of a what-if answer, None if what was varied is no quantity or nothing fits.

    Args:
        data: The answer's JSON: ``steps`` of a memory sweep, or ``variants`` with ``memory_bytes`` or ``gpus``.
    """
    if "steps" in data:
        found = _points(data["steps"], "memory_bytes")
        limit = data["memory_limit_bytes"] / GIB
        if found and limit > found[-1][0]:
            found.append((limit, found[-1][1]))
        return Curve("GiB per GPU", found, stepped=True) if found else None
    variants = data.get("variants", [])
    for name, title in (("memory_bytes", "GiB per GPU"), ("gpus", "GPUs")):
        known = [item for item in variants if name in item and item["iteration_s"] is not None]
        if known:
            return Curve(title, sorted(_points(known, name)), stepped=False)
    return None


def picture(name: str, heading: str, data: Json) -> str | bytes:
    """Return the curve as the content of a picture file; the ending of its ``name`` selects SVG or PNG.

    Raises:
        InputError: If the ending is another, nothing can be drawn, or matplotlib is missing for PNG.
    """
    check_picture_name(name)
    curve = curve_of(data)
    if curve is None:
        raise InputError(
            "needs a curve: plans over memory or numbers of GPUs",
            key="--plot",
            nearest="--memory sweep",
        )
    if name.endswith(".png"):
        return _png(heading, curve)
    lines = {"best plan": curve.drawn()}
    log = curve.x_title == "GPUs"
    panel = Panel(title="seconds per iteration", lines=lines, log=log, log_across=log)
    return line_chart(heading, curve.x_title, [panel])


def _points(rows: Sequence[Json], name: str) -> list[tuple[float, float]]:
    scale = GIB if name == "memory_bytes" else 1
    return [(row[name] / scale, row["iteration_s"]) for row in rows]


def _png(heading: str, curve: Curve) -> bytes:
    figure = import_figure()(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    xs, ys = zip(*curve.points, strict=True)
    axes.plot(xs, ys, marker="o", drawstyle="steps-post" if curve.stepped else "default")
    if curve.x_title == "GPUs":
        axes.loglog(base=2)
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(curve.x_title)
    axes.set_ylabel("seconds per iteration")
    axes.set_title(heading)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()
