"""Statistics on tables one can count by hand."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from costmodel.load import parse_json
from planner.accuracy.golden import GOLDEN, statistics
from planner.accuracy.iteration import closed_form
from planner.accuracy.predict import Pricers
from planner.accuracy.refit import RUNS
from planner.accuracy.runs import read_rows, read_runs
from planner.accuracy.statistics import errors, kendall, ordered_pairs, regret
from planner.accuracy.validation import fold_of


def table(*pairs: tuple[float, float]) -> NDArray[np.float64]:
    return np.array(pairs, float)


def test_errors_are_shares_of_the_measured_value() -> None:
    found = errors([1.1, 0.8, 1.0], [1.0, 1.0, 1.0])
    assert found is not None
    assert found.median == pytest.approx(0.1)
    assert found.mean == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.0)
    assert errors([], []) is None


def test_kendalls_tau_counts_agreeing_against_disagreeing_pairs() -> None:
    assert kendall(table((1, 1), (2, 2), (3, 3), (4, 4))) == 1.0
    assert kendall(table((4, 1), (3, 2), (2, 3), (1, 4))) == -1.0
    assert kendall(table((1, 1), (3, 2), (2, 3), (4, 4))) == pytest.approx(2 / 3)


def test_regret_is_what_the_predicted_best_costs_over_the_measured_best() -> None:
    assert regret(table((1, 2.2), (2, 2.0), (3, 4.0))) == pytest.approx(0.1)
    assert regret(table((1, 2.0), (2, 2.2))) == 0.0


def test_only_pairs_that_differ_by_more_than_ten_per_cent_are_counted() -> None:
    close_and_far = [table((2, 1.0), (1, 1.05), (3, 2.0))]
    assert ordered_pairs(close_and_far) == 1.0


def test_runs_of_one_group_never_stand_in_two_folds() -> None:
    runs, _ = read_runs(read_rows([RUNS]))
    folds: dict[str, set[int]] = {}
    for run in runs:
        folds.setdefault(run.row["group"] or run.id, set()).add(fold_of(run))
    assert all(len(found) == 1 for found in folds.values())


def test_the_closed_form_of_the_fit_agrees_with_the_simulator() -> None:
    runs, _ = read_runs(read_rows([RUNS]), "core")
    pricers = Pricers()
    for run in runs[::9]:
        exact = pricers.predict(run).iteration_s
        assert closed_form(pricers.time_cost(run), run.placement) == pytest.approx(exact, rel=0.03)


def test_shipped_statistics_are_no_worse_than_the_stored_ones() -> None:
    stored = parse_json(GOLDEN.read_text(encoding="utf-8"))
    assert isinstance(stored, dict)
    for tier, numbers in statistics().items():
        for name, value in numbers.items():
            assert value <= stored["statistics"][tier][name] + 1e-6, f"{tier} {name}"


def test_repeated_predictions_are_the_same() -> None:
    runs, _ = read_runs(read_rows([RUNS]), "core")
    first, second = ([Pricers().predict(run).iteration_s for run in runs[:20]] for _ in range(2))
    assert first == second
    assert all(one > 0 for one, _ in pairwise(first))
