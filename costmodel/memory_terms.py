"""The named terms of a rank's memory, each affine in what the rank holds.

Bytes per parameter are ZeRO's (Rajbhandari et al. 2020, arXiv 1910.02054, section 3): weights, gradients and optimizer
state are divided by the sharding ranks from stage 3, 2 and 1 on; experts only by the replicas of an expert.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costmodel.activations import Kept, LocalShape, layer_kept
from costmodel.frameworks import behaviour as framework_behaviour
from costmodel.graph import Layer, ModelGraph
from costmodel.lanes import Memo, highest_of, holds, lowest, pick
from costmodel.linear import StageTerm, term
from costmodel.local_parameters import LocalElements, adapted, layer_elements, padded, weight_shapes
from costmodel.memory_behaviour import CONTEXT_SCALE, memory_behaviour
from costmodel.memory_options import is_on
from costmodel.spec import ClusterSpec, TrainingSpec
from costmodel.strategy import Strategy


class MemoryTerms:
    """Makes the terms of one model, cluster and training; partial sums are kept by the fields they depend on."""

    def __init__(self, graph: ModelGraph, cluster: ClusterSpec, training: TrainingSpec) -> None:
        self._graph = graph
        self._training = training
        self._context_scale = CONTEXT_SCALE.get(cluster.device.architecture, 1.0)
        self._per_node = cluster.gpus_per_node
        self._routed = any(op.experts for layer in graph.kinds for op in layer.operators)
        self.behaviour = memory_behaviour(training, layernorm=graph.model.norm == "layernorm")
        self._vocab_multiple = framework_behaviour(training).vocab_multiple
        self._layers = (*graph.kinds, graph.embedding, graph.head)
        self._shapes = weight_shapes(graph)
        self._elements: Memo[tuple[LocalElements, ...]] = Memo()
        self._kept: Memo[tuple[Kept, ...]] = Memo()

    def elements(self, strategy: Strategy) -> tuple[LocalElements, ...]:
        """Return the elements on a rank: of each kind of layer, then of embedding and head."""
        key = (strategy.tp, strategy.ep, strategy.etp)
        return self._elements.recall(
            strategy, key, lambda: tuple(self._local(layer, strategy) for layer in self._layers)
        )

    def _local(self, layer: Layer, strategy: Strategy) -> LocalElements:
        b, ends = self.behaviour, (self._graph.embedding, self._graph.head)
        tp, ep = strategy.tp, strategy.ep
        whole = layer_elements(
            layer, tp=tp, ep=ep, etp=strategy.etp, vocab_multiple=self._vocab_multiple
        )
        if not b.adapter_rank:
            return whole
        quantised = self._training.options.get("adapter") == "qlora" and layer not in ends
        return adapted(layer, whole, b.adapter_rank, tp=tp, ep=ep, quantised=quantised)

    def kept(self, strategy: Strategy) -> tuple[Kept, ...]:
        """Return what each kind of layer, the embedding and the head keep of one micro-batch."""
        key = (
            strategy.tp,
            strategy.cp,
            strategy.etp,
            strategy.micro_batch,
            strategy.sequence_parallel,
        )
        return self._kept.recall(strategy, key, lambda: self._all_kept(strategy))

    def _all_kept(self, strategy: Strategy) -> tuple[Kept, ...]:
        hidden = self._graph.model.hidden
        return tuple(
            layer_kept(layer, hidden, self._shape(layer, strategy), self.behaviour)
            for layer in self._layers
        )

    def _shape(self, layer: Layer, strategy: Strategy) -> LocalShape:
        training = self._training
        decoder = any(operator.name.startswith("cross.") for operator in layer.operators)
        sequence = (decoder and training.decoder_sequence) or training.sequence
        return LocalShape(
            samples=strategy.micro_batch / strategy.cp,
            tokens=strategy.micro_batch * sequence / strategy.cp,
            context=sequence,
            tp=strategy.tp,
            residual=pick(strategy.sequence_parallel, strategy.tp, 1),
            etp=strategy.etp,
            flash=training.attention == "flash",
        )

    def states(self, strategy: Strategy) -> dict[str, StageTerm]:
        """Return weights, gradients and optimizer state, each sharded from its ZeRO stage on."""
        b = self.behaviour
        at_hand = 1.0 - strategy.offload_optimizer
        weights = 0.0 if is_on(self._training, "offload_parameters") else 1.0
        rows = (
            ("parameters", (b.weight * weights, b.frozen * weights, b.quantised * weights), 3),
            ("gradients", (b.gradient, 0.0, 0.0), 2),
            ("optimizer", (b.state * at_hand, 0.0, 0.0), 1),
        )
        states = {
            name: self._by_layer(name, strategy, _sharded(strategy, stage, *sizes))
            for name, sizes, stage in rows
        }
        if b.weight_versions:
            states["weight versions"] = _versions(states["parameters"])
        return states

    def _by_layer(
        self, name: str, strategy: Strategy, size: Callable[[LocalElements], float]
    ) -> StageTerm:
        """Return a term with ``size`` of every layer's elements; tied weights count once where both ends meet."""
        *kinds, first, last = (size(elements) for elements in self.elements(strategy))
        both = 0.0
        if self._graph.tied and holds(strategy.pp == 1):
            tied = self._tied(strategy)
            frozen = self.behaviour.adapter_rank > 0
            once = size(LocalElements(frozen=tied) if frozen else LocalElements(dense=tied))
            both = -once * (strategy.pp == 1)
        return term(name, len(kinds), layer=tuple(kinds), first=first, last=last, fixed=both)

    def _tied(self, strategy: Strategy) -> float:
        rows = padded(self._graph.model.vocab, self._vocab_multiple * strategy.tp)
        return rows * self._graph.model.hidden / strategy.tp

    def activations(self, strategy: Strategy) -> StageTerm:
        """Return kept activations; a fully recomputed layer keeps its input only."""
        kinds = len(self._graph.kinds)
        share = 1.0 - strategy.offload_activations
        kept = self.kept(strategy)
        inputs = tuple(share * item.input / self.behaviour.group for item in kept[:kinds])
        whole = strategy.recompute == "full"
        by_layer = tuple(
            pick(whole, entry, share * _chosen(item, strategy))
            for item, entry in zip(kept[:kinds], inputs, strict=True)
        )
        return term(
            "activations",
            kinds,
            flight_layer=by_layer,
            flight_recomputed=tuple(i - k for i, k in zip(inputs, by_layer, strict=True)),
            flight_first=kept[kinds].whole,
            flight_last=kept[kinds + 1].whole,
        )

    def logits(self, strategy: Strategy) -> StageTerm:
        """Return the logits of one micro-batch and what the loss makes of them."""
        model, b = self._graph.model, self.behaviour
        width = (
            padded(model.vocab or model.classes, self._vocab_multiple * strategy.tp) / strategy.tp
        )
        sequence = self._training.decoder_sequence or self._training.sequence
        size = strategy.micro_batch * sequence / strategy.cp * width
        return term("logits", len(self._graph.kinds), last=size * (b.logit_kept + b.logit_peak))

    def sequence_copies(self, strategy: Strategy, where: str) -> StageTerm:
        """Return the unsplit copies of the hidden stream around a gathered matmul: ``last`` or ``fixed``."""
        split = (strategy.tp > 1) & strategy.sequence_parallel
        size = self.kept(strategy)[0].input * strategy.tp * split
        kinds = len(self._graph.kinds)
        return term("sequence copies", kinds, **{where: self.behaviour.sequence_copies * size})

    def working(self, strategy: Strategy) -> list[StageTerm]:
        """Return the recomputed activations of one layer and the gradients that flow through it."""
        kinds = len(self._graph.kinds)
        kept = self.kept(strategy)[:kinds]
        buffer = self.behaviour.group * highest_of(_chosen(item, strategy) for item in kept)
        whole = strategy.recompute == "full"
        flowing = highest_of(item.widest for item in kept)
        return [
            term(
                "recompute buffer",
                kinds,
                fixed=pick(whole, buffer, 0.0),
                recompute_once=pick(whole, 0.0, buffer),
            ),
            term("backward buffer", kinds, fixed=flowing),
        ]

    def gathered_ends(self, strategy: Strategy) -> StageTerm:
        """Return the gathered weights of embedding and head, or what DeepSpeed keeps gathered in all."""
        b, name, kinds = self.behaviour, "gathered parameters", len(self._graph.kinds)
        if not holds(strategy.zero >= 3):
            return term(name, kinds)
        *layers, first, last = (elements.total for elements in self.elements(strategy))
        if b.live_parameters:
            live = sum(layers[kind] for kind in self._graph.layers) / strategy.pp + first + last
            held = b.gather * lowest(float(b.live_parameters), live)
            return term(name, kinds, fixed=held * (strategy.zero >= 3))
        if self._graph.tied:
            last = last - self._tied(strategy)
        gather = b.gather * (strategy.zero >= 3)
        return term(name, kinds, first=gather * first, last=gather * last)

    def gathered_layers(self, strategy: Strategy) -> StageTerm:
        """Return the layers that are whole on the rank while one of them runs backward."""
        b, kinds = self.behaviour, len(self._graph.kinds)
        widest = highest_of(elements.total for elements in self.elements(strategy)[:kinds])
        present = (strategy.zero == 3) & (not b.live_parameters)
        size = b.gather * b.gathered_layers * widest * present
        return term("gathered layers", kinds, fixed=size)

    def placeholders(self, strategy: Strategy) -> StageTerm:
        """Return the cached dummy gradients: one for each distinct weight shape of the layers."""
        elements = sum(
            size / (strategy.etp if routed else strategy.tp) for size, routed in self._shapes
        )
        size = self.behaviour.placeholder * elements
        return term("gradient placeholders", len(self._graph.kinds), fixed=size)

    def buckets(self, strategy: Strategy) -> StageTerm:
        """Return the buffers in which gradients are reduced and weights gathered."""
        b = self.behaviour
        *layers, first, last = (elements.total for elements in self.elements(strategy))
        whole = sum(layers[kind] for kind in self._graph.layers) / strategy.pp + first + last
        size = b.element * b.buckets * lowest(float(b.bucket_elements), whole) * (strategy.zero > 0)
        return term("buckets", len(self._graph.kinds), fixed=size)

    def transfers(self, strategy: Strategy) -> StageTerm:
        """Return the buffers of a pipeline rank: an activation received and a gradient received."""
        kinds = len(self._graph.kinds)
        largest = highest_of(item.input for item in self.kept(strategy)[:kinds])
        size = 2 * largest * (strategy.pp > 1)
        return term("stage inputs", kinds, fixed=size)

    def temporaries(self, strategy: Strategy) -> StageTerm:
        """Return what the optimizer step allocates, over the shard it updates."""
        size = _sharded(strategy, 1, self.behaviour.step * (1.0 - strategy.offload_optimizer))
        return self._by_layer("optimizer temporaries", strategy, size)

    def context(self, strategy: Strategy) -> StageTerm:
        """Return the CUDA context and one communicator per group of more than one rank."""
        groups = sum(
            degree > 1
            for degree in (strategy.tp, strategy.pp, strategy.cp, strategy.ep, strategy.dp)
        )
        b = self.behaviour
        beyond = (strategy.ep > 1) & (strategy.ep * strategy.etp > self._per_node)
        size = b.context + b.communicator * groups + b.routed_communicator * beyond
        return term("context", len(self._graph.kinds), fixed=size * self._context_scale)

    def routed_reserve(self) -> StageTerm:
        """Return what the buffers of experts hold back whatever the batch."""
        size = self.behaviour.routed_fixed if self._routed else 0.0
        return term("routed", len(self._graph.kinds), fixed=size)

    def fragmentation(self, strategy: Strategy) -> float:
        """Return the share of a moment's own blocks that is lost to rounding and gaps."""
        b = self.behaviour
        share = b.fragmentation
        share += b.recomputed_fragmentation * (strategy.recompute == "full")
        share += b.sharded_fragmentation * (strategy.zero == 3)
        return share + b.routed_fragmentation * self._routed


