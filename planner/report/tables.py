"""Tables that sort by a click on a heading and fold away."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.report.markup import Markup, tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A shown text and the value it sorts by; numbers stand to the right."""

    text: str
    value: float | str

    @property
    def numeric(self) -> bool:
        """Whether it sorts as a number."""
        return not isinstance(self.value, str)


def number(value: float | None, text: str | None = None) -> Cell:
    """Return a numeric cell; None is shown as a dash and sorts last."""
    if value is None:
        return Cell(text="-", value=float("inf"))
    return Cell(text=f"{value:g}" if text is None else text, value=float(value))


def word(text: str) -> Cell:
    """Return a text cell."""
    return Cell(text=text, value=text.lower())


def sortable(heads: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str) -> Markup:
    """Return a table whose headings are buttons."""
    head = tag("tr", [tag("th", tag("button", text, type="button"), scope="col") for text in heads])
    body = [tag("tr", [_cell(cell) for cell in row]) for row in rows]
    table = tag(
        "table", tag("caption", caption), tag("thead", head), tag("tbody", body), class_="sortable"
    )
    return tag("div", table, class_="scroll")


def folded(summary: str, content: Markup) -> Markup:
    """Return content that opens by a click; printing opens it."""
    return tag("details", tag("summary", summary), content)


def _cell(cell: Cell) -> Markup:
    value = str(cell.value).replace("inf", "Infinity") if cell.numeric else cell.value
    return tag("td", cell.text, data_value=value, class_="number" if cell.numeric else None)
