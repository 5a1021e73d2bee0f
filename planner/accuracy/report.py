"""What ``shardplan accuracy`` does: read runs, predict them as shipped or after calibration, count."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from costmodel.calibration import read_calibration
from costmodel.errors import InputError, ShardplanError
from planner.accuracy.predict import Prediction, Pricers, by_source, predict_runs
from planner.accuracy.runs import Run, Unread, read_rows, read_runs
from planner.accuracy.summary import Accuracy, accuracy_of
from planner.calibrate import calibrate_runs

DRAWS = 5


def measure_accuracy(
    paths: Sequence[Path],
    *,
    tier: str = "all",
    draws: int | None = None,
    calibration_path: Path | None = None,
) -> Accuracy:
    """Return the accuracy on the runs of CSV files.

    Args:
        paths: The files.
        tier: "core", "extra" or "all".
        draws: Calibrate to this many runs of each source and predict its others, None to predict as shipped.
        calibration_path: A calibration file to predict with.

    Raises:
        InputError: If a file cannot be read.
    """
    runs, unread = read_runs(read_rows(paths), tier)
    if draws:
        return accuracy_of(list(calibrated_predictions(runs, draws)), unread)
    calibration = read_calibration(calibration_path) if calibration_path else None
    predictions, failed = predict_each(runs, calibration)
    return accuracy_of(predictions, [*unread, *failed])


def predict_each(
    runs: Sequence[Run], calibration: Mapping[str, float] | None = None
) -> tuple[list[Prediction], list[Unread]]:
    """Return predictions, and the runs that the model cannot describe with the reason."""
    pricers, predictions, failed = Pricers(calibration=calibration), [], []
    for run in runs:
        try:
            predictions.append(pricers.predict(run, calibrated=bool(calibration)))
        except (ShardplanError, ValueError, ArithmeticError) as error:
            reason = f"{type(error).__name__}: {error}"
            failed.append(Unread(id=run.id, source=run.source, tier=run.tier, reason=reason))
    return predictions, failed


def calibrated_predictions(runs: Sequence[Run], count: int) -> Iterator[Prediction]:
    """Yield predictions of the runs that a draw of ``count`` of their source did not use, for each of 5 draws.

    Sources with fewer than two runs more than a draw takes are left out: nothing would remain to predict.
    """
    for source, own in by_source(runs).items():
        timed = [run for run in own if run.iteration_s]
        if len(timed) >= count + 2:
            for draw, (used, others) in enumerate(draws(source, timed, count), start=1):
                yield from predict_runs(others, calibration=_calibrated(used), draw=draw)


def _calibrated(runs: Sequence[Run]) -> dict[str, float]:
    """Return the constants fitted to ``runs``; nothing where none of them is credible."""
    try:
        return calibrate_runs(runs).values
    except InputError:
        return {}


def draws(source: str, runs: Sequence[Run], count: int) -> Iterator[tuple[list[Run], list[Run]]]:
    """Yield five times ``count`` runs drawn by a seed of the source's name, and the others."""
    for draw in range(DRAWS):
        chosen = set(random.Random(f"{source}/{draw}").sample(range(len(runs)), count))
        used = [run for index, run in enumerate(runs) if index in chosen]
        yield used, [run for index, run in enumerate(runs) if index not in chosen]
