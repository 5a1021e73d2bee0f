"""The 80 % band of a prediction, by the kind of run it is.

Bands are quantiles of cross-validated residuals of measured runs (planner/bands.json, written by
``python -m planner.accuracy.refit --validate``): runs of known frameworks and devices by folds, runs of a source left out for what is
not known. A kind with too few runs takes the band of the wider kind it belongs to.
"""

import json
from functools import lru_cache
from importlib import resources

from costmodel.frameworks import framework
from costmodel.graph import ModelGraph
from costmodel.spec import ClusterSpec, TrainingSpec
from planner.scenario import Scenario

Band = tuple[float, float]
SMALL_HIDDEN = 2048


def band_of(scenario: Scenario) -> Band:
    """Return the factors that the 80 % interval spans around a predicted iteration time."""
    calibrated = scenario.calibration is not None
    return band(scenario.graph, scenario.training, scenario.cluster, calibrated=calibrated)


def band(
    graph: ModelGraph, training: TrainingSpec, cluster: ClusterSpec, *, calibrated: bool = False
) -> Band:
    """Return (low, high): the measured time is within low and high times the predicted one in 80 % of runs."""
    table = _table()
    known = framework(training.framework).known and cluster.device.name in _devices()
    state = "calibrated" if calibrated else "known" if known else "new"
    names = kinds(graph, training, cluster, state=state)
    return next((table[kind] for kind in names if kind in table), table["any"])


def kinds(
    graph: ModelGraph, training: TrainingSpec, cluster: ClusterSpec, *, state: str
) -> tuple[str, ...]:
    """Return the kinds that a run belongs to, narrowest first.

    Args:
        graph: Experts, and layers so small that launches bind them, count.
        training: Its precision counts.
        cluster: Whether it leaves the node counts.
        state: "known" framework and device, "new", or "calibrated" to runs of the same kind.
    """
    width = "16-bit" if training.precision in ("bf16", "fp16") else "other precision"
    experts = any(operator.experts for layer in graph.kinds for operator in layer.operators)
    small = graph.model.hidden <= SMALL_HIDDEN
    shape = "experts" if experts else "small layers" if small else "large layers"
    nodes = "several nodes" if cluster.gpus > cluster.gpus_per_node else "one node"
    whole = f"{state}, {width}, {shape}"
    return (f"{whole}, {nodes}", whole, f"{state}, {width}", state)


@lru_cache(maxsize=1)
def _read() -> tuple[dict[str, Band], frozenset[str]]:
    text = resources.files("planner").joinpath("bands.json").read_text(encoding="utf-8")
    data = json.loads(text)
    return {kind: (low, high) for kind, (low, high) in data["bands"].items()}, frozenset(
        data["devices"]
    )


def _table() -> dict[str, Band]:
    return _read()[0]


def _devices() -> frozenset[str]:
    return _read()[1]
