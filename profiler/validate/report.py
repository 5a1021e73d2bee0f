"""Predicted against measured: iteration, ranks, stages, memory, collectives; as text, JSON and a timeline picture."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.sax.saxutils import escape

from costmodel.units import format_bytes, format_seconds
from profiler.validate.expected import in_passes
from profiler.validate.job import Job
from profiler.validate.predict import Prediction, predict
from profiler.validate.ranks import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One compared quantity; seconds or bytes."""

    name: str
    measured: float
    predicted: float
    unit: str = "s"

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1.0 if self.measured else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A validated job.

    Attributes:
        rows: Iteration first, then ranks, stages and memory.
        spread: Largest over smallest measured iteration, less one.
        collectives_equal: Whether every rank issued exactly the predicted collectives.
        collectives: Predicted counts by event key, of rank 0.
        spans: Measured passes of the last round by rank: (kind, stage, start, end) from the iteration's start.
    """

    label: str
    rows: tuple[Row, ...]
    spread: float
    collectives_equal: bool
    collectives: Mapping[str, int]
    spans: tuple[tuple[tuple[str, int, float, float], ...], ...]

    @property
    def iteration(self) -> Row:
        """The iteration."""
        return self.rows[0]


def report(job: Job, result: Result) -> Report:
    """Compare what the ranks saw with the prediction from the events of the same rounds."""
    iterations = [_iteration_s(result, number) for number in range(job.rounds)]
    predicted = predict(job, prices_of(job, result))
    rows = [
        Row(
            name="iteration",
            measured=statistics.median(iterations),
            predicted=predicted.iteration_s,
        ),
        *_busy_rows(job, result, predicted),
        *_stage_rows(job, result, predicted),
        *_memory_rows(result, predicted),
    ]
    return Report(
        label=_label(job),
        rows=tuple(rows),
        spread=max(iterations) / min(iterations) - 1.0,
        collectives_equal=all(rank["issued"] == rank["expected"] for rank in result),
        collectives=result[0]["expected"],
        spans=tuple(_spans(result, rank) for rank in range(len(result))),
    )


def as_text(found: Report) -> str:
    """Return the comparison as a table."""
    lines = [f"{found.label}", f"{'':26}{'measured':>12}{'predicted':>12}{'error':>9}"]
    for row in found.rows:
        write = format_seconds if row.unit == "s" else format_bytes
        lines.append(
            f"{row.name:26}{write(row.measured):>12}{write(row.predicted):>12}{row.error:+9.1%}"
        )
    calls = ", ".join(f"{count} x {key}" for key, count in found.collectives.items()) or "none"
    verdict = "as predicted" if found.collectives_equal else "NOT as predicted"
    lines.append(f"collectives {verdict}: {calls}")
    lines.append(f"measured iterations differ by up to {found.spread:.0%}")
    return "\n".join(lines) + "\n"


def as_json(found: Report) -> dict[str, Any]:
    """Return the comparison as plain values."""
    rows = [asdict(row) | {"error": row.error} for row in found.rows]
    return {
        "label": found.label,
        "rows": rows,
        "spread": found.spread,
        "collectives_equal": found.collectives_equal,
        "collectives": dict(found.collectives),
    }


def _label(job: Job) -> str:
    strategy = job.strategy
    parts = [strategy.label(), f"micro_batch {strategy.micro_batch}"]
    parts.append(f"{strategy.microbatches} micro-batches")
    if strategy.pp > 1:
        parts += [strategy.schedule, "/".join(map(str, job.layers))]
    if strategy.zero:
        parts.append(f"ZeRO-{strategy.zero}")
    return f"{', '.join(parts)}: hidden {job.shape.hidden}, {job.shape.layers} layers"


def _iteration_s(result: Result, number: int) -> float:
    rounds = [rank["rounds"][number] for rank in result]
    start: float = min(found["start_s"] for found in rounds)
    end: float = max(found["end_s"] for found in rounds)
    return end - start


def prices_of(job: Job, result: Result) -> dict[str, float]:
    """Return each event's price, the median of the rounds, from the pieces that the ranks measured side by side.

    Where ranks meet within every pass the later of them sets the pace, so each piece counts as the slower rank took
    for it; elsewhere as the mean of both.
    """
    pace = max if any(in_passes(job)) else statistics.fmean
    rounds = [[rank["rounds"][number]["prices"] for rank in result] for number in range(job.rounds)]
    return {
        name: statistics.median(_price([prices[name] for prices in seen], pace) for seen in rounds)
        for name in rounds[0][0]
    }


def _price(by_rank: Sequence[Sequence[float]], pace: Callable[[Sequence[float]], float]) -> float:
    return sum(map(pace, zip(*by_rank, strict=True)))


def _busy_rows(job: Job, result: Result, predicted: Prediction) -> list[Row]:
    rows = []
    for rank, found in enumerate(result):
        busy = [_busy(found["rounds"][number]["spans"]) for number in range(job.rounds)]
        rows.append(
            Row(
                name=f"rank {rank} busy",
                measured=statistics.median(busy),
                predicted=predicted.busy_s[rank],
            )
        )
    return rows


def _busy(spans: Sequence[Mapping[str, Any]]) -> float:
    return sum(float(span["end_s"]) - float(span["start_s"]) for span in spans)


def _stage_rows(job: Job, result: Result, predicted: Prediction) -> list[Row]:
    rows = []
    for stage, price in enumerate(predicted.stages):
        for kind, name, seconds in (
            ("F", "forward", price.forward_s),
            ("B", "backward", price.backward_s),
        ):
            measured = _pass_s(job, result, stage, kind)
            rows.append(Row(name=f"stage {stage} {name}", measured=measured, predicted=seconds))
    return rows


def _pass_s(job: Job, result: Result, stage: int, kind: str) -> float:
    """Return the median over rounds of one micro-batch's pass of a stage."""
    per_round = []
    for number in range(job.rounds):
        spans = [
            span
            for rank in result
            for span in rank["rounds"][number]["spans"]
            if (span["stage"], span["kind"]) == (stage, kind)
        ]
        holders = sum(
            any(span["stage"] == stage for span in rank["rounds"][number]["spans"])
            for rank in result
        )
        per_round.append(_busy(spans) / holders / job.strategy.microbatches)
    return statistics.median(per_round)


