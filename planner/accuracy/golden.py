"""``python -m planner.accuracy.golden``: store the statistics of the shipped constants, which may only improve."""

import json

from planner.accuracy.predict import predict_runs
from planner.accuracy.refit import RUNS
from planner.accuracy.runs import read_rows, read_runs
from planner.accuracy.summary import Summary, summary_of

GOLDEN = RUNS.with_name("golden.json")
COMMAND = "python -m planner.accuracy.golden"


def statistics() -> dict[str, dict[str, float]]:
    """Return, for each tier, numbers of which less is better."""
    rows = read_rows([RUNS])
    return {
        tier: _numbers(summary_of(predict_runs(read_runs(rows, tier)[0])))
        for tier in ("core", "extra")
    }


def _numbers(summary: Summary) -> dict[str, float]:
    time, ranked = summary.time, summary.ranking
    allocated, reserved, confusion = summary.allocated, summary.reserved, summary.confusion
    numbers = {"called_fits_but_oom": float(confusion.fits_oom)}
    if time:
        numbers |= {"time_median": time.median, "time_mean": time.mean, "time_p90": time.p90}
        numbers["time_bias"] = abs(time.bias)
    if ranked:
        numbers |= {"ranking_disagreement": 1 - ranked.tau, "pairs_wrong": 1 - ranked.pairs}
        numbers |= {"regret": ranked.regret, "regret_median": ranked.regret_median}
    if allocated:
        numbers["allocated_median"] = allocated.median
    if reserved:
        numbers["reserved_median"] = reserved.median
    return numbers


def main() -> None:
    """Write the golden file."""
    data = {"command": COMMAND, "statistics": statistics()}
    GOLDEN.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
