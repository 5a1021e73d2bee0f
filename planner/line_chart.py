"""A small line chart as SVG: several named lines over a shared axis, one panel for each quantity."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 420, 300, 62, 34, 40
_COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#000000", "#7f7f7f",
)  # fmt: skip
"""Okabe and Ito's palette for colour-blind readers, and three more."""

_FEW = 12
"""Up to so many places on the horizontal axis are all named; up to twice as many points are dotted."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One quantity.

    Attributes:
        title: What the vertical axis shows, with its unit.
        lines: Points (x, y) by name; all x and y above zero.
        log: Whether the vertical axis is logarithmic.
        log_across: Whether the horizontal axis is.
    """

    title: str
    lines: Mapping[str, Points]
    log: bool = True
    log_across: bool = True


def line_chart(heading: str, x_title: str, panels: Sequence[Panel]) -> str:
    """Return an SVG of the panels side by side; a name has the same colour in each."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}
    width = len(panels) * (_WIDTH + _GAP + _LEFT) + _GAP
    height = _TOP + _HEIGHT + 60 + 18 * -(-len(names) // 6)
    body = [
        f'<text x="{_GAP}" y="20" font-size="15" font-weight="bold">{escape(heading)}</text>',
        *(_panel(panel, index, x_title, colours) for index, panel in enumerate(panels)),
        *(_legend(name, index, colours[name]) for index, name in enumerate(names)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _legend(name: str, index: int, colour: str) -> str:
    x, y = _GAP + (index % 6) * 150, _TOP + _HEIGHT + 62 + 18 * (index // 6)
    return (
        f'<line x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2.5"/>'
        f'<text x="{x + 28}" y="{y}">{escape(name)}</text>'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """Maps values to pixels."""

    low: float
    high: float
    start: float
    stop: float
    log: bool

    def at(self, value: float) -> float:
        """Return the pixel of ``value``."""
        low, high, value = (self._scaled(v) for v in (self.low, self.high, value))
        return self.start + (value - low) / ((high - low) or 1.0) * (self.stop - self.start)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.log else value

    def ticks(self) -> list[float]:
        """Return about five round values within the axis."""
        if not self.log:
            step = _round_up((self.high - self.low) / 5)
            first = math.ceil(self.low / step)
            return [step * i for i in range(max(first, 1), first + 7) if step * i <= self.high]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        values = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
        return [value for value in values if self.low <= value <= self.high]


def _round_up(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= value)


def _panel(panel: Panel, index: int, x_title: str, colours: Mapping[str, str]) -> str:
    left = _GAP + _LEFT + index * (_WIDTH + _GAP + _LEFT)
    points = [point for line in panel.lines.values() for point in line]
    parts = [f'<text x="{left}" y="{_TOP + 4}">{escape(panel.title)}</text>']
    if points:
        xs, ys = [x for x, _ in points], [y for _, y in points]
        low = min(ys) / 1.1 if panel.log else 0.0
        log = panel.log_across
        across = _Axis(low=min(xs), high=max(xs), start=left, stop=left + _WIDTH, log=log)
        up = _Axis(low=low, high=max(ys) * 1.1, start=_TOP + _HEIGHT, stop=_TOP + 12, log=panel.log)
        named = sorted(set(xs))
        parts += _grid(across, up, named if len(named) <= _FEW else across.ticks())
        parts += [_line(line, across, up, colours[name]) for name, line in panel.lines.items()]
    middle, below = left + _WIDTH / 2, _TOP + _HEIGHT + 34
    parts.append(f'<text x="{middle}" y="{below}" text-anchor="middle">{escape(x_title)}</text>')
    return "\n".join(parts)


def _grid(across: _Axis, up: _Axis, xs: Sequence[float]) -> list[str]:
    lines = [
        f'<line x1="{across.start}" x2="{across.stop}" y1="{up.at(y):.1f}" y2="{up.at(y):.1f}" '
        f'stroke="#ddd"/><text x="{across.start - 6}" y="{up.at(y) + 4:.1f}" '
        f'text-anchor="end">{y:,.6g}</text>'
        for y in up.ticks()
    ]
    return lines + [
        f'<text x="{across.at(x):.1f}" y="{up.start + 16}" text-anchor="middle">{x:g}</text>'
        for x in xs
    ]


def _line(points: Points, across: _Axis, up: _Axis, colour: str) -> str:
    at = [f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in points]
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in (p.split(",") for p in at)
    )
    path = f'<polyline points="{" ".join(at)}" fill="none" stroke="{colour}" stroke-width="2"/>'
    return path + dots if len(at) <= 2 * _FEW else path
