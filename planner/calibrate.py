"""Calibration: the few constants that differ from cluster to cluster, fitted to a user's own runs.

A handful of physical constants move (kernel and link efficiencies, host overhead, overlap), each held by a prior
around the shipped value; with few runs the prior decides, with many the runs do. A single scale factor is worse: what
differs between runs of one cluster is not common to them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from costmodel.calibration import Calibration, Change
from costmodel.constants import BY_NAME, Constants, fitted
from costmodel.errors import InputError
from planner.accuracy.fit import fit
from planner.accuracy.predict import predict_runs
from planner.accuracy.runs import Run, read_rows, read_runs

# Standard deviation of the logarithm of what may move, by the first part of a constant's name. From the spread between
# sources of measured runs; "link" is wider between nodes, where the network is rarely what was assumed.
_SPREADS: Mapping[str, float] = {
    "matmul.ceiling": 0.15,
    "matmul.ceiling8": 0.15,
    "matmul.ceiling32": 0.15,
    "elementwise": 0.30,
    "activation": 0.30,
    "attention.te": 0.30,
    "attention.fa2": 0.30,
    "attention.triton": 0.30,
    "attention.batched": 0.20,
    "attention.scores": 0.20,
    "link": 0.20,
    "latency": 0.30,
    "host.layer": 0.30,
    "overlap": 0.25,
    "p2p": 0.30,
    "iteration": 0.50,
    "microbatch": 0.50,
}
_NETWORKS = frozenset({"infiniband", "roce", "ethernet", "efa", "omnipath", "other"})
_NETWORK_SPREAD = 0.35
NOISE = 0.08  # of one of the user's runs against the model with the right constants
REFUSED_FACTOR = 3.0  # a run that far off, or more, is a typing error or another thing than it says


def spreads() -> dict[str, float]:
    """Return the prior spread of each constant that a calibration may move."""
    result = {}
    for name in BY_NAME:
        stem, _, last = name.rpartition(".")
        spread = _SPREADS.get(stem, _SPREADS.get(name))
        if spread is not None:
            result[name] = _NETWORK_SPREAD if stem == "link" and last in _NETWORKS else spread
    return result


def calibrate_files(paths: Sequence[Path]) -> Calibration:
    """Return the calibration to the runs of CSV files.

    Raises:
        InputError: If a file cannot be read or no row is usable.
    """
    runs, unread = read_runs(read_rows(paths))
    refused = {item.id: item.reason for item in unread}
    refused |= {run.id: "iteration_s is not stated" for run in runs if not run.iteration_s}
    return calibrate_runs([run for run in runs if run.iteration_s], refused=refused)


def calibrate_runs(
    runs: Sequence[Run],
    *,
    base: Constants | None = None,
    refused: Mapping[str, str] | None = None,
) -> Calibration:
    """Return the constants that fit ``runs``, near the shipped ones.

    Args:
        runs: Timed runs of one cluster.
        base: Constants to start from; the shipped fit by default.
        refused: Runs refused before, to be reported.

    Raises:
        InputError: If no run is usable.
    """
    centre = base or fitted()
    told = dict(refused or {})
    used = _credible(runs, centre, told)
    if not used:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(told.items())[:3])
        raise InputError(
            f"no run to calibrate to ({reasons})" if reasons else "no run to calibrate to"
        )
    found = fit(used, base=centre, spreads=spreads(), noise=NOISE, weights=np.ones(len(used)))
    changes = [
        Change(name=name, before=centre[name], after=value, deviation=found.deviation[name])
        for name, value in found.values.items()
    ]
    changes.sort(key=lambda change: -abs(np.log(change.after / change.before)))
    before = [item.iteration_s for item in predict_runs(used, constants=centre)]
    measured = np.array([run.iteration_s for run in used], float)
    return Calibration(
        changes=tuple(changes),
        runs=len(used),
        error_before=float(np.median(np.abs(np.array(before) / measured - 1))),
        error_after=float(np.median(np.abs(np.exp(found.residuals) - 1))),
        refused=told,
    )


def _credible(runs: Sequence[Run], constants: Constants, told: dict[str, str]) -> list[Run]:
    """Return the runs within a factor of the prediction; name the others in ``told``."""
    used = []
    for prediction in predict_runs(runs, constants=constants):
        measured = prediction.run.iteration_s or 0.0
        ratio = measured / prediction.iteration_s
        if 1 / REFUSED_FACTOR < ratio < REFUSED_FACTOR:
            used.append(prediction.run)
        else:
            told[prediction.run.id] = (
                f"{measured:g} s measured, {prediction.iteration_s:.3g} s expected: "
                f"off by more than a factor of {REFUSED_FACTOR:g}"
            )
    return used
