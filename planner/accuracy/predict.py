"""Predictions of measured runs by the same path that plans take: Pricer, placement, simulator, memory verdict."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from costmodel.constants import Constants
from costmodel.cost import StrategyCost
from costmodel.errors import ShardplanError
from costmodel.memory import StageMemory, stage_memory
from costmodel.pricing import Pricer
from costmodel.simulator import iteration_ns
from costmodel.units import NS_PER_S
from planner.accuracy.runs import Run
from planner.accuracy.stack import text_of
from planner.assemble import chunk_contents
from planner.bands import band
from planner.coefficients import coefficients
from planner.simulation import arrangement_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the model says of one run.

    Attributes:
        run: The run.
        iteration_s: Predicted seconds, with the 80 % band from ``low_s`` to ``high_s``.
        allocated_bytes, reserved_bytes: Predicted counters of the kind the run reports; None where the
            framework's memory is not modelled.
        fits: Whether every rank stays within the device's usable memory; None likewise.
        draw: Which draw of calibration runs it belongs to; ranking compares only within a draw.
    """

    run: Run
    iteration_s: float
    low_s: float
    high_s: float
    allocated_bytes: float | None = None
    reserved_bytes: float | None = None
    fits: bool | None = None
    draw: int = 0


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
        return self.of(run).time_cost(run.strategy)

    def predict(self, run: Run, *, calibrated: bool = False) -> Prediction:
        """Return the prediction of ``run`` by the simulator."""
        cost = self.time_cost(run)
        given = coefficients(cost, float(run.cluster.device.usable_bytes))
        seconds = iteration_ns(given.work(arrangement_of(run.placement))) / NS_PER_S
        low, high = band(run.graph, run.training, run.cluster, calibrated=calibrated)
        prediction = Prediction(
            run=run, iteration_s=seconds, low_s=seconds * low, high_s=seconds * high
        )
        return self._with_memory(prediction, cost)

    def _with_memory(self, prediction: Prediction, cost: StrategyCost) -> Prediction:
        run = prediction.run
        try:
            moments = self.of(run).memory(run.strategy)
        except ShardplanError:  # a framework whose memory nobody has described
            return prediction
        ranks = [stage_memory(moments, chunks) for chunks in chunk_contents(cost, run.placement)]
        shown = ranks[-1:] if "last global rank" in text_of(run.row) else ranks
        return replace(
            prediction,
            allocated_bytes=max(rank.allocated_bytes for rank in shown),
            reserved_bytes=max(_reserved(rank, reserved_kind(run)) for rank in shown),
            fits=max(rank.reserved_bytes for rank in ranks) <= run.cluster.device.usable_bytes,
        )


ReservedKind = Literal["framework", "device"]


def reserved_kind(run: Run) -> ReservedKind:
    """Return what the run's ``reserved_gib`` counts: torch's reserved pool, or all of the device in use."""
    text = text_of(run.row)
    words = ("nvidia-smi", "device total", "bigscience-workshop", "nvidia_mem")
    return "device" if any(word in text for word in words) else "framework"


def _reserved(rank: StageMemory, kind: ReservedKind) -> float:
    return rank.reserved_bytes if kind == "device" else rank.framework_reserved_bytes


def predict_runs(
    runs: Sequence[Run],
    *,
    constants: Constants | None = None,
    calibration: Mapping[str, float] | None = None,
    draw: int = 0,
) -> list[Prediction]:
    """Return predictions of all runs with the shipped (or given) constants, marked with their draw."""
    pricers = Pricers(constants, calibration)
    found = (pricers.predict(run, calibrated=bool(calibration)) for run in runs)
    return [replace(item, draw=draw) for item in found]


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
