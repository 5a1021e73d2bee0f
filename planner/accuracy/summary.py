"""What ``shardplan accuracy`` reports: statistics for each source and for all, as values and as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from planner.accuracy.predict import Prediction
from planner.accuracy.runs import Unread
from planner.accuracy.statistics import Errors, Ranking, errors, ranking

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Verdicts on memory against what happened.

    Attributes:
        fits_ran, fits_oom: Predicted to fit, and it ran or ran out of memory (the harmful error).
        oom_ran, oom_oom: Predicted not to fit, and it ran (the cautious error) or did not.
    """

    fits_ran: int = 0
    fits_oom: int = 0
    oom_ran: int = 0
    oom_oom: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Statistics of a set of predictions.

    Attributes:
        time: Errors of the iteration time; None without timed runs.
        ranking: Ranking within groups; None without a group of enough strategies.
        allocated, reserved: Errors of the memory counters, None where nothing was measured.
        coverage: Share of measured times inside the 80 % band; None without timed runs.
        confusion: Verdicts on memory.
    """

    time: Errors | None
    ranking: Ranking | None
    allocated: Errors | None
    reserved: Errors | None
    coverage: float | None
    confusion: Confusion


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Everything the command reports.

    Attributes:
        predictions: Each prediction.
        whole: Statistics of all runs; ``sources`` of each source.
        unread: Rows that could not be predicted, with the reason.
    """

    predictions: tuple[Prediction, ...]
    whole: Summary
    sources: Mapping[str, Summary]
    unread: tuple[Unread, ...] = ()


def accuracy_of(predictions: Sequence[Prediction], unread: Sequence[Unread] = ()) -> Accuracy:
    """Return the statistics of ``predictions``."""
    names = sorted({prediction.run.source for prediction in predictions})
    return Accuracy(
        predictions=tuple(predictions),
        whole=summary_of(predictions),
        sources={
            name: summary_of([item for item in predictions if item.run.source == name])
            for name in names
        },
        unread=tuple(unread),
    )


def summary_of(predictions: Sequence[Prediction]) -> Summary:
    """Return the statistics of one set of predictions."""
    timed = [(item, item.run.iteration_s) for item in predictions if item.run.iteration_s]
    return Summary(
        time=errors([item.iteration_s for item, _ in timed], [seconds for _, seconds in timed]),
        ranking=ranking(predictions),
        allocated=_memory_errors(
            [(item.allocated_bytes, item.run.allocated_bytes) for item in predictions]
        ),
        reserved=_memory_errors(
            [(item.reserved_bytes, item.run.reserved_bytes) for item in predictions]
        ),
        coverage=sum(item.low_s <= seconds <= item.high_s for item, seconds in timed) / len(timed)
        if timed
        else None,
        confusion=_confusion(predictions),
    )


def _memory_errors(pairs: Sequence[tuple[float | None, float | None]]) -> Errors | None:
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    return errors([one for one, _ in known], [other for _, other in known])


def _confusion(predictions: Sequence[Prediction]) -> Confusion:
    counts = Counter(
        f"{'fits' if item.fits else 'oom'}_{'oom' if item.run.out_of_memory else 'ran'}"
        for item in predictions
        if item.fits is not None
    )
    return Confusion(**counts)


def accuracy_to_json(accuracy: Accuracy) -> dict[str, Any]:
    """Return the JSON of the command; errors, bias and regret are shares (0.05 is 5 %)."""
    return {
        "schema": SCHEMA,
        "all": _summary_to_json(accuracy.whole),
        "sources": {name: _summary_to_json(summary) for name, summary in accuracy.sources.items()},
        "unpredicted": dict(Counter(item.reason for item in accuracy.unread)),
        "unpredicted_rows": {item.id: item.reason for item in accuracy.unread},
    }


def _summary_to_json(summary: Summary) -> dict[str, Any]:
    time, ranked = summary.time, summary.ranking
    return {
        "runs": time.runs if time else 0,
        "median_abs_error": time and time.median,
        "mean_abs_error": time and time.mean,
        "p90_abs_error": time and time.p90,
        "bias": time and time.bias,
        "kendall_tau": ranked and ranked.tau,
        "regret": ranked and ranked.regret,
        "regret_median": ranked and ranked.regret_median,
        "regret_worst": ranked and ranked.regret_worst,
        "pairs_ordered": ranked and ranked.pairs,
        "groups": len(ranked.groups) if ranked else 0,
        "allocated_runs": summary.allocated.runs if summary.allocated else 0,
        "allocated_median_abs_error": summary.allocated and summary.allocated.median,
        "allocated_bias": summary.allocated and summary.allocated.bias,
        "reserved_runs": summary.reserved.runs if summary.reserved else 0,
        "reserved_median_abs_error": summary.reserved and summary.reserved.median,
        "reserved_bias": summary.reserved and summary.reserved.bias,
        "interval_coverage": summary.coverage,
        "memory_verdicts": asdict(summary.confusion),
    }