def _versions(weights: StageTerm) -> StageTerm:
    """Return the versions beyond the newest: one for each further micro-batch in flight."""
    return replace(
        weights,
        name="weight versions",
        fixed=0.0,
        first=-weights.first,
        last=-weights.last,
        layer=tuple(-size for size in weights.layer),
        flight_first=weights.first,
        flight_last=weights.last,
        flight_layer=weights.layer,
    )


def _chosen(kept: Kept, strategy: Strategy) -> float:
    """Return what a layer keeps while it is not, or no longer, reduced to its input."""
    return pick(strategy.recompute == "selective", kept.selective, kept.whole)


def _sharded(
    strategy: Strategy, stage: int, trained: float, frozen: float = 0.0, quantised: float = 0.0
) -> Callable[[LocalElements], float]:
    """Return the bytes of a layer's elements; divided over the ranks if the ZeRO stage reaches ``stage``."""
    reached = strategy.zero >= stage
    ranks = pick(reached, strategy.sharding_ranks, 1)
    dense, expert = trained / ranks, trained / pick(reached, _expert_ranks(strategy), 1)
    still, small = frozen / ranks, quantised / ranks
    return lambda e: dense * e.dense + expert * e.expert + still * e.frozen + small * e.quantised


def _expert_ranks(strategy: Strategy) -> int:
    replicas = strategy.expert_dp
    group = strategy.zero_group
    return pick(group > 0, lowest(replicas, group), replicas)
