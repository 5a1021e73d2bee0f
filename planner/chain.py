"""Placements of a chain of modules on pipeline ranks: evaluated whatever their form, and planned by the search.

A placement that visits each rank once, in order, is an ordinary pipeline and is simulated as one. Others visit a rank
several times; their visits are executed greedily, backwards first, each visit with at most as many micro-batches in
flight as visits are left from it on (the rule of 1F1B).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import ClassVar

from costmodel.cost import Finish, MemoryMoment, StrategyCost
from costmodel.linear import StageTerm, term
from costmodel.schedules import Shape
from costmodel.simulator import iteration_ns
from costmodel.strategy import Strategy
from costmodel.timeline import PipelineWork
from costmodel.units import NS_PER_S
from planner.columns import columns_of
from planner.engine import search
from planner.module_tree import Module
from planner.pricer import BlockTerms, PricerLike


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What is placed.

    Attributes:
        leaves: Modules in order of execution.
        microbatches: Micro-batches of an iteration.
        memory_limit_bytes: What a rank may hold.
        hop_s: Seconds to hand so many bytes to another rank.
    """

    leaves: tuple[Module, ...]
    microbatches: int
    memory_limit_bytes: float
    hop_s: Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Consecutive leaves on one rank."""

    rank: int
    leaves: tuple[Module, ...]

    @property
    def forward_ns(self) -> int:
        """Nanoseconds of one micro-batch's forward."""
        return round(NS_PER_S * sum(leaf.forward_s for leaf in self.leaves))

    @property
    def backward_ns(self) -> int:
        """Nanoseconds of one micro-batch's backward."""
        return round(NS_PER_S * sum(leaf.backward_s for leaf in self.leaves))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPlan:
    """A placement with its prediction.

    Attributes:
        visits: Runs of leaves on one rank, in order of execution.
        iteration_s: Simulated seconds.
        memory_bytes: Of each rank.
        transferred_bytes: Handed over in the forwards of one micro-batch.
    """

    visits: tuple[Visit, ...]
    iteration_s: float
    memory_bytes: tuple[float, ...]
    transferred_bytes: float

    def fits(self, chain: Chain) -> bool:
        """Return whether every rank stays within the limit."""
        return max(self.memory_bytes) <= chain.memory_limit_bytes


def evaluate(chain: Chain, ranks: Mapping[str, int]) -> ChainPlan:
    """Return the prediction of a placement that gives the rank of each leaf by its name."""
    visits = tuple(
        Visit(rank=rank, leaves=tuple(run))
        for rank, run in groupby(chain.leaves, key=lambda leaf: ranks[leaf.name])
    )
    crossing = [visit.leaves[-1].output_bytes for visit in visits[:-1]]
    hops = [round(NS_PER_S * chain.hop_s(size)) for size in crossing]
    straight = len({visit.rank for visit in visits}) == len(visits)
    run = _pipeline_ns if straight else _greedy_ns
    return ChainPlan(
        visits=visits,
        iteration_s=run(visits, hops, chain.microbatches) / NS_PER_S,
        memory_bytes=_memory(chain, visits, max(ranks.values()) + 1),
        transferred_bytes=sum(crossing),
    )


def _memory(chain: Chain, visits: Sequence[Visit], ranks: int) -> tuple[float, ...]:
    states: list[dict[str, float]] = [{} for _ in range(ranks)]
    kept = [0.0] * ranks
    for index, visit in enumerate(visits):
        flight = min(chain.microbatches, len(visits) - index)
        for leaf in visit.leaves:
            states[visit.rank].update(leaf.weights)
            kept[visit.rank] += flight * leaf.activation_bytes
    return tuple(sum(state.values()) + more for state, more in zip(states, kept, strict=True))


def _pipeline_ns(visits: Sequence[Visit], hops: Sequence[int], microbatches: int) -> int:
    ranks = len(visits)
    nothing = (0,) * ranks
    return iteration_ns(
        PipelineWork(
            shape=Shape("1f1b", ranks, 1, microbatches),
            forward_ns=tuple(visit.forward_ns for visit in visits),
            backward_ns=tuple(visit.backward_ns for visit in visits),
            weight_ns=nothing,
            transfer_ns=(*hops, 0),
            finish_ns=nothing,
        )
    )


def _greedy_ns(visits: Sequence[Visit], hops: Sequence[int], microbatches: int) -> int:
    run = _GreedyRun(visits, hops, microbatches)
    while run.left:
        run.step()
    return max(run.free.values())


