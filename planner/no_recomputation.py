"""Prices for a search that must not recompute layers fully."""

from collections.abc import Sequence
from dataclasses import replace

from costmodel.cost import Finish, MemoryMoment, StrategyCost
from costmodel.linear import StageTerm
from costmodel.strategy import Strategy
from planner.pricer import BlockTerms, PricerLike
from planner.scenario import Scenario


def search_prices(scenario: Scenario, pricer: PricerLike) -> PricerLike:
    """Return the prices the search of ``scenario`` uses: its bound may exclude full recomputation."""
    allows_full = scenario.bound("recompute").admits("full")
    return pricer if allows_full else WithoutRecomputation(pricer)


class WithoutRecomputation:
    """Prices of another pricer in which a recomputed layer saves no byte, so that no placement gains by one.

    What does not fit without recomputation then does not fit at all, and the search keeps every count at zero.
    """

    def __init__(self, pricer: PricerLike) -> None:
        self._pricer, self.prices_lanes = pricer, pricer.prices_lanes
        self.floor_fields, self.floor_terms = pricer.floor_fields, pricer.floor_terms
        self.block_fields, self.transfer_fields = pricer.block_fields, pricer.transfer_fields
        self.finish_fields, self.memory_fields = pricer.finish_fields, pricer.memory_fields

    @property
    def layer_kinds(self) -> tuple[int, ...]:
        """Kind index of each layer, in order."""
        return self._pricer.layer_kinds

    def cost(self, strategy: Strategy) -> StrategyCost:
        """Return all prices of ``strategy``."""
        cost = self._pricer.cost(strategy)
        return replace(cost, memory=tuple(map(_without, cost.memory)))

    def block(self, strategy: Strategy) -> BlockTerms:
        """Return forward, backward and weight gradient of one micro-batch on a chunk."""
        return self._pricer.block(strategy)

    def transfer(self, strategy: Strategy) -> tuple[float, ...]:
        """Return seconds of each pipeline boundary."""
        return self._pricer.transfer(strategy)

    def least_transfer(self, strategy: Strategy) -> float:
        """Return the least of ``transfer`` but the boundary that wraps around."""
        return self._pricer.least_transfer(strategy)

    def fixed_s(self, strategy: Strategy) -> float:
        """Return the seconds per iteration outside the schedule."""
        return self._pricer.fixed_s(strategy)

    def finish(self, strategy: Strategy) -> Sequence[Finish]:
        """Return the alternatives for the end of the iteration."""
        return self._pricer.finish(strategy)

    def memory(self, strategy: Strategy) -> tuple[MemoryMoment, ...]:
        """Return bytes by moment."""
        return tuple(map(_without, self._pricer.memory(strategy)))


def _without(moment: MemoryMoment) -> MemoryMoment:
    return replace(moment, terms=tuple(map(_kept, moment.terms)))


def _kept(term: StageTerm) -> StageTerm:
    zero = (0.0,) * len(term.layer)
    return replace(term, recomputed=zero, flight_recomputed=zero, recompute_once=0.0)
