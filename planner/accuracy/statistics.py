"""Statistics of predictions against measurements: errors, bias, ranking, memory, fits against out of memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from planner.accuracy.predict import Prediction

_Floats = NDArray[np.float64]
RANKED_STRATEGIES = 4  # groups with fewer distinct strategies say nothing about ranking


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors of predicted over measured values, as shares.

    Attributes:
        runs: Number of predictions.
        median, mean, p90: Of the absolute error.
        bias: Median of the signed error.
        within_5, within_10, within_20: Share of runs within that many per cent.
    """

    runs: int
    median: float
    mean: float
    p90: float
    bias: float
    within_5: float
    within_10: float
    within_20: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRanking:
    """How well one group of strategies is ranked.

    Attributes:
        group: Group and head count.
        strategies: Distinct strategies.
        tau: Kendall's tau-b between predicted and measured time.
        regret: Measured time of the predicted best over the measured best, minus 1.
    """

    group: str
    strategies: int
    tau: float
    regret: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Ranking over all groups.

    Attributes:
        groups: Each group.
        tau, regret: Mean over groups; ``regret_median`` and ``regret_worst`` beside them.
        pairs: Share of pairs ordered right among those whose measured times differ by more than 10 %.
    """

    groups: tuple[GroupRanking, ...]
    tau: float
    regret: float
    regret_median: float
    regret_worst: float
    pairs: float


def errors(predicted: Sequence[float], measured: Sequence[float]) -> Errors | None:
    """Return the errors of ``predicted``, None where there are none."""
    if not len(predicted):
        return None
    signed = np.asarray(predicted, float) / np.asarray(measured, float) - 1.0
    size = np.abs(signed)
    return Errors(
        runs=len(signed),
        median=float(np.median(size)),
        mean=float(size.mean()),
        p90=float(np.quantile(size, 0.9)),
        bias=float(np.median(signed)),
        within_5=float((size <= 0.05).mean()),
        within_10=float((size <= 0.10).mean()),
        within_20=float((size <= 0.20).mean()),
    )


def ranking(predictions: Sequence[Prediction]) -> Ranking | None:
    """Return how well strategies of the same group and draw are ranked; None without such groups.

    Runs of one strategy in one group are averaged first.
    """
    groups: dict[str, dict[object, list[tuple[float, float]]]] = {}
    for item in predictions:
        run = item.run
        if run.group and run.iteration_s:
            name = f"{run.group} draw {item.draw}" if item.draw else run.group
            found = groups.setdefault(name, {}).setdefault(run.strategy, [])
            found.append((item.iteration_s, run.iteration_s))
    tables = {
        name: np.array([np.mean(pairs, axis=0) for pairs in strategies.values()])
        for name, strategies in groups.items()
        if len(strategies) >= RANKED_STRATEGIES
    }
    if not tables:
        return None
    ranked = tuple(
        GroupRanking(group=name, strategies=len(table), tau=kendall(table), regret=regret(table))
        for name, table in tables.items()
    )
    regrets = np.array([group.regret for group in ranked])
    return Ranking(
        groups=ranked,
        tau=float(np.mean([group.tau for group in ranked])),
        regret=float(regrets.mean()),
        regret_median=float(np.median(regrets)),
        regret_worst=float(regrets.max()),
        pairs=ordered_pairs(list(tables.values())),
    )


def kendall(table: _Floats) -> float:
    """Return Kendall's tau-b of (predicted, measured) rows; ties in either are no evidence."""
    agree = ties_predicted = ties_measured = pairs = 0
    for one, other in combinations(table, 2):
        signs = np.sign(one - other)
        pairs += 1
        ties_predicted += signs[0] == 0
        ties_measured += signs[1] == 0
        agree += int(signs[0] * signs[1])
    scale = ((pairs - ties_predicted) * (pairs - ties_measured)) ** 0.5
    return agree / scale if scale else 0.0


def regret(table: _Floats) -> float:
    """Return how much slower than the measured best the predicted best is; predicted ties are averaged."""
    best = table[table[:, 0] <= table[:, 0].min() * (1 + 1e-12), 1].mean()
    return float(best / table[:, 1].min() - 1.0)


def ordered_pairs(tables: Sequence[_Floats], difference: float = 0.10) -> float:
    """Return the share of pairs ordered right among those that differ by more than ``difference``."""
    right = total = 0
    for table in tables:
        for one, other in combinations(table, 2):
            low, high = sorted((one, other), key=lambda pair: float(pair[1]))
            if high[1] / low[1] - 1.0 > difference:
                total += 1
                right += bool(high[0] > low[0])
    return right / total if total else 1.0
