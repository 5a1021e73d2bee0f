"""What the Python face returns: answers that print, become data frames and JSON, and write their files."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costmodel.strategy import FIELD_NAMES
from planner.answer_json import result_to_json, simulation_to_json
from planner.answer_text import result_to_text, simulation_to_text
from planner.deliver import Drawn, draw, drawn_from, plan_files, result_page
from planner.files import write_all
from planner.plans import Plan, SearchResult
from planner.scenario import Scenario
from planner.simulation import Simulation
from planner.wanted import Wanted
from planner.whatif_answers import Answer
from planner.whatif_files import answer_files

if TYPE_CHECKING:
    import pandas as pd

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The best plans of a scenario, first the best; a sequence of plans with their certificate.

    Attributes:
        scenario: The question.
        result: The answer: plans, status, bound, gap, rejections, levers.
    """

    scenario: Scenario
    result: SearchResult

    def __len__(self) -> int:
        return len(self.result.plans)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.result.plans)

    def __getitem__(self, index: int) -> Plan:
        return self.result.plans[index]

    def __str__(self) -> str:
        return result_to_text(self.result, self.scenario)

    def _repr_html_(self) -> str:
        return _html(self.to_rows(), str(self))

    @property
    def best(self) -> Plan:
        """The first plan.

        Raises:
            LookupError: If nothing fits; the message says what would.
        """
        if not self.result.plans:
            raise LookupError("; ".join(("no plan exists", *self.result.levers)))
        return self.result.plans[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer in plain values, as ``shardplan plan --json`` writes it."""
        return result_to_json(self.result, self.scenario)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the answer as JSON text, and write it where a path is given."""
        return _json(self.to_dict(), path)

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one flat row for each plan: rank, every field of the strategy, predictions."""
        return [_row(plan) for plan in self.to_dict()["plans"]]

    def to_dataframe(self) -> "pd.DataFrame":
        """Return ``to_rows`` as a data frame with the rank as index.

        Raises:
            ImportError: If pandas is not installed.
        """
        return _frame(self.to_rows(), "rank")

    def report(self, path: str | Path, *, rank: int = 1) -> Path:
        """Write the HTML page, with the timeline of the plan at ``rank``."""
        drawn = self._drawn(rank) if self.result.plans else None
        return write_all({Path(path): result_page(self.scenario, self.result, drawn)})[0]

    def trace(self, path: str | Path, *, rank: int = 1) -> Path:
        """Write the timeline of a plan for Perfetto; ``.gz`` compresses."""
        return _written(Wanted(trace=Path(path)), self.scenario, self._drawn(rank))

    def plot(self, path: str | Path, *, rank: int = 1) -> Path:
        """Draw the timeline of a plan as SVG or PNG."""
        return _written(Wanted(plot=Path(path)), self.scenario, self._drawn(rank))

    def export(
        self, target: str, directory: str | Path, *, rank: int = 1, exact: bool = False
    ) -> tuple[Path, ...]:
        """Write what launches a plan with ``target``.

        Where the target has no words for the plan's recomputation alone, a warning says which plan is written instead.

        Raises:
            InputError: If the target is unknown or cannot express the plan; with ``exact`` its recomputation as well.
        """
        wanted = Wanted(exports=((target, Path(directory)),), exact=exact)
        wanted.check()
        delivery = plan_files(wanted, self.scenario, self._drawn(rank), self.result.plans)
        for notice in delivery.notices:
            warnings.warn(notice, stacklevel=2)
        return write_all(delivery.files)

    def _drawn(self, rank: int) -> Drawn:
        return draw(self.scenario, self[rank - 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One given strategy: legal or not, fitting or not, how fast."""

    scenario: Scenario
    simulation: Simulation

    def __str__(self) -> str:
        return simulation_to_text(self.simulation, self.scenario)

    def _repr_html_(self) -> str:
        return _html([_row(self.to_dict())] if self.legal else [], str(self))

    @property
    def legal(self) -> bool:
        """Whether the strategy breaks no rule; ``simulation.violations`` are those it breaks."""
        return self.simulation.plan is not None

    @property
    def plan(self) -> Plan:
        """The predicted plan.

        Raises:
            LookupError: If the strategy is illegal; the message names the rules.
        """
        if self.simulation.plan is None:
            raise LookupError("; ".join(item.text for item in self.simulation.violations))
        return self.simulation.plan

    def to_dict(self) -> dict[str, Any]:
        """Return the answer in plain values, as ``shardplan simulate --json`` writes it."""
        return simulation_to_json(self.simulation, self.scenario)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the answer as JSON text, and write it where a path is given."""
        return _json(self.to_dict(), path)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return one row for each stage.

        Raises:
            ImportError: If pandas is not installed.
        """
        rows = [
            {"stage": place, **_flat(stage)}
            for place, stage in enumerate(self.to_dict().get("stages", []))
        ]
        return _frame(rows, "stage")

    def trace(self, path: str | Path) -> Path:
        """Write the timeline for Perfetto; ``.gz`` compresses."""
        return _written(Wanted(trace=Path(path)), self.scenario, drawn_from(self.simulation))

    def plot(self, path: str | Path) -> Path:
        """Draw the timeline as SVG or PNG."""
        return _written(Wanted(plot=Path(path)), self.scenario, drawn_from(self.simulation))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """How the best plan changes: one row for each step or variant."""

    heading: str
    answer: Answer

    def __str__(self) -> str:
        return self.answer.text + "\n"

    def _repr_html_(self) -> str:
        return _html(self.to_rows(), str(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the answer in plain values, as ``shardplan whatif --json`` writes it."""
        return self.answer.data

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the answer as JSON text, and write it where a path is given."""
        return _json(self.to_dict(), path)

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one flat row for each step or variant: what was varied, then its best plan."""
        data = self.answer.data
        return [
            {**item.get("set", {}), **_flat(item), **(_row(item["plan"]) if item["plan"] else {})}
            for item in data.get("steps", data.get("variants", []))
        ]

    def to_dataframe(self) -> "pd.DataFrame":
        """Return ``to_rows`` as a data frame.

        Raises:
            ImportError: If pandas is not installed.
        """
        return _frame(self.to_rows(), None)

    def report(self, path: str | Path) -> Path:
        """Write the HTML page."""
        return self._written(Wanted(report=Path(path)))

    def plot(self, path: str | Path) -> Path:
        """Draw the curve over memory or numbers of GPUs as SVG or PNG.

        Raises:
            InputError: If something else was varied.
        """
        return self._written(Wanted(plot=Path(path)))

    def _written(self, wanted: Wanted) -> Path:
        return write_all(answer_files(wanted, self.heading, self.answer.data, ""))[0]


def _written(wanted: Wanted, scenario: Scenario, drawn: Drawn) -> Path:
    return write_all(plan_files(wanted, scenario, drawn).files)[0]


def _json(data: Json, path: str | Path | None) -> str:
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    if path is not None:
        write_all({Path(path): text})
    return text


def _row(plan: Json) -> dict[str, Any]:
    """Return a plan's JSON as one flat row."""
    strategy = {name: plan["strategy"][name] for name in FIELD_NAMES}
    return {"rank": plan["rank"], **strategy, **_flat(plan)}


def _flat(values: Json) -> dict[str, Any]:
    """Return the entries that fit into one cell."""
    return {name: value for name, value in values.items() if not isinstance(value, dict | list)}


def _frame(rows: Sequence[Json], index: str | None) -> "pd.DataFrame":
    try:
        import pandas as pd
    except ImportError as error:
        message = "to_dataframe needs pandas: pip install 'shardplan[notebook]'"
        raise ImportError(message) from error
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    frame = pd.DataFrame(
        {name: pd.array(values, dtype=_dtype(values)) for name, values in columns.items()}
    )
    return frame.set_index(index) if index and not frame.empty else frame


def _dtype(values: Sequence[object]) -> str:
    """Return the type of a column: whole numbers stay whole beside rows that have no plan."""
    known = [value for value in values if value is not None]
    whole = bool(known) and all(type(value) is int for value in known)
    if whole:
        return "int64" if len(known) == len(values) else "Int64"
    number = bool(known) and all(type(value) in (int, float) for value in known)
    return "float64" if number else "object"


_SHOWN = ("label", "rank", "gpus", "dp", "tp", "pp", "cp", "ep", "vpp", "micro_batch", "microbatches", "zero",
          "recompute", "placement", "iteration_s", "tokens_per_s", "mfu", "memory_bytes", "peak_memory_bytes")  # fmt: skip
"""Columns of a notebook's table, in order, where a row has them."""


def _html(rows: Sequence[Json], text: str) -> str:
    """Return a table of the main columns, with the printed answer folded away below it."""
    names = [name for name in _SHOWN if any(name in row for row in rows)]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{escape(_cell(name, row.get(name)))}</td>" for name in names)
        + "</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    folded = "" if rows else " open"
    return (
        f"{table}<details{folded}><summary>as printed</summary><pre>{escape(text)}</pre></details>"
    )


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float) and name.endswith("_bytes"):
        return f"{value / 2**30:.1f} GiB"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
