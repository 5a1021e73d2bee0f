"""Cross-validation of the fit: folds by group, sources left out, and left-out sources after a few of their runs."""

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from itertools import count

from costmodel.constants import Constants, priors
from planner.accuracy.fit import TieredFit, leading, tiered_fit
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


def trained(
    runs: Sequence[Run], parts: Sequence[Hashable], whole: TieredFit, evaluations: int
) -> Parts:
    """Return for each part the constants fitted to the runs of all other parts.

    Args:
        runs: All runs.
        parts: The part of each.
        whole: The fit to all runs; it only gives the place around which prices are linear at first.
        evaluations: How often the leading runs are priced anew: none is enough for folds that hardly move the
            constants.
    """
    numbers = dict(zip([i for i, run in enumerate(runs) if leading(run)], count(), strict=False))
    found = {}
    for part in dict.fromkeys(parts):
        kept = [index for index, own in enumerate(parts) if own != part]
        near = whole.core.linear.of([numbers[index] for index in kept if index in numbers])
        again = tiered_fit(
            [runs[index] for index in kept], near=near, evaluations=evaluations, later=2
        )
        found[part] = constants_of(again.values)
    return found


def held_out(runs: Sequence[Run], parts: Sequence[Hashable], fits: Parts) -> list[Prediction]:
    """Return predictions of each run by the fit that has not seen its part."""
    pricers = {part: Pricers(constants) for part, constants in fits.items()}
    return [pricers[part].predict(run) for run, part in zip(runs, parts, strict=True)]


def after_runs(fits: Parts, runs: Sequence[Run], number: int) -> list[Prediction]:
    """Return predictions of sources left out after calibration to ``number`` of their runs, 5 draws each."""
    result: list[Prediction] = []
    for source, own in by_source(runs).items():
        if len(own) >= number + 2:
            for draw, (used, others) in enumerate(draws(source, own, number), start=1):
                values = calibrate_runs(used, base=fits[source]).values
                result += predict_runs(
                    others, constants=fits[source], calibration=values, draw=draw
                )
    return result


def constants_of(values: Mapping[str, float]) -> Constants:
    """Return the priors with the values of a fit."""
    return priors().replaced(values)