def _memory_rows(result: Result, predicted: Prediction) -> list[Row]:
    rows = []
    for rank, found in enumerate(result):
        pairs = [("state", found["state_bytes"], predicted.state_bytes[rank])]
        if predicted.saved_bytes[rank]:
            pairs.append(("activations", found["saved_bytes"], predicted.saved_bytes[rank]))
        rows += [
            Row(name=f"rank {rank} {name}", measured=seen, predicted=said, unit="bytes")
            for name, seen, said in pairs
        ]
    return rows


def _spans(result: Result, rank: int) -> tuple[tuple[str, int, float, float], ...]:
    start = min(found["rounds"][-1]["start_s"] for found in result)
    return tuple(
        (span["kind"], span["stage"], span["start_s"] - start, span["end_s"] - start)
        for span in result[rank]["rounds"][-1]["spans"]
    )


def as_svg(found: Report, predicted: Sequence[Sequence[tuple[str, int, float, float]]]) -> str:
    """Return the timeline: for each rank a row of predicted and a row of measured passes."""
    longest = max((end for row in (*predicted, *found.spans) for *_, end in row), default=1.0)
    width, height, left = 960, 28, 120
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12" '
            f'width="{left + width + 20}" height="{height * 2 * len(found.spans) + 40}">'
        ),
        f'<text x="4" y="16">{escape(found.label)}</text>',
    ]
    for rank, (said, seen) in enumerate(zip(predicted, found.spans, strict=True)):
        for line, (name, spans) in enumerate((("predicted", said), ("measured", seen))):
            y = 28 + height * (2 * rank + line)
            parts.append(f'<text x="4" y="{y + 16}">rank {rank} {name}</text>')
            parts += [_box(span, left, width / longest, y, height) for span in spans]
    return "\n".join([*parts, "</svg>\n"])


def _box(span: tuple[str, int, float, float], left: int, scale: float, y: int, height: int) -> str:
    kind, stage, start, end = span
    colour = "#4878a8" if kind == "F" else "#d0885c"
    x, wide = left + start * scale, max((end - start) * scale, 0.5)
    title = f"<title>{kind} stage {stage}: {format_seconds(end - start)}</title>"
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{height - 8}" '
        f'fill="{colour}" stroke="white" stroke-width="0.5">{title}</rect>'
    )
