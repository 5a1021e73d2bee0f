"""Fills that differ in colour and in pattern, so that charts read in grey, too."""

from collections.abc import Sequence

from planner.report.markup import Markup, tag

# Strokes on a 8 x 8 tile; the first fill is plain.
_STROKES = (
    "",
    "M0 8L8 0M-2 2L2 -2M6 10L10 6",
    "M0 4H8",
    "M0 0L8 8M-2 6L2 10M6 -2L10 2",
    "M4 0V8",
    "M0 4H8M4 0V8",
    "M2 2h1.5v1.5h-1.5zM6 6h1.5v1.5h-1.5z",
    "M0 8L8 0M0 0L8 8",
    "M0 2H8M0 6H8",
    "M2 0V8M6 0V8",
)
_COLOURS = len(_STROKES)
FILLS = 2 * _COLOURS


def pattern_definitions() -> Markup:
    """Return the invisible drawing that holds the fills ``#fill-0``, ``#fill-1``, .."""
    patterns = [
        tag(
            "pattern",
            tag("rect", width=8, height=8, class_=f"tile-{number % _COLOURS}"),
            tag("path", d=_stroke(number), class_="hatch"),
            id=f"fill-{number}",
            width=8,
            height=8,
            patternUnits="userSpaceOnUse",
        )
        for number in range(FILLS)
    ]
    definitions = tag("defs", patterns)
    return tag("svg", definitions, width=0, height=0, class_="definitions", aria_hidden="true")


def fill(number: int) -> str:
    """Return the reference to a fill; numbers beyond the last start over."""
    return f"url(#fill-{number % FILLS})"


def legend(names: Sequence[str]) -> Markup:
    """Return the names with their fills, in order."""
    items = [
        tag("li", _swatch(number), tag("span", readable(name))) for number, name in enumerate(names)
    ]
    return tag("ul", items, class_="legend")


def _stroke(number: int) -> str:
    """Return the pattern of a fill; the second time round colours meet other patterns."""
    return _STROKES[(number + 3 * (number // _COLOURS)) % _COLOURS]


def readable(name: str) -> str:
    """Return the name of a term as people read it."""
    return name.replace("_", " ")


def _swatch(number: int) -> Markup:
    box = tag("rect", width=22, height=14, fill=fill(number), class_="outline")
    return tag("svg", box, width=22, height=14, aria_hidden="true")
