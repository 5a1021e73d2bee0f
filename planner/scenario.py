"""A scenario: one question, made of model, cluster, training, limits and search bounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from costmodel.errors import InputError
from costmodel.graph import ModelGraph
from costmodel.spec import ClusterSpec, TrainingSpec

DECISIONS: tuple[str, ...] = (
    "dp", "tp", "pp", "cp", "ep", "etp", "vpp", "micro_batch", "microbatches", "schedule", "zero",
    "zero_group", "sequence_parallel", "recompute", "offload_optimizer", "offload_activations",
    "placement_order",
)  # fmt: skip
"""What the search decides, in the order of the strategy's fields."""

ORDERED: tuple[str, ...] = ("tp", "cp", "ep", "dp", "pp")
"""The degrees that a placement order names."""


def check_order(value: object, key: str) -> str:
    """Return ``value`` if it is a placement order.

    Raises:
        InputError: If it does not order each of the degrees once.
    """
    if not isinstance(value, str) or sorted(value.split("-")) != sorted(ORDERED):
        raise InputError(
            "must order tp, cp, ep, dp and pp from the nearest ranks outwards",
            key=key,
            value=value,
            nearest=("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"),
        )
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Which values one decision may take.

    Attributes:
        allowed: Exactly these, None for all that is legal.
        excluded: Never these.
        minimum, maximum: Inclusive limits of a number.
    """

    allowed: tuple[object, ...] | None = None
    excluded: tuple[object, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    def admits(self, value: object) -> bool:
        """Return whether the decision may take ``value``."""
        if self.allowed is not None and value not in self.allowed:
            return False
        if value in self.excluded:
            return False
        if isinstance(value, int | float):
            below = self.minimum is not None and value < self.minimum
            above = self.maximum is not None and value > self.maximum
            return not (below or above)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One question to the planner.

    Attributes:
        name: Shown in reports.
        graph: The model.
        cluster: The GPUs at hand; its size is the budget.
        training: Batch, sequence, framework, precision.
        memory_limit_bytes: Reserved bytes that no GPU may exceed.
        bounds: By decision; absent ones are free.
        max_global_batch: Largest global batch that may be asked for; above it steps stop helping convergence.
        gpu_counts: Numbers of GPUs a plan may use; the budget alone unless asked otherwise.
        system: Preset of a published system that restricts the space, or None.
        system_options: Its own knobs by name (SageMaker's ``optimize``, ``placement_strategy``, ..).
        prices: Measured tables, read first to last.
        calibration: File of calibrated constants, or None.
        uneven_stages: Whether stages may hold unequal numbers of layers.
    """

    name: str
    graph: ModelGraph
    cluster: ClusterSpec
    training: TrainingSpec
    memory_limit_bytes: float
    max_global_batch: int | None = None
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    gpu_counts: tuple[int, ...] = ()
    system: str | None = None
    system_options: Mapping[str, object] = field(default_factory=dict)
    prices: tuple[Path, ...] = ()
    calibration: Path | None = None
    uneven_stages: bool = True

    def bound(self, decision: str) -> Bound:
        """Return the bound of ``decision``; free where nothing was said."""
        return self.bounds.get(decision, Bound())

    def fixed(self, **values: object) -> "Scenario":
        """Return the scenario with the given decisions fixed."""
        pinned = {key: Bound(allowed=(value,)) for key, value in values.items()}
        return replace(self, bounds={**self.bounds, **pinned})
