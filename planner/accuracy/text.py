"""The tables of ``shardplan accuracy`` as text."""

from collections import Counter
from collections.abc import Iterable, Sequence

from planner.accuracy.statistics import Errors
from planner.accuracy.summary import Accuracy, Confusion, Summary

_HEAD = (
    "source",
    "runs",
    "median",
    "mean",
    "p90",
    "bias",
    "in band",
    "tau",
    "regret",
    "allocated",
    "reserved",
)

_LISTED = 40  # more groups (draws of a calibration) are summed up only


def accuracy_to_text(accuracy: Accuracy) -> str:
    """Return errors by source, ranking by group, verdicts and unpredicted rows, in per cent of measured."""
    rows = [_row(name, summary) for name, summary in accuracy.sources.items()]
    rows.append(_row("all", accuracy.whole))
    parts = [
        "Error of predicted over measured iteration time and memory (median), in per cent",
        _table([_HEAD, *rows]),
        _groups(accuracy.whole),
        _verdicts(accuracy.whole.confusion),
        _unpredicted(accuracy),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _row(name: str, summary: Summary) -> tuple[str, ...]:
    time, ranked = summary.time, summary.ranking
    return (
        name,
        str(time.runs) if time else "0",
        *(_percent(value) for value in _time(time)),
        f"{time.bias * 100:+.1f}" if time else "-",
        f"{summary.coverage * 100:.0f}" if summary.coverage is not None else "-",
        f"{ranked.tau:.2f}" if ranked else "-",
        _percent(ranked.regret) if ranked else "-",
        _percent(summary.allocated.median if summary.allocated else None),
        _percent(summary.reserved.median if summary.reserved else None),
    )


def _time(time: Errors | None) -> tuple[float | None, ...]:
    return (time.median, time.mean, time.p90) if time else (None, None, None)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.1f}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = [
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join([first, *rest]).rstrip()


def _groups(summary: Summary) -> str:
    if summary.ranking is None:
        return ""
    ranked = summary.ranking
    head = (
        f"Ranking in {len(ranked.groups)} groups of strategies: tau {ranked.tau:.2f}, regret mean "
        f"{ranked.regret * 100:.1f} median {ranked.regret_median * 100:.1f} worst {ranked.regret_worst * 100:.1f}, "
        f"pairs that differ by more than 10 % ordered right {ranked.pairs * 100:.0f}"
    )
    if len(ranked.groups) > _LISTED:
        return head
    rows = [("group", "strategies", "tau", "regret")]
    rows += [
        (group.group, str(group.strategies), f"{group.tau:.2f}", f"{group.regret * 100:.1f}")
        for group in ranked.groups
    ]
    return f"{head}\n{_table(rows)}"


def _verdicts(confusion: Confusion) -> str:
    rows = [
        ("memory verdict", "ran", "out of memory"),
        ("predicted to fit", str(confusion.fits_ran), str(confusion.fits_oom)),
        ("predicted not to fit", str(confusion.oom_ran), str(confusion.oom_oom)),
    ]
    return _table(rows)


def _unpredicted(accuracy: Accuracy) -> str:
    if not accuracy.unread:
        return ""
    counts: Iterable[tuple[str, int]] = Counter(
        item.reason for item in accuracy.unread
    ).most_common()
    lines = [f"  {count} x {reason}" for reason, count in counts]
    return "\n".join([f"Rows that could not be predicted: {len(accuracy.unread)}", *lines])
