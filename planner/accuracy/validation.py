"""Cross-validation of the fit: folds by group, sources left out, and left-out sources after a few of their runs."""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.constants import Constants, priors
from planner.accuracy.fit import Fit, fit
from planner.accuracy.predict import predict_runs
from planner.accuracy.runs import Run

_Floats = NDArray[np.float64]
FOLDS = 5


def predict(runs: Sequence[Run], constants: Constants) -> _Floats:
    """Return the simulated seconds of each run."""
    return np.array([item.iteration_s for item in predict_runs(runs, constants=constants)])


def fold_of(run: Run) -> int:
    """Return the fold of a run: all runs of a group, and all runs without one by model, share a fold."""
    group = run.row.get("group") or f"{run.source}/{run.graph.model.name}"
    return hashlib.sha256(group.encode()).digest()[0] % FOLDS


def cross_validated(runs: Sequence[Run], train: Callable[[Sequence[Run]], Fit] = fit) -> _Floats:
    """Return predictions of each run by a fit to the other folds."""
    return _held_out(runs, [fold_of(run) for run in runs], train)


def source_left_out(runs: Sequence[Run], train: Callable[[Sequence[Run]], Fit] = fit) -> _Floats:
    """Return predictions of each run by a fit to the other sources."""
    return _held_out(runs, [run.source for run in runs], train)


def _held_out(
    runs: Sequence[Run], parts: Sequence[object], train: Callable[[Sequence[Run]], Fit]
) -> _Floats:
    result = np.empty(len(runs))
    for part in dict.fromkeys(parts):
        inside = [index for index, own in enumerate(parts) if own == part]
        others = [run for run, own in zip(runs, parts, strict=True) if own != part]
        fitted = constants_of(train(others))
        result[inside] = predict([runs[index] for index in inside], fitted)
    return result


def constants_of(fitted: Fit | Mapping[str, float]) -> Constants:
    """Return the priors with the values of a fit."""
    values = fitted.values if isinstance(fitted, Fit) else fitted
    return priors().replaced(values)
