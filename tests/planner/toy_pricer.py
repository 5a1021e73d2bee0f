"""An analytic pricer of a page, so that the search can be tested and timed without catalogs and tables."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from costmodel.cost import Finish, MemoryMoment, StrategyCost
from costmodel.linear import StageTerm, term
from costmodel.strategy import RECOMPUTES, SCHEDULES, Schedule, Strategy
from planner.columns import Columns
from planner.pricer import BlockTerms, PricerLike

GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyModel:
    """A model on a cluster.

    Attributes:
        layers: Kind of each layer: 0 dense, 1 mixture of experts.
        hidden, sequence, vocab: Widths and length.
        dense, active, experts: Parameters of a dense layer; of an MoE layer per token; of all its experts.
        flops, memory, nvlink, network: FLOP/s reached, bytes, bytes/s inside and across nodes.
    """

    layers: tuple[int, ...]
    hidden: int
    sequence: int
    vocab: int
    dense: float
    active: float = 0.0
    experts: float = 0.0
    flops: float = 180e12
    memory: float = 80e9
    nvlink: float = 250e9
    network: float = 20e9
    node: int = 8

    @property
    def kinds(self) -> int:
        """One, or two with experts."""
        return max(self.layers) + 1


@dataclass(frozen=True, slots=True)
class ToyPricer(PricerLike):
    """Prices strategies of a ToyModel by formula."""

    model: ToyModel

    floor_fields: ClassVar = ("tp", "cp", "ep", "micro_batch")
    floor_terms: ClassVar = frozenset({"compute"})
    block_fields: ClassVar = ("tp", "cp", "ep", "micro_batch", "recompute", "sequence_parallel")
    transfer_fields: ClassVar = ("tp", "cp", "pp", "micro_batch")
    finish_fields: ClassVar = ("dp", "tp", "cp", "pp", "ep", "zero")
    memory_fields: ClassVar = (
        *("dp", "tp", "cp", "pp", "ep", "micro_batch", "zero", "recompute", "sequence_parallel"),
    )

    @property
    def layer_kinds(self) -> tuple[int, ...]:
        """Kind of each layer."""
        return self.model.layers

    def _tokens(self, strategy: Strategy) -> float:
        return strategy.micro_batch * self.model.sequence / strategy.cp

    def _weights(self, strategy: Strategy) -> tuple[float, ...]:
        """Return parameters of a layer on one GPU by kind."""
        model = self.model
        shared = model.dense / strategy.tp
        moe = 0.25 * shared + model.experts / strategy.ep / 1.0
        return (shared, moe)[: model.kinds]

    def block(self, strategy: Strategy) -> BlockTerms:
        """Compute and tensor-parallel collectives of one layer."""
        model, tokens = self.model, self._tokens(strategy)
        speed = (
            model.flops * (1 - 0.04 * (strategy.tp - 1) ** 0.5) * (1 - 0.15 / strategy.micro_batch)
        )
        attention = 2 * tokens * model.sequence * model.hidden
        work = [2 * size * tokens + attention for size in (model.dense, model.active)]
        seconds = tuple(value / strategy.tp / speed for value in work[: model.kinds])
        moved = 2 * tokens * model.hidden * 2 * (strategy.tp - 1) / strategy.tp
        link = model.nvlink if strategy.tp <= model.node else model.network
        comm = (moved / link + 2e-5 * (strategy.tp > 1),) * model.kinds
        head = 2 * tokens * model.hidden * model.vocab / strategy.tp / speed
        again = tuple(a + b for a, b in zip(seconds, comm, strict=True))
        forward = (
            term("compute", model.kinds, layer=seconds, last=head, first=head / 100),
            term("tp_comm", model.kinds, layer=comm),
        )
        double = tuple(2 * value for value in seconds)
        backward = (
            term("compute", model.kinds, layer=double, last=2 * head, recomputed=again),
            term("tp_comm", model.kinds, layer=comm),
        )
        return forward, backward, (term("weight", model.kinds, layer=seconds, last=head),)

    def transfer(self, strategy: Strategy) -> tuple[float, ...]:
        """One activation to the next stage."""
        if strategy.pp == 1:
            return ()
        size = 2 * self._tokens(strategy) * self.model.hidden / strategy.tp
        return (size / self.model.network + 1e-5,) * strategy.pp

    def finish(self, strategy: Strategy) -> tuple[Finish, ...]:
        """Gradient reduction and optimizer step."""
        replicas = strategy.dp * strategy.cp
        per_parameter = (
            4 * (replicas - 1) / replicas / self.model.network * (1 + 0.5 * (strategy.zero == 3))
        )
        per_parameter += 16 / 1.5e12 / (replicas if strategy.zero else 1)
        layer = tuple(size * per_parameter for size in self._weights(strategy))
        ends = self.model.hidden * self.model.vocab / strategy.tp * per_parameter
        return (
            Finish(terms=(term("dp_comm", self.model.kinds, layer=layer, first=ends, last=ends),)),
        )

    def memory(self, strategy: Strategy) -> tuple[MemoryMoment, ...]:
        """Weights, gradients, optimizer, activations."""
        model, replicas, kinds = self.model, strategy.dp * strategy.cp, self.model.kinds
        sharded = [replicas if strategy.zero >= stage else 1 for stage in (3, 2, 1)]
        per_parameter = 2 / sharded[0] + 4 / sharded[1] + 12 / sharded[2]
        layer = tuple(size * per_parameter for size in self._weights(strategy))
        ends = model.hidden * model.vocab / strategy.tp * per_parameter
        tokens = self._tokens(strategy) * model.hidden
        split = strategy.tp if strategy.sequence_parallel else 1
        kept = 10 / split + 24 / strategy.tp
        flight = (tokens * kept,) * kinds
        saved = tuple(2 * tokens / split - value for value in flight)
        terms: list[StageTerm] = [
            term("state", kinds, layer=layer, first=ends, last=ends),
            term("activations", kinds, flight_layer=flight, flight_recomputed=saved),
            term("context", kinds, fixed=3e9, recompute_once=tokens * kept),
        ]
        logits = term("logits", kinds, last=6 * self._tokens(strategy) * model.vocab / strategy.tp)
        return (
            MemoryMoment(name="backward", terms=tuple(terms)),
            MemoryMoment(name="loss", terms=(*terms, logits)),
        )

    def cost(self, strategy: Strategy) -> StrategyCost:
        """Everything."""
        forward, backward, weight = self.block(strategy)
        return StrategyCost(
            strategy=strategy,
            layer_kinds=self.model.layers,
            forward=tuple(forward),
            backward=tuple(backward),
            weight_gradient=tuple(weight),
            transfer_s=self.transfer(strategy),
            finish=self.finish(strategy),
            memory=self.memory(strategy),
            fixed_s=0.0,
        )


def toy_space(
    model: ToyModel,
    gpus: int,
    batch: int,
    *,
    schedules: tuple[Schedule, ...] = ("1f1b", "interleaved"),
    recomputes: tuple[str, ...] = ("none",),
    max_ep: int = 1,
    zeros: tuple[int, ...] = (0, 1, 2, 3),
) -> Columns:
    """Return every strategy that uses all GPUs, by plain loops."""
    rows = [
        (
            *degrees,
            vpp,
            SCHEDULES.index(schedule),
            zero,
            RECOMPUTES.index(recompute),
            degrees[0] > 1,
        )
        for degrees in _degrees(model, gpus, batch, max_ep)
        for vpp, schedule in _orders(degrees, len(model.layers), schedules)
        for zero in zeros
        for recompute in recomputes
    ]
    names = (
        *("tp", "cp", "pp", "dp", "micro_batch", "microbatches", "ep", "vpp", "schedule", "zero"),
        *("recompute", "sequence_parallel"),
    )
    table = np.array(rows, dtype=np.int64).reshape(-1, len(names))
    return Columns.of({name: table[:, at] for at, name in enumerate(names)})


def _degrees(model: ToyModel, gpus: int, batch: int, max_ep: int) -> Iterator[tuple[int, ...]]:
    """Yield tp, cp, pp, dp, micro-batch, micro-batches, ep."""
    powers = (1, 2, 4, 8, 16, 32, 64)
    stages = range(1, min(128, len(model.layers)) + 1)
    for tp, cp, pp in itertools.product(powers[:4], powers[:4], stages):
        dp, rest = divmod(gpus, tp * cp * pp)
        if rest:
            continue
        for b, ep in itertools.product(powers[:4], powers):
            if not batch % (dp * b) and ep <= max_ep and not (dp * cp * tp) % ep:
                yield tp, cp, pp, dp, b, batch // (dp * b), ep


def _orders(
    degrees: tuple[int, ...], layers: int, schedules: tuple[Schedule, ...]
) -> Iterator[tuple[int, Schedule]]:
    """Yield chunks and schedule."""
    pp, m = degrees[2], degrees[5]
    if pp == 1:
        yield 1, "1f1b"
        return
    yield from ((1, schedule) for schedule in schedules if schedule != "interleaved")
    if "interleaved" in schedules and not m % pp:
        yield from ((vpp, "interleaved") for vpp in range(2, 9) if pp * vpp <= layers)


GPT3 = ToyModel(layers=(0,) * 96, hidden=12288, sequence=2048, vocab=51200, dense=12 * 12288**2)
GPT_1T = ToyModel(layers=(0,) * 128, hidden=25600, sequence=2048, vocab=51200, dense=12 * 25600**2)
LLAMA_405B = ToyModel(
    layers=(0,) * 126,
    hidden=16384,
    sequence=8192,
    vocab=128256,
    dense=3.2e9,
    flops=500e12,
    network=45e9,
)
DEEPSEEK_V3 = ToyModel(
    layers=(0,) * 3 + (1,) * 58,
    hidden=7168,
    sequence=4096,
    vocab=129280,
    dense=0.58e9,
    active=0.6e9,
    experts=11.3e9,
    flops=450e12,
    network=45e9,
)
DEEP = ToyModel(
    layers=(0,) * 1024, hidden=8192, sequence=4096, vocab=128256, dense=12 * 8192**2, flops=450e12
)