class _GreedyRun:
    """Executes the task that can start first, backwards before forwards, until all are done."""

    def __init__(self, visits: Sequence[Visit], hops: Sequence[int], microbatches: int) -> None:
        self.visits, self.hops, self.microbatches = visits, hops, microbatches
        self.forwards: list[list[int]] = [[] for _ in visits]
        self.backwards: list[list[int]] = [[] for _ in visits]
        self.free = {visit.rank: 0 for visit in visits}
        self.left = 2 * microbatches * len(visits)

    def step(self) -> None:
        """Run one task."""
        options = [
            (max(ready, self.free[visit.rank]), order, index)
            for index, visit in enumerate(self.visits)
            for order, ready in enumerate((self._backward(index), self._forward(index)))
            if ready is not None
        ]
        start, order, index = min(options)
        visit = self.visits[index]
        ends = self.forwards if order else self.backwards
        end = start + (visit.forward_ns if order else visit.backward_ns)
        ends[index].append(end)
        self.free[visit.rank] = end
        self.left -= 1

    def _forward(self, index: int) -> int | None:
        """Return when the next forward of a visit has its input; None where there is none or too many wait."""
        done, finished = len(self.forwards[index]), len(self.backwards[index])
        if done == self.microbatches or done - finished >= len(self.visits) - index:
            return None
        if index == 0:
            return 0
        before = self.forwards[index - 1]
        return before[done] + self.hops[index - 1] if len(before) > done else None

    def _backward(self, index: int) -> int | None:
        """Return when the next backward of a visit has its gradient."""
        done = len(self.backwards[index])
        if len(self.forwards[index]) <= done:
            return None
        if index == len(self.visits) - 1:
            return self.forwards[index][done]
        after = self.backwards[index + 1]
        return after[done] + self.hops[index] if len(after) > done else None


def place(chain: Chain, ranks: int) -> dict[str, int] | None:
    """Return the placement of the certified search; None where none fits.

    The search counts every boundary as the largest; sizes differ little in the models it is used for.
    """
    strategy = Strategy(pp=ranks, microbatches=chain.microbatches, schedule="1f1b")
    found = search(
        columns_of((strategy,)),
        _ChainPricer(chain, ranks),
        memory_limit_bytes=chain.memory_limit_bytes,
        tolerance=0.0,
    )
    if not found.ranked or any(found.ranked[0].arrangement.recomputed):
        return None
    cuts = found.ranked[0].arrangement.cuts
    return {
        leaf.name: rank
        for rank, (start, stop) in enumerate(pairwise(cuts))
        for leaf in chain.leaves[start:stop]
    }


class _ChainPricer(PricerLike):
    """Prices a chain for the search: every leaf is a layer of its own kind."""

    floor_fields: ClassVar[tuple[str, ...]] = ("pp",)
    floor_terms: ClassVar[frozenset[str]] = frozenset(("compute",))
    block_fields: ClassVar[tuple[str, ...]] = ("pp",)
    transfer_fields: ClassVar[tuple[str, ...]] = ("pp",)
    finish_fields: ClassVar[tuple[str, ...]] = ("pp",)
    memory_fields: ClassVar[tuple[str, ...]] = ("pp",)

    def __init__(self, chain: Chain, ranks: int) -> None:
        self._leaves, self._ranks = chain.leaves, ranks
        self._hop_s = max(chain.hop_s(leaf.output_bytes) for leaf in chain.leaves)

    @property
    def layer_kinds(self) -> tuple[int, ...]:
        """One kind for each leaf."""
        return tuple(range(len(self._leaves)))

    def _term(self, name: str, values: Sequence[float], key: str = "layer") -> StageTerm:
        return term(name, len(self._leaves), **{key: tuple(values)})

    def block(self, strategy: Strategy) -> BlockTerms:
        """Forward and backward of the leaves."""
        del strategy
        forward = self._term("compute", [leaf.forward_s for leaf in self._leaves])
        backward = self._term("compute", [leaf.backward_s for leaf in self._leaves])
        return (forward,), (backward,), (self._term("weight", [0.0] * len(self._leaves)),)

    def transfer(self, strategy: Strategy) -> tuple[float, ...]:
        """The largest boundary."""
        return (self._hop_s,) * strategy.pp if strategy.pp > 1 else ()

    def finish(self, strategy: Strategy) -> tuple[Finish, ...]:
        """Nothing follows the last backward."""
        del strategy
        return (Finish(terms=(self._term("finish", [0.0] * len(self._leaves)),)),)

    def memory(self, strategy: Strategy) -> tuple[MemoryMoment, ...]:
        """State once, activations for each micro-batch in flight; a leaf never recomputes."""
        del strategy
        states = self._term("states", [sum(leaf.weights.values()) for leaf in self._leaves])
        kept = self._term(
            "activations", [leaf.activation_bytes for leaf in self._leaves], "flight_layer"
        )
        return (MemoryMoment(name="backward", terms=(states, kept)),)

    def cost(self, strategy: Strategy) -> StrategyCost:
        """Return everything above together."""
        forward, backward, weight = (tuple(terms) for terms in self.block(strategy))
        return StrategyCost(
            strategy=strategy,
            layer_kinds=self.layer_kinds,
            forward=forward,
            backward=backward,
            weight_gradient=weight,
            transfer_s=self.transfer(strategy),
            finish=self.finish(strategy),
            memory=self.memory(strategy),
            fixed_s=0.0,
        )
