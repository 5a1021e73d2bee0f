"""A batch as table, CSV and JSON; the order is the pool file's, whoever finished first."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from costmodel.strategy import FIELD_NAMES, Strategy
from costmodel.units import format_bytes, format_seconds
from planner.batch.answer import BatchResult, Row
from planner.pool.share import Comparison, ShareResult

SCHEMA = 1

_COLUMNS = (
    "model", "scenario", "status", "gpus", "strategy", "iteration_s", "tokens_per_s", "mfu",
    "peak_memory_bytes", "lower_bound_s", "gap", "hours", "error",
)  # fmt: skip


def batch_to_json(result: BatchResult) -> dict[str, Any]:
    """Return plain values in a fixed order, with no time of day or duration of the run."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "mode": str(result.mode),
        "models": [_row_json(row) for row in result.rows],
    }
    if result.shared is not None:
        data["share"] = share_to_json(result.shared)
    return data


def share_to_json(shared: ShareResult) -> dict[str, Any]:
    """Return a shared schedule in plain values."""
    return {
        "status": str(shared.status),
        "objective": str(shared.objective),
        "unit": shared.unit,
        "value": shared.value,
        "bound": shared.bound,
        "gap": shared.gap,
        "makespan_h": shared.makespan_h,
        "cost": shared.cost,
        "utilisation": shared.utilisation,
        "groups": [asdict(group) for group in shared.groups],
        "segments": [_plain(segment) for segment in shared.segments],
        "jobs": [asdict(job) for job in shared.jobs],
        "comparisons": [asdict(item) for item in shared.comparisons],
        "reasons": list(shared.reasons),
    }


def batch_to_csv(result: BatchResult) -> str:
    """Return one line per model."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_cells(row) for row in result.rows)
    return text.getvalue()


def batch_to_text(result: BatchResult) -> str:
    """Return the comparison table, and the schedule where the pool is shared."""
    if result.shared is not None:
        faults = [f"{row.name}: {row.error}" for row in result.rows if row.error]
        return share_to_text(result.shared) + "".join(f"not planned: {line}\n" for line in faults)
    head = ("model", "GPUs", "strategy", "iteration", "tokens/s", "MFU", "memory", "gap", "hours")
    lines = [_line(row) for row in result.rows]
    faults = [f"{row.name}: {_why_not(row)}" for row in result.rows if _why_not(row)]
    return _table(head, lines) + "".join(f"no plan for {line}\n" for line in faults)


def share_to_text(shared: ShareResult) -> str:
    """Return the schedule, its certificate and its gain over handwork."""
    if shared.reasons:
        return "".join(f"no schedule: {reason}\n" for reason in shared.reasons)
    head = ("model", "group", "GPUs", "start h", "end h", "terms", "cost", "strategy")
    lines = [
        (
            s.job, s.group, str(s.gpus), f"{s.start_h:.1f}", f"{s.end_h:.1f}",
            "spot" if s.spot else "on demand", f"{s.cost:.0f}", s.plan,
        )
        for s in sorted(shared.segments, key=lambda s: (s.start_h, s.job))
    ]  # fmt: skip
    proof = (
        f"{shared.objective}: {shared.value:.4g} {shared.unit}, proven at least {shared.bound:.4g} "
        f"(gap {shared.gap:.2%}); GPUs in use {shared.utilisation:.0%} of {shared.makespan_h:.1f} h\n"
    )
    late = [job.job for job in shared.jobs if job.met is False]
    missed = f"deadlines missed: {', '.join(late)}\n" if late else ""
    by_hand = "".join(_comparison(item, shared.unit) for item in shared.comparisons)
    return _table(head, lines) + proof + missed + by_hand


def _comparison(item: Comparison, unit: str) -> str:
    if item.value is None or item.gain is None:
        return f"  {item.name}: finds no schedule\n"
    late = f", {item.missed} deadlines missed" if item.missed else ""
    return f"  {item.name}: {item.value:.4g} {unit}{late}; the plan saves {item.gain:.1%}\n"


def _row_json(row: Row) -> dict[str, Any]:
    data: dict[str, Any] = {"model": row.name, "scenario": row.scenario, "error": row.error or None}
    if row.outcome is not None:
        data |= {"hours": row.hours, "answer": row.outcome.answer}
    if row.job is not None:
        data["front"] = [asdict(point) for point in row.job.front]
    return data


def _plain(segment: Any) -> dict[str, Any]:
    return asdict(segment) | {"nodes": [list(pair) for pair in segment.nodes]}


def _cells(row: Row) -> dict[str, Any]:
    cells: dict[str, Any] = {"model": row.name, "scenario": row.scenario, "error": row.error}
    if row.outcome is None or row.outcome.answer is None:
        return cells | {"status": "error" if row.error else "planned"}
    answer, best = row.outcome.answer, row.outcome.best
    cells["status"] = answer["status"]
    if best is None:
        return cells
    cells |= {key: best[key] for key in _COLUMNS if key in best and key != "strategy"}
    return cells | {
        "strategy": _label(best),
        "lower_bound_s": answer["lower_bound_s"],
        "gap": answer["gap"],
        "hours": row.hours,
    }


def _line(row: Row) -> tuple[str, ...]:
    best = row.outcome.best if row.outcome else None
    if best is None or row.outcome is None or row.outcome.answer is None:
        return (row.name, *("-",) * 8)
    return (
        row.name,
        str(best["gpus"]),
        _label(best),
        format_seconds(best["iteration_s"]),
        f"{best['tokens_per_s']:,.0f}",
        f"{best['mfu']:.1%}",
        format_bytes(best["peak_memory_bytes"]),
        f"{row.outcome.answer['gap']:.2%}",
        "-" if row.hours is None else f"{row.hours:,.1f}",
    )


def _why_not(row: Row) -> str:
    """Return why a model has no plan; empty if it has one."""
    if row.error or row.outcome is None or row.outcome.best is not None:
        return row.error
    levers = (row.outcome.answer or {}).get("levers") or ["nothing fits"]
    return str(levers[0])


def _label(best: Mapping[str, Any]) -> str:
    strategy = {name: best["strategy"][name] for name in FIELD_NAMES if name in best["strategy"]}
    return Strategy(**strategy).label()


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, *lines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        + "\n"
        for row in rows
    )
