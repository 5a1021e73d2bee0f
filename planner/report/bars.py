"""Stacked horizontal bars: memory per stage against the limit, seconds per plan."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from planner.report.axes import WIDTH, Scale, bottom_axis, drawing, shortened, words
from planner.report.markup import Markup, join, tag
from planner.report.patterns import fill, legend, readable
from planner.report.tables import Cell, folded, number, sortable, word

_LEFT, _RIGHT = 190.0, WIDTH - 90.0
_ROW = 26.0
_BAR = 18.0
_TOP = 22.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: its label and its parts by name."""

    label: str
    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        """Length of the bar."""
        return sum(self.parts.values())


def stacked_bars(
    bars: Sequence[Bar],
    show: Callable[[float], str],
    unit: str,
    description: str,
    limit: tuple[float, str] | None = None,
) -> Markup:
    """Return bars with legend and a folded table of the numbers.

    Args:
        bars: From top to bottom; parts that none of them has are left out.
        show: Writes a value.
        unit: Behind the round numbers of the axis.
        description: What the drawing shows, in a sentence.
        limit: Value and name of a line that bars should not cross.
    """
    names = _names(bars)
    longest = max([bar.total for bar in bars] + ([limit[0]] if limit else []))
    scale = Scale(low=0.0, high=longest * 1.02 or 1.0, first=_LEFT, last=_RIGHT)
    bottom = _TOP + _ROW * len(bars)
    content = join(
        [
            bottom_axis(scale, _TOP, bottom, lambda value: f"{value:g} {unit}"),
            *(_bar(bar, place, names, scale, show) for place, bar in enumerate(bars)),
            _limit(limit, scale, bottom) if limit else "",
        ]
    )
    picture = drawing(content, bottom + 24, description)
    key = legend(names) if len(names) > 1 else ""
    return tag("figure", key, picture, _numbers(bars, names, show, description))


def _names(bars: Sequence[Bar]) -> list[str]:
    names = {name: None for bar in bars for name, value in bar.parts.items() if value > 0}
    return list(names)


def _bar(
    bar: Bar, place: int, names: Sequence[str], scale: Scale, show: Callable[[float], str]
) -> Markup:
    top = _TOP + place * _ROW + (_ROW - _BAR) / 2
    parts, reached = [], 0.0
    for index, name in enumerate(names):
        value = bar.parts.get(name, 0.0)
        if value <= 0:
            continue
        left, right = scale(reached), scale(reached + value)
        told = f"{bar.label}: {readable(name)} {show(value)}"
        parts.append(
            tag(
                "rect",
                tag("title", told),
                x=left,
                y=top,
                width=right - left,
                height=_BAR,
                fill=fill(index),
                class_="outline",
            )
        )
        reached += value
    label = words(shortened(bar.label, _LEFT - 14), _LEFT - 8, top + 13, anchor="end")
    note = words(show(bar.total), WIDTH - 4, top + 13, anchor="end", class_="strong")
    return tag("g", label, parts, note)


def _limit(limit: tuple[float, str], scale: Scale, bottom: float) -> Markup:
    value, name = limit
    x = scale(value)
    line = tag("line", x1=x, x2=x, y1=_TOP - 4, y2=bottom, class_="limit")
    return tag("g", line, words(name, x, _TOP - 8, anchor="middle", class_="strong"))


def _numbers(
    bars: Sequence[Bar], names: Sequence[str], show: Callable[[float], str], caption: str
) -> Markup:
    heads = ["", *(readable(name) for name in names), "sum"]
    rows: list[list[Cell]] = []
    for bar in bars:
        values = [bar.parts.get(name, 0.0) for name in names]
        rows.append([word(bar.label), *(number(v, show(v)) for v in (*values, sum(values)))])
    return folded("numbers", sortable(heads, rows, caption))
