"""The HTML report of ``shardplan accuracy``: predicted against measured as an SVG of its own, no scripts."""

import html
import math
from collections.abc import Sequence

from planner.accuracy.predict import Prediction
from planner.accuracy.summary import Accuracy
from planner.accuracy.text import accuracy_to_text

_SIZE, _MARGIN = 640.0, 60.0
# Okabe and Ito's colours, told apart by all kinds of colour vision.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")


def report_html(accuracy: Accuracy) -> str:
    """Return a page with the scatter plot and the tables."""
    sources = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(accuracy.sources)}
    timed = [item for item in accuracy.predictions if item.run.iteration_s]
    legend = "".join(
        f'<li><span style="color:{colour}">&#9679;</span> {html.escape(name)}</li>'
        for name, colour in sources.items()
    )
    text = html.escape(accuracy_to_text(accuracy))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<title>Predicted against measured</title>"
        "<style>body{font:15px/1.4 system-ui;margin:2em;max-width:70em}li{display:inline;margin-right:1em}"
        "pre{overflow-x:auto}</style></head><body>"
        "<h1>Predicted against measured iteration time</h1>"
        f'<ul style="padding:0">{legend}</ul>{scatter_svg(timed, sources)}<pre>{text}</pre></body></html>\n'
    )


def scatter_svg(predictions: Sequence[Prediction], colours: dict[str, str]) -> str:
    """Return predicted over measured seconds on logarithmic axes, with lines of equality and +-20 %."""
    if not predictions:
        return "<p>No timed runs.</p>"
    values = [v for item in predictions for v in (item.iteration_s, item.run.iteration_s or 1.0)]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    axis = _Axis(low, max(high, low + 1))
    points = "".join(_point(item, axis, colours) for item in predictions)
    return (
        f'<svg viewBox="0 0 {_SIZE:.0f} {_SIZE:.0f}" width="{_SIZE:.0f}" role="img" '
        'aria-label="Predicted against measured seconds">'
        f"{_grid(axis)}{_diagonal(axis, 1.0, '')}"
        f"{_diagonal(axis, 1.2, '4 4')}{_diagonal(axis, 1 / 1.2, '4 4')}{points}</svg>"
    )


class _Axis:
    """A logarithmic axis over whole decades, in pixels."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        """Return the distance from the origin in pixels."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return share * (_SIZE - 2 * _MARGIN)

    def x(self, value: float) -> float:
        """Return the horizontal pixel of a measured value."""
        return _MARGIN + self.at(value)

    def y(self, value: float) -> float:
        """Return the vertical pixel of a predicted value."""
        return _SIZE - _MARGIN - self.at(value)


def _point(item: Prediction, axis: _Axis, colours: dict[str, str]) -> str:
    measured = item.run.iteration_s or 1.0
    error = item.iteration_s / measured - 1
    title = f"{item.run.id}: predicted {item.iteration_s:.4g} s, measured {measured:.4g} s, {error:+.1%}"
    return (
        f'<circle cx="{axis.x(measured):.1f}" cy="{axis.y(item.iteration_s):.1f}" r="3" fill-opacity="0.6" '
        f'fill="{colours[item.run.source]}"><title>{html.escape(title)}</title></circle>'
    )


def _grid(axis: _Axis) -> str:
    parts = []
    edge = _SIZE - _MARGIN
    for exponent in range(axis.low, axis.high + 1):
        value = 10.0**exponent
        x, y = axis.x(value), axis.y(value)
        parts.append(
            f'<path d="M{x:.1f} {_MARGIN}V{edge}M{_MARGIN} {y:.1f}H{edge}" stroke="#ddd"/>'
            f'<text x="{x:.1f}" y="{edge + 18}" text-anchor="middle">{value:g}</text>'
            f'<text x="{_MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    middle = _SIZE / 2
    parts.append(
        f'<text x="{middle}" y="{_SIZE - 14}" text-anchor="middle">measured seconds</text>'
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">predicted seconds</text>'
    )
    return "".join(parts)


def _diagonal(axis: _Axis, factor: float, dashes: str) -> str:
    low, high = 10.0**axis.low, 10.0**axis.high
    start, stop = (low, high / factor) if factor > 1 else (low / factor, high)
    return (
        f'<path d="M{axis.x(start):.1f} {axis.y(start * factor):.1f}L{axis.x(stop):.1f} {axis.y(stop * factor):.1f}" '
        f'stroke="#888" stroke-dasharray="{dashes}"/>'
    )
