"""Slices of a sequence as units of a pipeline: token-level micro-batches of causal models.

Li et al., TeraPipe (ICML 2021, arXiv 2102.07988): a token attends only to its past, so the second slice of a sequence can
enter the first stage while the first is on the second. All slices go forward in order and backward in reverse: GPipe's
order. A slice is priced as a short sequence whose attention is its share of the whole sequence's; slices are equal (the
paper also makes later ones shorter).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from costmodel.cost import Finish, MemoryMoment, StrategyCost
from costmodel.errors import InputError
from costmodel.linear import StageTerm, weighted
from costmodel.pricing import Pricer
from costmodel.strategy import SCHEDULES, Strategy
from costmodel.units import GIB, KIB, NS_PER_S, format_seconds
from planner.answer_text import layers_label, table
from planner.engine import search
from planner.legality import LEGALITY
from planner.mixed.cluster import spread_limit_bytes
from planner.pricer import BlockTerms
from planner.scenario import Bound, Scenario
from planner.scenario_pricer import make_pricer
from planner.space import enumerate_space
from planner.systems import apply_system


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedPlan:
    """The best plan with a number of slices.

    Attributes:
        slices: Parts of each sequence.
        strategy: Its ``microbatches`` are those of whole sequences.
        layer_counts: Layers of each stage.
        iteration_s: Simulated seconds.
        memory_bytes: Of the fullest rank.
    """

    slices: int
    strategy: Strategy
    layer_counts: tuple[int, ...]
    iteration_s: float
    memory_bytes: float


def best_sliced(scenario: Scenario, slices: int) -> SlicedPlan | None:
    """Return the fastest plan that sends ``slices`` equal parts of each sequence; None where none fits.

    Raises:
        InputError: If the model, its attention kernels, the framework or the sequence do not allow it.
    """
    scenario = apply_system(scenario)
    _check(scenario, slices)
    cut = _sliced(scenario, slices)
    columns = enumerate_space(cut).columns
    plain = columns.pp == 1
    ordered = plain | (columns.schedule == SCHEDULES.index("gpipe"))
    whole = columns.microbatches % slices == 0
    found = search(
        columns.take(np.flatnonzero(ordered & whole & (columns.cp == 1))),
        _SlicedPricer(make_pricer(cut), make_pricer(scenario), slices),
        memory_limit_bytes=spread_limit_bytes(scenario),
        uneven=cut.uneven_stages,
    )
    if not found.ranked:
        return None
    best = found.ranked[0]
    return SlicedPlan(
        slices=slices,
        strategy=replace(best.strategy, microbatches=best.strategy.microbatches // slices),
        layer_counts=best.placement.layer_counts(),
        iteration_s=best.iteration_ns / NS_PER_S,
        memory_bytes=best.peak_kib * KIB,
    )


def _check(scenario: Scenario, slices: int) -> None:
    training = scenario.training
    kinds = [kind.attention for kind in scenario.graph.model.kinds if kind.attention]
    if not kinds or scenario.graph.model.decoder_start or not all(kind.causal for kind in kinds):
        raise InputError("must be a causal model: others need the whole sequence", key="model")
    if training.attention != "flash":
        raise InputError("must be flash where sequences are sliced", key="training.attention")
    if "gpipe" not in LEGALITY[training.framework].schedules:
        able = [name for name, legality in LEGALITY.items() if "gpipe" in legality.schedules]
        raise InputError(
            "must have GPipe's order, in which slices go back",
            key="training.framework",
            value=training.framework,
            nearest=able,
        )
    if slices < 1 or training.sequence % slices:
        raise InputError(
            f"must divide the sequence of {training.sequence} tokens",
            key="slices",
            value=slices,
            nearest=max(n for n in range(1, max(1, slices) + 1) if training.sequence % n == 0),
        )


def _sliced(scenario: Scenario, slices: int) -> Scenario:
    """Return the scenario in which a slice is a sequence."""
    training = scenario.training
    bounds = dict(scenario.bounds)
    if (asked := bounds.get("microbatches")) and asked.allowed:
        allowed = tuple(int(str(value)) * slices for value in asked.allowed)
        bounds["microbatches"] = Bound(allowed=allowed)
    return replace(
        scenario,
        bounds=bounds,
        training=replace(
            training,
            sequence=training.sequence // slices,
            global_batch=training.global_batch * slices,
        ),
    )


class _SlicedPricer:
    """Prices slices: everything as for short sequences, attention as its share of the whole one's."""

    prices_lanes: ClassVar[bool] = Pricer.prices_lanes
    floor_fields: ClassVar[tuple[str, ...]] = Pricer.floor_fields
    floor_terms: ClassVar[frozenset[str]] = Pricer.floor_terms
    transfer_fields: ClassVar[tuple[str, ...]] = Pricer.transfer_fields
    memory_fields: ClassVar[tuple[str, ...]] = Pricer.memory_fields

    def __init__(self, short: Pricer, whole: Pricer, slices: int) -> None:
        self._short, self._whole, self._slices = short, whole, slices
        self.block_fields, self.finish_fields = short.block_fields, short.finish_fields

    @property
    def layer_kinds(self) -> tuple[int, ...]:
        """Kind index of each layer, in order."""
        return self._short.layer_kinds

    def block(self, strategy: Strategy) -> BlockTerms:
        """Return the terms of one slice."""
        forward, backward, weight = self._short.block(strategy)
        before, after, _ = self._whole.block(strategy)
        return self._mixed(forward, before), self._mixed(backward, after), weight

    def _mixed(
        self, short: Sequence[StageTerm], whole: Sequence[StageTerm]
    ) -> tuple[StageTerm, ...]:
        share = 1 / self._slices
        core = [weighted("attention", [(share, t)]) for t in whole if t.name == "attention"]
        return (*(term for term in short if term.name != "attention"), *core)

    def transfer(self, strategy: Strategy) -> tuple[float, ...]:
        """Return the hand-over of a slice."""
        return self._short.transfer(strategy)

    def least_transfer(self, strategy: Strategy) -> float:
        """Return the least of ``transfer`` but the boundary that wraps around."""
        return self._short.least_transfer(strategy)

    def fixed_s(self, strategy: Strategy) -> float:
        """Return the seconds per iteration outside the schedule."""
        return self._short.fixed_s(strategy)

    def finish(self, strategy: Strategy) -> tuple[Finish, ...]:
        """Return the end of the iteration, which slices do not change."""
        return self._whole.finish(strategy)

    def memory(self, strategy: Strategy) -> tuple[MemoryMoment, ...]:
        """Return the memory with slices in flight."""
        return self._short.memory(strategy)

    def cost(self, strategy: Strategy) -> StrategyCost:
        """Return everything above together."""
        forward, backward, weight = (tuple(terms) for terms in self.block(strategy))
        return replace(
            self._short.cost(strategy),
            forward=forward,
            backward=backward,
            weight_gradient=weight,
            finish=self.finish(strategy),
        )


def slices_text(scenario: Scenario, counts: Sequence[int]) -> str:
    """Return the best plan of each number of slices as a table.

    Raises:
        InputError: As ``best_sliced``.
    """
    columns = ["slices", "strategy", "mbs x m", "layers per stage", "iteration", "memory/GPU"]
    rows = [_row(count, best_sliced(scenario, count)) for count in counts]
    return f"{scenario.name}: sequences in slices, GPipe order\n\n{table(columns, rows)}\n"


def _row(slices: int, plan: SlicedPlan | None) -> list[str]:
    if plan is None:
        return [str(slices), "no plan", "", "", "", ""]
    strategy = plan.strategy
    return [
        str(slices),
        strategy.label(),
        f"{strategy.micro_batch} x {strategy.microbatches}",
        layers_label(plan.layer_counts),
        format_seconds(plan.iteration_s),
        f"{plan.memory_bytes / GIB:.1f} GiB",
    ]
