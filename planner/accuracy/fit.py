"""The fit of the model's constants to measured runs: Gauss-Newton on logarithms, with priors and a robust loss.

Minimised is the sum over runs of w rho((log predicted - log measured) / noise) plus the sum over constants of
((log value - log prior) / spread)^2. rho is Student's (nu = 4), so a run 30 % off pulls hardly more than one 10 % off;
w = (runs of its source)^(-1/4), so that no source decides alone. All trial vectors of a step are priced at once (lanes).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.constants import BY_NAME, Constants, priors
from planner.accuracy.iteration import closed_form
from planner.accuracy.predict import Pricers
from planner.accuracy.runs import Run

_Floats = NDArray[np.float64]
_STEP = 1e-3  # of a logarithm, for the derivative by one lane per constant
_NOISE = 0.04  # relative noise of a run: repeated configurations differ by 2-4 % (median)
_FREEDOM = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fit.

    Attributes:
        values: Constants that the runs moved, by name.
        deviation: Standard deviation of the logarithm of each after the fit.
        residuals: log(predicted / measured) of each run.
    """

    values: Mapping[str, float]
    deviation: Mapping[str, float]
    residuals: _Floats


def fit(
    runs: Sequence[Run],
    *,
    base: Constants | None = None,
    spreads: Mapping[str, float] | None = None,
    noise: float = _NOISE,
    iterations: int = 12,
    weights: _Floats | None = None,
) -> Fit:
    """Return the constants that fit ``runs`` best.

    Args:
        runs: Runs with a measured time.
        base: Values at which the priors are centred; the catalogued priors by default.
        spreads: Constants to fit with their prior spread; all by default.
        noise: Relative noise of one run.
        iterations: Steps at most.
        weights: Weight of each run; by source if not given.
    """
    centre = base or priors()
    spread = dict(spreads or {name: constant.spread for name, constant in BY_NAME.items()})
    names = list(spread)
    scale = np.array([spread[name] for name in names])
    measured = np.log(np.array([run.iteration_s for run in runs], float))
    share = source_weights(runs) if weights is None else weights
    point, last = np.zeros(len(names)), np.inf
    damping = 1e-3
    predicted, jacobian = _lanes(runs, centre, names, point * scale)
    for _ in range(iterations):
        residual = predicted - measured
        loss = _loss(residual, share, noise, point)
        robust = share * (_FREEDOM + 1) / (_FREEDOM + (residual / noise) ** 2)
        rows = jacobian * scale / noise
        normal = rows.T @ (rows * robust[:, None]) + np.eye(len(names)) * (1 + damping)
        gradient = rows.T @ (robust * residual / noise) + point
        step = np.clip(-np.linalg.solve(normal, gradient), -1.5, 1.5)
        trial, trial_jacobian = _lanes(runs, centre, names, (point + step) * scale)
        if _loss(trial - measured, share, noise, point + step) > loss:
            damping = damping * 10 + 0.1
            if damping > 1e4:
                break
            continue
        point, predicted, jacobian, damping = point + step, trial, trial_jacobian, damping / 5
        if last - loss < 1e-3 * max(1.0, loss) and np.isfinite(last):
            break
        last = loss
    rows = jacobian * scale / noise
    covariance = np.linalg.inv(rows.T @ (rows * share[:, None]) + np.eye(len(names)))
    touched = np.abs(jacobian).max(axis=0) > 1e-9
    sigma = np.sqrt(np.diag(covariance)) * scale
    return Fit(
        values={
            name: float(centre.values[name] * np.exp(point[i] * scale[i]))
            for i, name in enumerate(names)
            if touched[i]
        },
        deviation={name: float(sigma[i]) for i, name in enumerate(names) if touched[i]},
        residuals=predicted - measured,
    )


def source_weights(runs: Sequence[Run]) -> _Floats:
    """Return (runs of the same source)^(-1/4), scaled to a mean of one."""
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.source] = counts.get(run.source, 0) + 1
    weights = np.array([counts[run.source] ** -0.25 for run in runs])
    scaled: _Floats = weights / weights.mean()
    return scaled


def _loss(residual: _Floats, weights: _Floats, noise: float, point: _Floats) -> float:
    student = (_FREEDOM + 1) * np.log1p((residual / noise) ** 2 / _FREEDOM)
    return float((weights * student).sum() + (point**2).sum())


def _lanes(
    runs: Sequence[Run], centre: Constants, names: Sequence[str], shift: _Floats
) -> tuple[_Floats, _Floats]:
    """Return log predictions and their derivatives by the logarithm of each constant."""
    lanes = len(names) + 1
    values: dict[str, object] = dict(centre.values)
    for index, name in enumerate(names):
        lane = np.full(lanes, centre.values[name] * np.exp(shift[index]))
        lane[index + 1] *= np.exp(_STEP)
        values[name] = lane
    pricers = Pricers(Constants(values))  # type: ignore[arg-type]
    table = np.empty((len(runs), lanes))
    for row, run in enumerate(runs):
        table[row] = closed_form(pricers.time_cost(run), run.placement)
    logs = np.log(table)
    return logs[:, 0], (logs[:, 1:] - logs[:, :1]) / _STEP
