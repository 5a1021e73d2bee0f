"""Scales and axes of the drawings."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from planner.report.markup import Markup, join, tag

WIDTH = 960
_CHARACTER = (
    7.4  # width of a bold character in the 12 px font that the style sheet sets, rounded up
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Values to pixels, linear."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        """Return the pixel of ``value``."""
        span = self.high - self.low or 1.0
        return self.first + (value - self.low) / span * (self.last - self.first)

    def ticks(self, count: int = 6) -> list[float]:
        """Return round values inside the scale, about ``count`` of them."""
        step = _round_step((self.high - self.low) / max(count, 1) or 1.0)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, last + 1)]


def _round_step(raw: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(raw))
    return next(power * unit for unit in (1, 2, 5, 10) if power * unit >= raw * 0.999)


def bottom_axis(scale: Scale, top: float, bottom: float, label: Callable[[float], str]) -> Markup:
    """Return vertical grid lines from ``top`` to ``bottom`` with labels below."""
    return join(
        [
            tag(
                "g",
                tag("line", x1=scale(tick), x2=scale(tick), y1=top, y2=bottom, class_="grid"),
                words(label(tick), scale(tick), bottom + 16, anchor="middle"),
            )
            for tick in scale.ticks()
        ]
    )


def left_axis(scale: Scale, left: float, right: float, label: Callable[[float], str]) -> Markup:
    """Return horizontal grid lines from ``left`` to ``right`` with labels before them."""
    return join(
        [
            tag(
                "g",
                tag("line", x1=left, x2=right, y1=scale(tick), y2=scale(tick), class_="grid"),
                words(label(tick), left - 8, scale(tick) + 4, anchor="end"),
            )
            for tick in scale.ticks()
        ]
    )


def words(text: str, x: float, y: float, *, anchor: str = "start", class_: str = "") -> Markup:
    """Return a text at a place."""
    return tag("text", text, x=float(x), y=float(y), text_anchor=anchor, class_=class_ or None)


def shortened(text: str, width: float) -> str:
    """Return what of a text fits into ``width`` pixels, empty if hardly anything does."""
    room = int(width / _CHARACTER)
    if len(text) <= room:
        return text
    return f"{text[: room - 1]}…" if room >= 4 else ""


def drawing(content: Markup, height: float, description: str) -> Markup:
    """Return a drawing of the page's width with a description for those who cannot see it."""
    return tag(
        "svg",
        tag("title", description),
        content,
        viewBox=f"0 0 {WIDTH} {height:.0f}",
        role="img",
        aria_label=description,
    )
