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
_TOLERANCE = 1e-3  # of the loss: smaller gains end the search
_GIVE_UP = 1e4  # damping at which no step helps any more


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
    start: Mapping[str, float] | None = None,
) -> Fit:
    """Return the constants that fit ``runs`` best.

    Args:
        runs: Runs with a measured time.
        base: Values at which the priors are centred; the catalogued priors by default.
        spreads: Constants to fit with their prior spread; all by default.
        noise: Relative noise of one run.
        iterations: Steps at most.
        weights: Weight of each run; by source and tier if not given.
        start: Values to search from (a neighbouring fit); the optimum does not depend on them.
    """
    problem = _Problem(
        runs=runs,
        centre=base or priors(),
        spreads=spreads or {name: constant.spread for name, constant in BY_NAME.items()},
        noise=noise,
        weights=run_weights(runs) if weights is None else weights,
    )
    best = problem.solve(problem.point_of(start or {}), iterations)
    return problem.fit_at(best)


@dataclass(frozen=True, slots=True)
class _State:
    """A trial: point in units of prior spreads, log predictions, their derivatives, loss."""

    point: _Floats
    predicted: _Floats
    jacobian: _Floats
    loss: float


class _Problem:
    """The least-squares problem in the logarithms of the constants, in units of their prior spreads."""

    def __init__(
        self,
        runs: Sequence[Run],
        centre: Constants,
        spreads: Mapping[str, float],
        noise: float,
        weights: _Floats,
    ) -> None:
        self.runs, self.centre, self.noise, self.weights = runs, centre, noise, weights
        self.names = list(spreads)
        self.scale = np.array([spreads[name] for name in self.names])
        self.measured = np.log(np.array([run.iteration_s for run in runs], float))

    def point_of(self, values: Mapping[str, float]) -> _Floats:
        """Return the point at which constants have ``values``, zero where none is given."""
        ratios = [values.get(name, self.centre[name]) / self.centre[name] for name in self.names]
        point: _Floats = np.log(np.array(ratios)) / self.scale
        return point

    def state(self, point: _Floats) -> _State:
        """Evaluate a point."""
        predicted, jacobian = _lanes(self.runs, self.centre, self.names, point * self.scale)
        student = np.log1p(((predicted - self.measured) / self.noise) ** 2 / _FREEDOM)
        loss = (_FREEDOM + 1) * (self.weights * student).sum() + (point**2).sum()
        return _State(point, predicted, jacobian * self.scale / self.noise, float(loss))

    def solve(self, point: _Floats, iterations: int) -> _State:
        """Return the best state after damped Gauss-Newton steps (Levenberg-Marquardt)."""
        best, damping = self.state(point), 1e-3
        for _ in range(iterations):
            trial = self.state(best.point + self._step(best, damping))
            if trial.loss > best.loss:
                damping = damping * 10 + 0.1
                if damping > _GIVE_UP:
                    break
                continue
            gained, best, damping = best.loss - trial.loss, trial, damping / 5
            if gained < _TOLERANCE * max(1.0, best.loss):
                break
        return best

    def _step(self, state: _State, damping: float) -> _Floats:
        residual = (state.predicted - self.measured) / self.noise
        robust = self.weights * (_FREEDOM + 1) / (_FREEDOM + residual**2)
        rows, unit = state.jacobian, np.eye(len(self.names))
        normal = rows.T @ (rows * robust[:, None]) + unit * (1 + damping)
        gradient = rows.T @ (robust * residual) + state.point
        step: _Floats = np.clip(-np.linalg.solve(normal, gradient), -1.5, 1.5)
        return step

    def fit_at(self, state: _State) -> Fit:
        """Return the fit: constants that at least one run depends on, with their deviations."""
        rows = state.jacobian
        precision = rows.T @ (rows * self.weights[:, None]) + np.eye(len(self.names))
        deviation = np.sqrt(np.diag(np.linalg.inv(precision))) * self.scale
        factors = np.exp(state.point * self.scale)
        touched = np.flatnonzero(np.abs(rows).max(axis=0) > 1e-9)
        return Fit(
            values={self.names[i]: float(self.centre[self.names[i]] * factors[i]) for i in touched},
            deviation={self.names[i]: float(deviation[i]) for i in touched},
            residuals=state.predicted - self.measured,
        )


def run_weights(runs: Sequence[Run]) -> _Floats:
    """Return the weight of each run: that of its source, half for runs of the extra tier."""
    tiers = np.array([1.0 if run.tier == "core" else 0.5 for run in runs])
    weights: _Floats = source_weights(runs) * tiers
    return weights


def source_weights(runs: Sequence[Run]) -> _Floats:
    """Return (runs of the same source)^(-1/4), scaled to a mean of one."""
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.source] = counts.get(run.source, 0) + 1
    weights = np.array([counts[run.source] ** -0.25 for run in runs])
    scaled: _Floats = weights / weights.mean()
    return scaled


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
