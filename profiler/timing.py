"""Repeats of one measurement until its median is settled or its time is up."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

LEAST_REPEATS = 5
FEW_REPEATS, FEW_BUDGETS = 3, 4
MOST_REPEATS = 100
SETTLED = 0.02  # the median's own standard error, relative
_NORMAL_IQR = 1.35  # interquartile range of a normal distribution in standard deviations
_MEDIAN_ERROR = 1.25  # standard error of its median: 1.25 sigma / sqrt(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Repeated measurement.

    Attributes:
        seconds: Median.
        samples: Number of repeats behind the warm-up.
        spread: Interquartile range over the median.
    """

    seconds: float
    samples: int
    spread: float

    @property
    def settled(self) -> bool:
        """Whether another repeat would hardly move the median."""
        error = self.spread / _NORMAL_IQR * _MEDIAN_ERROR / self.samples**0.5
        return self.samples >= LEAST_REPEATS and error <= SETTLED


def summary(seconds: list[float]) -> Timing:
    """Return median, number and spread of at least one sample."""
    middle = statistics.median(seconds)
    if len(seconds) < 2:
        return Timing(seconds=middle, samples=len(seconds), spread=0.0)
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(seconds=middle, samples=len(seconds), spread=(high - low) / middle)


def repeat(
    once: Callable[[], float],
    budget_s: float,
    warmup: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Call ``once``, which returns its own seconds, until the median is settled or the budget is spent.

    At least three samples behind the warm-up are taken unless they cost four times the budget. Ranks that measure together pass a shared
    ``clock``, so that all of them stop at the same repeat.
    """
    start = clock()
    for _ in range(warmup):
        once()
        if clock() - start > budget_s / 2:
            break
    samples = [once()]
    while len(samples) < MOST_REPEATS:
        spent = clock() - start
        if spent > (budget_s if len(samples) >= FEW_REPEATS else FEW_BUDGETS * budget_s):
            break
        samples.append(once())
        if summary(samples).settled:
            break
    return summary(samples)
