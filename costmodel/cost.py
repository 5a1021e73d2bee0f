"""What one strategy costs: the border between pricing and everything that consumes prices.

Pricing (costmodel.pricing) turns model, cluster, training and strategy into a StrategyCost; search, simulator,
report and checks take only that. Every quantity is a sum of named terms affine in a stage's content.
"""

from dataclasses import dataclass
from typing import Self

from costmodel.linear import StageTerm
from costmodel.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """One way the end of an iteration can be bound on a rank, in seconds after its last backward.

    Gradient reduction that is exposed in full, or what an overlap leaves over, is affine in the rank's
    content either way; the rank pays the largest of its alternatives.
    """

    terms: tuple[StageTerm, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMoment:
    """Bytes a rank holds at one moment of the iteration; its peak is the largest over moments.

    Attributes:
        name: "backward", "loss" or "step".
        terms: Named bytes; their sum is the reserved memory that must stay under the limit.
        beyond_allocated: Names of the terms that the framework's allocated counter does not see
            (context, communication buffers outside the allocator, fragmentation).
    """

    name: str
    terms: tuple[StageTerm, ...]
    beyond_allocated: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyCost:
    """Prices of one strategy.

    Attributes:
        strategy: What was priced.
        layer_kinds: Kind index of each layer, in order.
        forward, backward: Seconds of one micro-batch on one chunk, by term. ``recomputed`` of the backward
            terms is the recomputation of a layer.
        weight_gradient: The part of ``backward`` that zero-bubble schedules may postpone.
        transfer_s: Seconds to hand one micro-batch from a pipeline rank to the next, by boundary
            (``pp`` entries: the last is the wrap-around that interleaving uses); empty without pipeline.
        finish: Alternatives for the end of the iteration.
        memory: Bytes by moment.
        fixed_s: Seconds per iteration outside the schedule (data loading, logging).
        by_rank: Where pipeline ranks run on different devices, the prices of each rank; empty where all are alike.
    """

    strategy: Strategy
    layer_kinds: tuple[int, ...]
    forward: tuple[StageTerm, ...]
    backward: tuple[StageTerm, ...]
    weight_gradient: tuple[StageTerm, ...]
    transfer_s: tuple[float, ...]
    finish: tuple[Finish, ...]
    memory: tuple[MemoryMoment, ...]
    fixed_s: float
    by_rank: tuple[Self, ...] = ()

    def at(self, rank: int) -> "StrategyCost":
        """Return the prices that hold on a pipeline rank."""
        return self.by_rank[rank] if self.by_rank else self
