"""Repeats: when they stop and what they summarise."""

from collections.abc import Callable, Iterable

import pytest

from profiler.timing import MOST_REPEATS, repeat, summary


def _series(values: Iterable[float]) -> Callable[[], float]:
    iterator = iter(values)
    return lambda: next(iterator)


def _clock(step: float) -> Callable[[], float]:
    now = [0.0]

    def tick() -> float:
        now[0] += step
        return now[0]

    return tick


def test_summary_is_median_and_relative_interquartile_range() -> None:
    timing = summary([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (timing.seconds, timing.samples) == (3.0, 5)
    assert timing.spread == pytest.approx(2 / 3)
    assert summary([7.0]).spread == 0.0


def test_equal_repeats_settle_at_the_least_number() -> None:
    assert repeat(lambda: 1.0, budget_s=100, clock=_clock(0.01)).samples == 5


def test_noisy_repeats_go_on_to_the_most() -> None:
    values = [1.0, 3.0] * MOST_REPEATS
    assert repeat(_series(values), budget_s=1e9, clock=_clock(0.01)).samples == MOST_REPEATS


def test_the_budget_ends_the_repeats_but_not_before_three() -> None:
    values = [1.0, 3.0, 9.0, 2.0, 7.0, 1.0, 3.0, 9.0, 1.0]
    assert repeat(_series(values), budget_s=1.0, clock=_clock(0.6)).samples == 3
    assert repeat(_series(values), budget_s=1.0, clock=_clock(100.0)).samples == 1
