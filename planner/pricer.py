"""What the search asks of pricing."""

from collections.abc import Sequence
from typing import Protocol

from costmodel.cost import Finish, MemoryMoment, StrategyCost
from costmodel.linear import StageTerm
from costmodel.strategy import Strategy

BlockTerms = tuple[Sequence[StageTerm], Sequence[StageTerm], Sequence[StageTerm]]


class PricerLike(Protocol):
    """Prices strategies of one scenario, whole or in parts.

    Each part depends only on the named fields of the strategy, so the search prices every distinct
    combination once. The parts of ``cost(strategy)`` equal the parts priced alone. Of a block, the terms called
    ``floor_terms`` depend on ``floor_fields`` alone and all others are never negative on any stage: together they
    are a lower bound of the block that is shared by many strategies. Weight gradients depend on them whole.
    """

    @property
    def prices_lanes(self) -> bool:
        """Whether a strategy of which parts are asked may stand for many (costmodel.lanes)."""
        return False

    @property
    def floor_fields(self) -> tuple[str, ...]:
        """Fields of the strategy that the floor of a block depends on."""

    @property
    def floor_terms(self) -> frozenset[str]:
        """Names of the terms of a block that make its floor."""

    @property
    def block_fields(self) -> tuple[str, ...]:
        """Fields of the strategy that ``block`` depends on."""

    @property
    def transfer_fields(self) -> tuple[str, ...]:
        """Fields of the strategy that ``transfer`` depends on."""

    @property
    def finish_fields(self) -> tuple[str, ...]:
        """Fields of the strategy that ``finish`` depends on."""

    @property
    def memory_fields(self) -> tuple[str, ...]:
        """Fields of the strategy that ``memory`` depends on."""

    @property
    def layer_kinds(self) -> tuple[int, ...]:
        """Kind index of each layer, in order."""

    def cost(self, strategy: Strategy) -> StrategyCost:
        """Return all prices of ``strategy``."""

    def block(self, strategy: Strategy) -> BlockTerms:
        """Return forward, backward and weight gradient of one micro-batch on a chunk."""

    def transfer(self, strategy: Strategy) -> tuple[float, ...]:
        """Return seconds of each pipeline boundary; empty without pipeline."""

    def least_transfer(self, strategy: Strategy) -> float:
        """Return the least of ``transfer`` but the boundary that wraps around; 0 without pipeline."""
        return min(self.transfer(strategy)[:-1], default=0.0)

    def fixed_s(self, strategy: Strategy) -> float:
        """Return the seconds per iteration outside the schedule."""
        del strategy
        return 0.0

    def finish(self, strategy: Strategy) -> Sequence[Finish]:
        """Return the alternatives for the end of the iteration."""

    def memory(self, strategy: Strategy) -> Sequence[MemoryMoment]:
        """Return bytes by moment."""
