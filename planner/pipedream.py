"""PipeDream's own partition: consecutive stages, each replicated as often as its work asks for.

Narayanan et al., PipeDream (SOSP 2019), section 3.1: with A(j, m) the time of the slowest stage when the first j layers
run on m workers,

    T(i..j, m) = max(sum of seconds, 2 (m - 1) sum of gradient bytes / rate) / m
    A(j, m)    = min over i < j and m' < m of max(A(i, m - m'), 2 output_i / rate, T(i..j, m'))

A strategy of this planner replicates all stages alike, so this partition is a baseline beside it: what stages of
different width would bring in the steady state, in which the slowest stage sets the pace.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLoad:
    """What one layer asks for per mini-batch.

    Attributes:
        seconds: Forward and backward.
        gradient_bytes: Reduced over the replicas of its stage.
        output_bytes: Handed to the next stage, and as much back.
    """

    seconds: float
    gradient_bytes: float
    output_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedStage:
    """Layers ``start`` to before ``stop`` on ``replicas`` workers that take turns."""

    start: int
    stop: int
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedPipeline:
    """A partition with the seconds between two finished mini-batches in its steady state."""

    stages: tuple[ReplicatedStage, ...]
    period_s: float

    @property
    def in_flight(self) -> int:
        """Mini-batches that keep the pipeline full: workers over replicas of the first stage, rounded up (NOAM)."""
        workers = sum(stage.replicas for stage in self.stages)
        return -(-workers // self.stages[0].replicas)


def replicated_pipeline(
    layers: Sequence[LayerLoad], workers: int, bytes_per_s: float
) -> ReplicatedPipeline:
    """Return the partition with the shortest period; of equal ones that with the fewest stages."""
    table = _Table(layers, bytes_per_s)
    best: dict[tuple[int, int], ReplicatedPipeline] = {}
    for stop in range(1, len(layers) + 1):
        for count in range(1, workers + 1):
            options = [table.alone(stop, count)]
            options += [
                table.extended(best[start, count - own], stop, own)
                for start in range(1, stop)
                for own in range(1, count)
            ]
            best[stop, count] = min(options, key=lambda item: (item.period_s, len(item.stages)))
    return best[len(layers), workers]


class _Table:
    """Times of stages from sums over their layers."""

    def __init__(self, layers: Sequence[LayerLoad], bytes_per_s: float) -> None:
        self.layers, self.rate = layers, bytes_per_s
        self.seconds = [0.0, *accumulate(layer.seconds for layer in layers)]
        self.gradients = [0.0, *accumulate(layer.gradient_bytes for layer in layers)]

    def stage_s(self, start: int, stop: int, replicas: int) -> float:
        """Return T(start..stop, replicas)."""
        reduced = 2 * (replicas - 1) * (self.gradients[stop] - self.gradients[start]) / self.rate
        return max(self.seconds[stop] - self.seconds[start], reduced) / replicas

    def alone(self, stop: int, replicas: int) -> ReplicatedPipeline:
        """Return the first layers as one stage."""
        stage = ReplicatedStage(start=0, stop=stop, replicas=replicas)
        return ReplicatedPipeline(stages=(stage,), period_s=self.stage_s(0, stop, replicas))

    def extended(self, before: ReplicatedPipeline, stop: int, replicas: int) -> ReplicatedPipeline:
        """Return a pipeline with one more stage behind it."""
        start = before.stages[-1].stop
        hop = 2 * self.layers[start - 1].output_bytes / self.rate
        stage = ReplicatedStage(start=start, stop=stop, replicas=replicas)
        period = max(before.period_s, hop, self.stage_s(start, stop, replicas))
        return ReplicatedPipeline(stages=(*before.stages, stage), period_s=period)
