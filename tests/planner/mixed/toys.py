"""Small strategies on several device groups, and every placement and assignment of them."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from costmodel.cost import Finish, MemoryMoment, StrategyCost
from costmodel.linear import term
from costmodel.simulator import iteration_ns
from costmodel.strategy import Strategy
from planner.coefficients import Arrangement
from planner.columns import Columns
from planner.mixed.coefficients import Assignment, MixedCoefficients
from planner.mixed.even import placements
from planner.mixed.prices import Group, GroupPrices
from planner.pricer import BlockTerms, PricerLike
from tests.planner.synthetic import all_cuts
from tests.planner.toy_pricer import ToyModel, ToyPricer, toy_space


@dataclass(frozen=True, slots=True)
class ExposedPricer(PricerLike):
    """A toy pricer whose senders wait for their boundary, and whose ends reduce a tied embedding.

    Boundaries inside ``near`` ranks are free; farther ones, and the tied embedding over them, cost ``far_s``.
    """

    model: ToyModel
    far_s: float
    near: int

    floor_fields: ClassVar = ToyPricer.floor_fields
    floor_terms: ClassVar = ToyPricer.floor_terms
    block_fields: ClassVar = (*ToyPricer.block_fields, "pp")
    transfer_fields: ClassVar = ToyPricer.transfer_fields
    finish_fields: ClassVar = ToyPricer.finish_fields
    memory_fields: ClassVar = ToyPricer.memory_fields

    @property
    def _toy(self) -> ToyPricer:
        return ToyPricer(self.model)

    @property
    def layer_kinds(self) -> tuple[int, ...]:
        """Kind of each layer."""
        return self.model.layers

    def _far(self, strategy: Strategy) -> float:
        return self.far_s * (strategy.pp > self.near)

    def block(self, strategy: Strategy) -> BlockTerms:
        """The toy's, with a wait."""
        forward, backward, weight = self._toy.block(strategy)
        wait, kinds = self._far(strategy) / 2, self.model.kinds
        if strategy.pp == 1:
            return forward, backward, weight
        return (
            (*forward, term("pp_comm", kinds, fixed=wait, last=-wait)),
            (*backward, term("pp_comm", kinds, fixed=wait, first=-wait)),
            weight,
        )

    def transfer(self, strategy: Strategy) -> tuple[float, ...]:
        """The toy's, and the far part at every boundary between nodes of ``near`` ranks."""
        hops = self._toy.transfer(strategy)
        return tuple(
            hop + self.far_s / 2 * ((rank + 1) % self.near == 0) for rank, hop in enumerate(hops)
        )

    def finish(self, strategy: Strategy) -> tuple[Finish, ...]:
        """The toy's and the tied embedding."""
        (way,) = self._toy.finish(strategy)
        if strategy.pp == 1:
            return (way,)
        seconds = 3 * self._far(strategy) + 1e-3
        tied = term("tied_embedding", self.model.kinds, first=seconds, last=seconds)
        return (Finish(terms=(*way.terms, tied)),)

    def memory(self, strategy: Strategy) -> tuple[MemoryMoment, ...]:
        """The toy's."""
        return self._toy.memory(strategy)

    def cost(self, strategy: Strategy) -> StrategyCost:
        """Everything."""
        forward, backward, weight = self.block(strategy)
        return replace(
            self._toy.cost(strategy),
            forward=tuple(forward),
            backward=tuple(backward),
            weight_gradient=tuple(weight),
            transfer_s=self.transfer(strategy),
            finish=self.finish(strategy),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedScenario:
    """A small model on several groups with a few strategies."""

    prices: GroupPrices
    columns: Columns
    limit_bytes: float


def random_mixed(rng: random.Random) -> MixedScenario:
    """Return two or three groups of different speed, memory and links, with up to six strategies for all GPUs."""
    layers = rng.randint(2, 5)
    dense = rng.choice((layers, layers, rng.randint(0, layers)))
    model = ToyModel(
        layers=tuple(int(at >= dense) for at in range(layers)),
        hidden=4096,
        sequence=2048,
        vocab=rng.choice((1000, 50000)),
        dense=2e8,
        active=1.5e8,
        experts=rng.choice((3e8, 2e9)),
    )
    sizes = rng.choice(((4, 4), (2, 2), (2, 4), (4, 2), (3, 5), (6, 2), (2, 2, 4), (1, 2, 3)))
    pricers = [_pricer(rng, model) for _ in sizes]
    tight = rng.choice((5e9, 8e9, 12e9, 80e9))
    groups = [
        Group(
            pricer=pricer,
            gpus=gpus,
            usable_bytes=tight * rng.choice((0.6, 1.0, 1.5)),
            inner_gpus=pricer.near,
        )
        for pricer, gpus in zip(pricers, sizes, strict=True)
    ]
    columns = _columns(rng, model, sizes)
    if not len(columns):
        return random_mixed(rng)
    slowest = min(range(len(groups)), key=lambda at: pricers[at].model.flops)
    return MixedScenario(
        prices=GroupPrices(groups, slowest),
        columns=columns,
        limit_bytes=80e9,
    )


def _pricer(rng: random.Random, model: ToyModel) -> ExposedPricer:
    changed = replace(
        model,
        flops=180e12 * rng.choice((1.0, 0.9, 0.4, 0.15)),
        network=rng.choice((1e9, 2e10)),
        nvlink=model.nvlink * rng.choice((1.0, 0.3)),
    )
    return ExposedPricer(changed, rng.choice((0.0, 2e-3, 5e-2)), rng.choice((1, 2, 4)))


def _columns(rng: random.Random, model: ToyModel, sizes: Sequence[int]) -> Columns:
    """Return strategies for all GPUs, or those of one group, that the groups can hold."""
    found = toy_space(
        model,
        rng.choice((sum(sizes), sum(sizes), max(sizes))),
        rng.choice((4, 8, 12, 16)),
        schedules=("1f1b", "gpipe", "zero_bubble", "interleaved"),
        recomputes=("none", "full") if rng.random() < 0.2 else ("none",),
        zeros=(0, 1),
    )
    each = found.tp * found.cp * found.dp
    slots = sum(size // each for size in sizes)
    legal = np.flatnonzero((found.pp <= slots) | (found.pp == 1))
    chosen = rng.sample(legal.tolist(), min(len(legal), 6))
    return found.take(np.array(chosen, dtype=np.int64))


def all_groups(given: MixedCoefficients) -> Iterator[tuple[int, ...]]:
    """Yield every assignment of ranks to groups that have room for them."""
    for groups in itertools.product(given.groups, repeat=given.shape.ranks):
        if given.holds(groups):
            yield groups


def all_arrangements(given: MixedCoefficients) -> Iterator[Arrangement]:
    """Yield every placement with every recomputation, whether it fits or not."""
    for cuts in all_cuts(given.layers, given.shape.ranks):
        sizes = [b - a for a, b in itertools.pairwise(cuts)]
        ranges = [(size,) if given.recompute_all else range(size + 1) for size in sizes]
        for again in itertools.product(*ranges):
            yield Arrangement(cuts, again)


def brute_force(given: MixedCoefficients) -> int | None:
    """Return the fastest simulated iteration over all cuts, recomputations and assignments; None if none fits."""
    if given.shape.chunks > 1:
        return _best_even(given)
    times, assigned = [], list(all_groups(given))
    for arrangement in all_arrangements(given):
        fits = [
            (item.demands_kib(arrangement).max(axis=0) <= item.limit_kib).tolist()
            for item in given.by_group
        ]
        times += [
            iteration_ns(given.work(arrangement, groups))
            for groups in assigned
            if all(fits[group][rank] for rank, group in enumerate(groups))
        ]
    return min(times, default=None)


def _best_even(given: MixedCoefficients) -> int | None:
    times = []
    for chosen in placements(given, uneven=True):
        arrangement = with_recomputation(given, chosen)
        if arrangement is not None:
            times.append(iteration_ns(given.work(arrangement, chosen.groups)))
    return min(times, default=None)


def with_recomputation(given: MixedCoefficients, chosen: Assignment) -> Arrangement | None:
    """Return an even placement with the fewest recomputed layers on every rank; None where it does not fit."""
    ranks = given.shape.ranks
    sizes = np.diff(np.array(chosen.cuts)).reshape(-1, ranks)
    counts = sizes.max(axis=0) * int(given.recompute_all)
    while True:
        again = np.minimum(sizes, counts)
        arrangement = Arrangement(chosen.cuts, tuple(again.ravel().tolist()))
        over = given.over_kib(arrangement, chosen.groups) > 0
        if not over.any():
            return arrangement
        if (counts >= sizes.max(axis=0))[over].any():
            return None
        counts = counts + over
