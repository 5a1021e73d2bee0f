"""Predictions of measured runs by the same path that plans take: Pricer, placement, simulator."""

from collections.abc import Hashable, Mapping, Sequence

from costmodel.constants import Constants
from costmodel.cost import StrategyCost
from costmodel.pricing import Pricer
from planner.accuracy.runs import Run


class Pricers:
    """Pricers of runs; runs that share model, cluster and training share one.

    Args:
        constants: The constants of the model; the shipped fit by default.
        calibration: Values that replace constants by name.
    """

    def __init__(
        self,
        constants: Constants | None = None,
        calibration: Mapping[str, float] | None = None,
    ) -> None:
        self._constants, self._calibration = constants, calibration
        self._pricers: dict[Hashable, Pricer] = {}

    def of(self, run: Run) -> Pricer:
        """Return the pricer of ``run``."""
        key = _key(run)
        if key not in self._pricers:
            self._pricers[key] = Pricer(
                run.graph,
                run.cluster,
                run.training,
                constants=self._constants,
                calibration=self._calibration,
            )
        return self._pricers[key]

    def time_cost(self, run: Run) -> StrategyCost:
        """Return the cost of a run without its memory."""
        pricer, strategy = self.of(run), run.strategy
        forward, backward, weight = pricer.block(strategy)
        return StrategyCost(
            strategy=strategy,
            layer_kinds=run.graph.layers,
            forward=forward,
            backward=backward,
            weight_gradient=weight,
            transfer_s=pricer.transfer(strategy),
            finish=pricer.finish(strategy),
            memory=(),
            fixed_s=pricer.fixed_s(strategy),
        )


def _key(run: Run) -> Hashable:
    cluster, training = run.cluster, run.training
    levels = tuple((v.kind, v.gpus, v.bandwidth_bytes_per_s, v.latency_s) for v in cluster.levels)
    return (
        id(run.graph),
        cluster.device.name,
        cluster.gpus_per_node,
        levels,
        training.framework,
        training.sequence,
        training.precision,
        training.attention,
        tuple(sorted(training.options.items())),
    )


def by_source(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each source, sources in alphabetical order."""
    result: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.source):
        result.setdefault(run.source, []).append(run)
    return result
