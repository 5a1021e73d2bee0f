"""A batch: one row per model, and the shared pool where there is one."""

from costmodel.units import format_bytes, format_seconds
from planner.batch.answer import BatchResult, Row
from planner.report.gantt import share_section
from planner.report.markup import Markup, tag
from planner.report.page import Section
from planner.report.plans import strategy_label
from planner.report.tables import Cell, number, sortable, word


def batch_sections(result: BatchResult) -> list[Section]:
    """Return the sections of a batch, models with errors among them."""
    if result.shared is None:
        return [Section(heading="Models", body=_models(result))]
    faults = [tag("li", f"{row.name}: {row.error}") for row in result.rows if row.error]
    left_out = [Section(heading="Not planned", body=tag("ul", faults))] if faults else []
    return [share_section(result.shared), *left_out]


def _models(result: BatchResult) -> Markup:
    heads = (
        "model", "GPUs", "strategy", "iteration", "tokens/s", "MFU", "peak memory", "gap", "hours",
        "why not",
    )  # fmt: skip
    return sortable(heads, [_row(row) for row in result.rows], "Each model planned by itself")


def _row(row: Row) -> list[Cell]:
    best = row.outcome.best if row.outcome else None
    if row.outcome is None or row.outcome.answer is None or best is None:
        told = row.error or "nothing fits"
        return [word(row.name), *(number(None) for _ in range(8)), word(told)]
    gap, peak = row.outcome.answer["gap"], best["peak_memory_bytes"]
    return [
        word(row.name),
        number(best["gpus"]),
        word(strategy_label(best)),
        number(best["iteration_s"], format_seconds(best["iteration_s"])),
        number(best["tokens_per_s"], f"{best['tokens_per_s']:,.0f}"),
        number(best["mfu"], f"{best['mfu']:.1%}"),
        number(peak, format_bytes(peak)),
        number(gap, f"{gap:.2%}"),
        number(row.hours, None if row.hours is None else f"{row.hours:,.1f}"),
        word(""),
    ]
