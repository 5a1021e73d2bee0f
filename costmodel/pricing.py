"""The Pricer: from model, cluster, training and strategy to a StrategyCost.

Each part (block, transfers, finish, memory) depends on a few fields of the strategy, named in class attributes, and is
computed once per distinct combination of them.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from costmodel.blocks import COMPUTE_TERMS, LayerPricer, LayerSeconds, Seconds, overlapped
from costmodel.boundaries import Boundaries
from costmodel.constants import Constants, fitted
from costmodel.cost import Finish, MemoryMoment, StrategyCost
from costmodel.events import ComputeEvent
from costmodel.finish import finishes
from costmodel.frameworks import behaviour, element_bytes, padded_vocab
from costmodel.graph import Layer, ModelGraph
from costmodel.groups import Groups, groups
from costmodel.lanes import Memo, has_lanes, highest, lowest, pick
from costmodel.linear import StageTerm, add, term
from costmodel.memory import MEMORY_FIELDS, MemoryModel
from costmodel.prices import EventPrices, PriceTable
from costmodel.spec import ClusterSpec, TrainingSpec
from costmodel.split import Local, local_sizes
from costmodel.strategy import Strategy

_T = TypeVar("_T")
_GEOMETRY = ("tp", "cp", "dp", "pp", "ep", "etp", "zero_group", "placement_order")
_LAYER = (
    "tp", "cp", "ep", "etp", "micro_batch", "sequence_parallel", "recompute",
    "sharded_stage", "sharded_dp", "zero_group", "placement_order",
)  # fmt: skip
"""What the seconds of a layer depend on: other ranks matter only where ZeRO moves data with every micro-batch."""
_HOP = (
    "pp", "pipeline_span", "placement_order", "tp", "cp", "micro_batch", "sequence_parallel",
    "interleaves",
)  # fmt: skip
Block = tuple[tuple[StageTerm, ...], tuple[StageTerm, ...], tuple[StageTerm, ...]]


class Pricer:
    """Prices strategies of one model on one cluster.

    Args:
        graph: The model.
        cluster: The first device group is priced.
        training: Batch, sequence, framework, precision.
        constants: Constants of the model; the shipped fit by default.
        calibration: Values that replace constants by name, fitted to the user's own runs.
        tables: Measured prices, asked before any formula.
    """

    prices_lanes: ClassVar[bool] = True
    floor_fields: ClassVar[tuple[str, ...]] = (
        "tp", "cp", "ep", "etp", "micro_batch", "sequence_parallel", "recompute", "placement_order",
    )  # fmt: skip
    floor_terms: ClassVar[frozenset[str]] = frozenset((*COMPUTE_TERMS, "tp_comm", "cp_comm"))
    transfer_fields: ClassVar[tuple[str, ...]] = _HOP
    memory_fields: ClassVar[tuple[str, ...]] = MEMORY_FIELDS

    def __init__(
        self,
        graph: ModelGraph,
        cluster: ClusterSpec,
        training: TrainingSpec,
        *,
        constants: Constants | None = None,
        calibration: Mapping[str, float] | None = None,
        tables: Sequence[PriceTable] = (),
    ) -> None:
        base = fitted() if constants is None else constants
        self.graph, self.cluster, self.training = graph, cluster, training
        self.constants = base.replaced(calibration) if calibration else base
        self.framework = behaviour(training)
        # Synchronised batch normalisation makes every layer wait for all replicas.
        replicas = ("dp",) if self.framework.sync_batch_norm else ()
        self.layer_fields = (*_LAYER, *replicas)
        self.block_fields = (*self.layer_fields, "vpp", "pipelined", "pipeline_span")
        self.finish_fields = (*self.block_fields, "pp", "dp", "zero")
        self.prices = EventPrices(cluster, self.framework, self.constants, tables)
        self._boundaries = Boundaries(
            graph.model.hidden,
            len(graph.kinds),
            training,
            self.framework,
            self.prices,
            self.constants,
            cluster,
        )
        self._memos: defaultdict[str, Memo[Any]] = defaultdict(Memo)

    @property
    def layer_kinds(self) -> tuple[int, ...]:
        """Kind index of each layer, in order."""
        return self.graph.layers

    def cost(self, strategy: Strategy) -> StrategyCost:
        """Return all prices of ``strategy``."""
        return replace(self.time_cost(strategy), memory=self.memory(strategy))

    def time_cost(self, strategy: Strategy) -> StrategyCost:
        """Return all prices of ``strategy`` but those of memory, which has no moments then."""
        forward, backward, weight = self.block(strategy)
        return StrategyCost(
            strategy=strategy,
            layer_kinds=self.graph.layers,
            forward=forward,
            backward=backward,
            weight_gradient=weight,
            transfer_s=self.transfer(strategy),
            finish=self.finish(strategy),
            memory=(),
            fixed_s=self.fixed_s(strategy),
        )

    def block(self, strategy: Strategy) -> Block:
        """Return forward, backward and weight-gradient seconds of a chunk and micro-batch, by term."""
        return self._once("block", self.block_fields, strategy, self._block)

    def transfer(self, strategy: Strategy) -> tuple[float, ...]:
        """Return the seconds that a boundary's data is under way beyond what its sender waits for."""
        return self._once("transfer", self.transfer_fields, strategy, self._boundaries.transfers)

    def least_transfer(self, strategy: Strategy) -> float:
        """Return the least of ``transfer`` but the boundary that wraps around, for lanes of strategies."""
        return self._boundaries.least_transfer(strategy)

    def finish(self, strategy: Strategy) -> tuple[Finish, ...]:
        """Return the alternatives that bind the end of the iteration."""
        return self._once("finish", self.finish_fields, strategy, self._finish)

    def memory(self, strategy: Strategy) -> tuple[MemoryMoment, ...]:
        """Return the memory of a rank, by moment."""
        return self._once("memory", self.memory_fields, strategy, self._memory)

    def fixed_s(self, strategy: Strategy) -> float:
        """Return the seconds per iteration outside the schedule."""
        del strategy
        return self.constants.of("iteration", self.framework.iteration)

    def _once(
        self, part: str, fields: Sequence[str], strategy: Strategy, make: Callable[[Strategy], _T]
    ) -> _T:
        key = tuple(getattr(strategy, name) for name in fields)
        found: _T = self._memos[part].recall(strategy, key, lambda: make(strategy))
        return found

    def _groups(self, strategy: Strategy) -> Groups:
        if self.framework.hybrid_sharding:
            node = lowest(self.cluster.gpus_per_node, strategy.dp * strategy.cp)
            shards = (strategy.zero > 0) & (strategy.zero_group == 0)
            strategy = replace(strategy, zero_group=pick(shards, node, strategy.zero_group))
        return self._once("groups", _GEOMETRY, strategy, self._made_groups)

    def _made_groups(self, strategy: Strategy) -> Groups:
        return groups(self.cluster, strategy)

    def _layers(self, tp: int) -> tuple[Layer, ...]:
        """Return the kinds, then embedding and head with their padded vocabulary."""
        found: tuple[Layer, ...] = self._memos["padded layers"].recall(
            tp, (tp,), lambda: self._padded_layers(tp)
        )
        return found

    def _padded_layers(self, tp: int) -> tuple[Layer, ...]:
        graph, vocab = self.graph, self.graph.model.vocab
        padded = padded_vocab(self.framework, vocab, tp)
        ends = (_padded(end, vocab, padded) for end in (graph.embedding, graph.head))
        return (*graph.kinds, *ends)

    def _block(self, strategy: Strategy) -> Block:
        forward, backward, weights = self._once(
            "layers", self.layer_fields, strategy, self._layer_terms
        )
        exchange = self._boundaries.waits(strategy)
        return (*forward, *exchange[0]), (*backward, *exchange[1]), weights

    def _layer_terms(self, strategy: Strategy) -> Block:
        pricer = self._layer_pricer(strategy)
        local = local_sizes(self.training, strategy)
        decoder = local_sizes(self.training, strategy, decoder=True)
        *kinds, embedding, head = self._layers(strategy.tp)
        priced = [
            pricer.price(layer, decoder if self._is_decoder(index) else local)
            for index, layer in enumerate(kinds)
        ]
        ends = [pricer.price(embedding, local), pricer.price(head, decoder)]
        costs = [self._passes(layer) for layer in priced]
        first, last = (self._passes(end, ends=True) for end in ends)
        extra = self._edges(strategy, pricer, local, head)
        forward = _terms(
            [cost[0] for cost in costs], None, first[0], _plus(last[0], extra["loss_forward"])
        )
        backward = _terms(
            [cost[1] for cost in costs],
            [cost[2] for cost in costs],
            _plus(first[1], extra["embedding"]),
            _plus(last[1], extra["loss_backward"]),
        )
        weights = _terms([layer.weight for layer in priced], None, ends[0].weight, ends[1].weight)
        return forward, backward, weights

    def _layer_pricer(self, strategy: Strategy) -> LayerPricer:
        return LayerPricer(
            self.training,
            strategy,
            self._groups(strategy),
            self.framework,
            self.prices,
            self.constants,
        )

    def _is_decoder(self, kind: int) -> bool:
        start = self.graph.model.decoder_start
        return start > 0 and kind in self.graph.layers[start:]

    def _passes(
        self, layer: LayerSeconds, *, ends: bool = False
    ) -> tuple[Seconds, Seconds, Seconds]:
        """Return forward, backward, and what full recomputation adds to the backward."""
        host = 0.0 if ends else self.constants.of("host.layer", self.framework.host)
        host = host + self.constants["host.step"] * layer.steps
        host_backward = host * self.constants["host.backward"]
        near = layer.near
        forward = self._settled(layer.forward | layer.forward_comm, layer.gather, near, host)
        gradient = _plus(_plus(layer.backward, layer.weight), layer.backward_comm)
        traffic = layer.gather + layer.reduce
        plain = self._settled(_plus(gradient, layer.selective), traffic, 2 * near, host_backward)
        repeated = _plus(_plus(gradient, layer.forward), layer.forward_comm)
        full = self._settled(repeated, traffic, 2 * near, host_backward + host)
        return forward, plain, {name: full[name] - plain[name] for name in full}

    def _settled(self, busy: Seconds, traffic: float, near: float, host: float) -> Seconds:
        """Return the terms of a layer's pass with FSDP traffic and host launches beside it."""
        total = beside = sum(busy.values())
        if _any(traffic):
            beside = overlapped(total, traffic, near, self.constants["overlap.fsdp"])
        launch = highest(host - beside, 0.0)
        return {**busy, "fsdp_comm": beside - total, "launch": launch}

    def _edges(
        self, strategy: Strategy, pricer: LayerPricer, local: Local, head: Layer
    ) -> dict[str, Seconds]:
        """Return what embedding and head add beside their operators: loss and vocabulary collectives."""
        rows = local.tokens * self.graph.model.hidden * element_bytes(self.training)
        has_vocab = self.graph.model.vocab > 0
        exchange = pricer.all_reduce_pair(rows, pricer.groups.tp) if has_vocab else 0.0
        half = {"tp_comm": pick(strategy.sequence_parallel, exchange / 2, exchange)}
        loss = 0.0
        for operator in head.operators:
            if operator.kind == "loss":
                width = -(-operator.inputs // strategy.tp)
                event = ComputeEvent(op="cross_entropy", shape=(local.tokens, width), dtype="fp32")
                loss = loss + self.prices.compute([event])[0]
        return {
            "embedding": half,
            "loss_forward": {"loss": loss / 2},
            "loss_backward": {"loss": loss / 2, "tp_comm": exchange},
        }

    def _finish(self, strategy: Strategy) -> tuple[Finish, ...]:
        return finishes(
            self._layers(strategy.tp),
            self.graph,
            strategy,
            self._layer_pricer(strategy),
            lambda: self._once("passes", self.block_fields, strategy, self._passes_of),
        )

    def _passes_of(self, strategy: Strategy) -> tuple[StageTerm, StageTerm]:
        forward, backward, _ = self.block(strategy)
        return add("forward", forward), add("backward", backward)

    def _memory(self, strategy: Strategy) -> tuple[MemoryMoment, ...]:
        return self._once("memory model", (), strategy, self._memory_model).moments(strategy)

    def _memory_model(self, strategy: Strategy) -> MemoryModel:
        del strategy
        return MemoryModel(self.graph, self.cluster, self.training)


def _any(value: float) -> bool:
    """Whether a price, possibly with lanes, is not zero."""
    return has_lanes(value) or value > 0.0


def _plus(left: Seconds, right: Seconds) -> Seconds:
    return {**left, **{name: left.get(name, 0.0) + value for name, value in right.items()}}


def _padded(layer: Layer, vocab: int, padded: int) -> Layer:
    """Return the layer with its vocabulary grown from ``vocab`` to ``padded``."""
    operators = (
        tuple(
            replace(
                operator,
                inputs=padded if operator.inputs == vocab else operator.inputs,
                outputs=padded if operator.outputs == vocab else operator.outputs,
                weights=operator.weights // vocab * padded,
            )
            if operator.split == "vocab"
            else operator
            for operator in layer.operators
        )
        if vocab
        else layer.operators
    )
    return replace(layer, operators=operators)


def _terms(
    layers: Sequence[Seconds], extra: Sequence[Seconds] | None, first: Seconds, last: Seconds
) -> tuple[StageTerm, ...]:
    names = list(
        dict.fromkeys([*COMPUTE_TERMS, *(name for s in (*layers, first, last) for name in s)])
    )
    zeros = (0.0,) * len(layers)
    return tuple(
        term(
            name,
            len(layers),
            layer=tuple(seconds.get(name, 0.0) for seconds in layers),
            recomputed=tuple(seconds.get(name, 0.0) for seconds in extra) if extra else zeros,
            first=first.get(name, 0.0),
            last=last.get(name, 0.0),
        )
        for name in names
    )
