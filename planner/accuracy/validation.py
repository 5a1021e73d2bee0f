"""Cross-validation of the fit: folds by group, sources left out, and left-out sources after a few of their runs."""

import hashlib
from collections.abc import Hashable, Mapping, Sequence

from costmodel.constants import Constants, priors
from planner.accuracy.fit import Fit, fit
from planner.accuracy.predict import Prediction, Pricers, by_source, predict_runs
from planner.accuracy.report import draws
from planner.accuracy.runs import Run
from planner.calibrate import calibrate_runs

FOLDS = 5


def fold_of(run: Run) -> int:
    """Return the fold of a run: all runs of a group, and all runs without one by model, share a fold."""
    group = run.row.get("group") or f"{run.source}/{run.graph.model.name}"
    return hashlib.sha256(group.encode()).digest()[0] % FOLDS


Parts = Mapping[Hashable, Constants]


def trained(runs: Sequence[Run], parts: Sequence[Hashable], start: Mapping[str, float]) -> Parts:
    """Return for each part the constants fitted to the runs of all other parts.

    ``start`` only shortens the search: the optimum of a fold is that of its own runs and the priors.
    """
    return {
        part: constants_of(
            fit([run for run, own in zip(runs, parts, strict=True) if own != part], start=start)
        )
        for part in dict.fromkeys(parts)
    }


def held_out(runs: Sequence[Run], parts: Sequence[Hashable], fits: Parts) -> list[Prediction]:
    """Return predictions of each run by the fit that has not seen its part."""
    pricers = {part: Pricers(constants) for part, constants in fits.items()}
    return [pricers[part].predict(run) for run, part in zip(runs, parts, strict=True)]


def after_runs(fits: Parts, runs: Sequence[Run], count: int) -> list[Prediction]:
    """Return predictions of sources left out after calibration to ``count`` of their runs, 5 draws each."""
    result: list[Prediction] = []
    for source, own in by_source(runs).items():
        if len(own) >= count + 2:
            for used, others in draws(source, own, count):
                values = calibrate_runs(used, base=fits[source]).values
                result += predict_runs(others, constants=fits[source], calibration=values)
    return result


def constants_of(fitted: Fit | Mapping[str, float]) -> Constants:
    """Return the priors with the values of a fit."""
    values = fitted.values if isinstance(fitted, Fit) else fitted
    return priors().replaced(values)
