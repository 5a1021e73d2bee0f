"""The fit of the model's constants to measured runs: Gauss-Newton on logarithms, with priors and a robust loss.

Minimised is the sum over runs of w rho((log predicted - log measured) / noise) plus the sum over constants of
((log value - log prior) / spread)^2. rho is Student's (nu = 4), so a run 30 % off pulls hardly more than one 10 % off;
w = (runs of its source)^(-1/4), so that no source decides alone. All trial vectors of a step are priced at once (lanes).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.constants import BY_NAME, Constants, priors
from planner.accuracy.iteration import closed_form
from planner.accuracy.predict import Pricers
from planner.accuracy.runs import Run

_Floats = NDArray[np.float64]
_STEP = 1e-3  # of a logarithm, for the derivative by one lane per constant
_NOISE = 0.04  # relative noise of a run: repeated configurations differ by 2-4 % (median)
_EXTRA_NOISE = (
    0.12  # of the extra tier: shared machines, mixtures of experts, kernels beyond the model
)
_FREEDOM = 4.0
_TOLERANCE = 0.02  # of a prior spread: smaller moves end the search
_REACH = 1.5  # prior spreads that a linear problem is trusted for
_REWEIGHTINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Predictions of runs around one vector of constants, linear in logarithms.

    Attributes:
        names, logs: The constants and their logarithms at the centre.
        predicted: Log predictions there, by run.
        slopes: Derivatives by the logarithm of each constant, (runs, constants).
    """

    names: tuple[str, ...]
    logs: _Floats
    predicted: _Floats
    slopes: _Floats

    def of(self, rows: Sequence[int]) -> "Linear":
        """Return the same for some of the runs."""
        index = np.array(rows)
        return replace(self, predicted=self.predicted[index], slopes=self.slopes[index])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fit.

    Attributes:
        values: Constants that the runs moved, by name.
        deviation: Standard deviation of the logarithm of each after the fit.
        linear: The runs' predictions around the last constants at which they were priced.
        residuals: log(predicted / measured) of each run, by ``linear``.
    """

    values: Mapping[str, float]
    deviation: Mapping[str, float]
    linear: Linear
    residuals: _Floats


def fit(
    runs: Sequence[Run],
    *,
    base: Constants | None = None,
    spreads: Mapping[str, float] | None = None,
    noise: float = _NOISE,
    evaluations: int = 6,
    weights: _Floats | None = None,
    linear: Linear | None = None,
) -> Fit:
    """Return the constants that fit ``runs`` best.

    Runs are priced, made linear, the linear problem is solved to its end, and again.

    Args:
        runs: Runs with a measured time.
        base: Values at which the priors are centred; the catalogued priors by default.
        spreads: Constants to fit with their prior spread; all by default.
        noise: Relative noise of one run.
        evaluations: How often the runs are priced at most.
        weights: Weight of each run; by source and tier if not given.
        linear: The same runs around constants that are near already (a fit that includes them).
    """
    problem = _Problem(
        runs=runs,
        centre=base or priors(),
        spreads=spreads or {name: constant.spread for name, constant in BY_NAME.items()},
        noise=noise,
        weights=run_weights(runs) if weights is None else weights,
    )
    around = linear or problem.linear_at(np.zeros(len(problem.names)))
    point = problem.solve(around)
    for _ in range(evaluations - (linear is None)):
        around, before = problem.linear_at(point), point
        point = problem.solve(around)
        if np.abs(point - before).max() < _TOLERANCE:
            break
    return problem.fit_at(around, point)


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
        self.names = tuple(spreads)
        self.scale = np.array([spreads[name] for name in self.names])
        self.origin = np.log(np.array([centre[name] for name in self.names]))
        self.measured = np.log(np.array([run.iteration_s for run in runs], float))

    def linear_at(self, point: _Floats) -> Linear:
        """Price the runs at a point and beside it."""
        logs = self.origin + point * self.scale
        predicted, slopes = _lanes(self.runs, self.centre, self.names, logs)
        return Linear(names=self.names, logs=logs, predicted=predicted, slopes=slopes)

    def solve(self, linear: Linear) -> _Floats:
        """Return the optimum of the linear problem, at most ``_REACH`` spreads from where it was made.

        Iteratively reweighted least squares: a Student residual z weighs (nu + 1) / (nu + z^2).
        """
        start: _Floats = (linear.logs - self.origin) / self.scale
        rows, unit = linear.slopes * self.scale / self.noise, np.eye(len(self.names))
        point = start
        for _ in range(_REWEIGHTINGS):
            residual = self._residual(linear, point) / self.noise
            robust = self.weights * (_FREEDOM + 1) / (_FREEDOM + residual**2)
            normal = rows.T @ (rows * robust[:, None]) + unit
            gradient = rows.T @ (robust * residual) + point
            step = -np.linalg.solve(normal, gradient)
            moved: _Floats = np.clip(point + step, start - _REACH, start + _REACH)
            point = moved
            if np.abs(step).max() < _TOLERANCE / 10:
                break
        return point

    def _residual(self, linear: Linear, point: _Floats) -> _Floats:
        shift = self.origin + point * self.scale - linear.logs
        residual: _Floats = linear.predicted + linear.slopes @ shift - self.measured
        return residual

    def fit_at(self, linear: Linear, point: _Floats) -> Fit:
        """Return the fit: constants that at least one run depends on, with their deviations."""
        rows = linear.slopes * self.scale / self.noise
        precision = rows.T @ (rows * self.weights[:, None]) + np.eye(len(self.names))
        deviation = np.sqrt(np.diag(np.linalg.inv(precision))) * self.scale
        values = np.exp(self.origin + point * self.scale)
        touched = np.flatnonzero(np.abs(rows).max(axis=0) > 1e-9)
        return Fit(
            values={self.names[i]: float(values[i]) for i in touched},
            deviation={self.names[i]: float(deviation[i]) for i in touched},
            linear=linear,
            residuals=self._residual(linear, point),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredFit:
    """A fit to the core tier, and to the extra tier of what the core tier says nothing about.

    Attributes:
        core: Fit to the runs of ``leading``.
        extra: Fit of the other constants to the other runs; None if there are none.
    """

    core: Fit
    extra: Fit | None

    @property
    def values(self) -> dict[str, float]:
        """The constants that a run moved."""
        return {**self.core.values, **(self.extra.values if self.extra else {})}

    @property
    def deviation(self) -> dict[str, float]:
        """Standard deviation of the logarithm of each."""
        return {**self.core.deviation, **(self.extra.deviation if self.extra else {})}


def leading(run: Run) -> bool:
    """Whether a run may move the constants that all runs share: core runs, and launch-bound ones of their stacks."""
    return run.tier == "core" or run.row.get("class") == "launch_bound"


def tiered_fit(
    runs: Sequence[Run], *, near: Linear | None = None, evaluations: int = 6, later: int = 4
) -> TieredFit:
    """Return the fit in two tiers: noisier runs of other kinds never move what clean ones determine.

    Args:
        runs: Runs with a measured time.
        near: The leading ones of ``runs`` around constants that are near already.
        evaluations: How often the leading runs are priced at most, ``later`` the others.
        later: See ``evaluations``.
    """
    first = [run for run in runs if leading(run)]
    core = fit(first, linear=near, evaluations=evaluations, weights=run_weights(first))
    second = [run for run in runs if not leading(run)]
    rest = {name: c.spread for name, c in BY_NAME.items() if name not in core.values}
    if not second:
        return TieredFit(core=core, extra=None)
    base = priors().replaced(core.values)
    extra = fit(second, base=base, spreads=rest, noise=_EXTRA_NOISE, evaluations=later)
    return TieredFit(core=core, extra=extra)


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
    runs: Sequence[Run], centre: Constants, names: Sequence[str], logs: _Floats
) -> tuple[_Floats, _Floats]:
    """Return log predictions at constants of given logarithms, and the derivatives by each of them."""
    lanes = len(names) + 1
    values: dict[str, object] = dict(centre.values)
    for index, name in enumerate(names):
        lane = np.full(lanes, np.exp(logs[index]))
        lane[index + 1] *= np.exp(_STEP)
        values[name] = lane
    pricers = Pricers(Constants(values))  # type: ignore[arg-type]
    table = np.empty((len(runs), lanes))
    for row, run in enumerate(runs):
        table[row] = closed_form(pricers.time_cost(run), run.placement)
    found = np.log(table)
    return found[:, 0], (found[:, 1:] - found[:, :1]) / _STEP
