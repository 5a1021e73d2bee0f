"""The end of an iteration: gradient reduction, optimizer step, gathering of parameters, tied embeddings.

An overlapped collective is bound in one of two ways: by the share that is paid in any case, or by what does not fit
behind the pass it overlaps. Both are affine in a rank's content, and the rank pays the larger.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from costmodel.blocks import LayerPricer
from costmodel.cost import Finish
from costmodel.events import Collective, ComputeEvent
from costmodel.graph import Layer, ModelGraph
from costmodel.groups import Group
from costmodel.lanes import has_lanes, highest, holds, pick
from costmodel.linear import StageTerm, add, term
from costmodel.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """Parameters of one rank: dense and expert, per layer kind, with the embedding and with the head."""

    dense: tuple[float, ...]
    expert: tuple[float, ...]
    first: float
    last: float


def finishes(
    layers: Sequence[Layer],
    graph: ModelGraph,
    strategy: Strategy,
    pricer: LayerPricer,
    passes: Callable[[], tuple[StageTerm, StageTerm]],
) -> tuple[Finish, ...]:
    """Return the ways the end of the iteration can be bound on a rank.

    Args:
        layers: Kinds, then embedding and head, with padded vocabulary.
        graph: The model.
        strategy: The strategy.
        pricer: Prices of its collectives.
        passes: Makes the seconds of one micro-batch's forward and backward, behind which gathers and reductions
            may hide.
    """
    held = _held(layers, graph, strategy, pricer)
    reduction, gathering = _reduction(held, strategy, pricer), _gathering(held, strategy, pricer)
    fixed = [_optimizer(held, strategy, pricer)]
    if graph.tied and holds(strategy.pp > 1):
        fixed.append(_tied(held, pricer))
    framework, share = pricer.framework, pricer.constants["overlap.gradients"]
    hides = (reduction and framework.gradient_overlap, gathering and framework.gather_overlap)
    forward, backward = passes() if any(hides) else (None, None)
    choices = product(
        _bounds(reduction, share, backward if hides[0] else None),
        _bounds(gathering, share, forward if hides[1] else None),
    )
    return tuple(Finish(terms=(*reduced, *gathered, *fixed)) for reduced, gathered in choices)


def _bounds(
    terms: tuple[StageTerm, ...], share: float, window: StageTerm | None
) -> list[tuple[StageTerm, ...]]:
    if window is None:
        return [terms]
    hidden = _scaled(replace(window, name="overlap"), -1.0)
    return [tuple(_scaled(item, share) for item in terms), (*terms, hidden)]


def _scaled(item: StageTerm, factor: float) -> StageTerm:
    return replace(
        item,
        fixed=item.fixed * factor,
        first=item.first * factor,
        last=item.last * factor,
        layer=tuple(value * factor for value in item.layer),
        recomputed=tuple(value * factor for value in item.recomputed),
    )


def _held(
    layers: Sequence[Layer], graph: ModelGraph, strategy: Strategy, pricer: LayerPricer
) -> _Held:
    *kinds, embedding, head = layers
    split = [pricer.held(layer) for layer in kinds]
    last = pricer.held(head).dense
    if graph.tied:  # without pipeline the table is on the rank once
        logits = (op for op in head.operators if op.name == "head.logits")
        tied = pricer.held(Layer(name="tied", operators=tuple(logits))).dense
        last = last - pick(strategy.pp == 1, tied, 0.0)
    return _Held(
        dense=tuple(layer.dense for layer in split),
        expert=tuple(layer.expert for layer in split),
        first=pricer.held(embedding).dense,
        last=last,
    )


def _per_parameter(
    pricer: LayerPricer, name: Collective, group: Group, width: float
) -> tuple[float, float]:
    """Return latency, and seconds per parameter, of a bucketed collective."""
    if not holds(group.size > 1):
        return 0.0, 0.0
    latency = pricer.collective(name, 1, group)
    framework = pricer.framework
    bucket = highest(framework.bucket_bytes, framework.bucket_rank_bytes * group.size)
    return latency, pricer.collective(name, bucket, group) / bucket * width


def _linear(name: str, held: _Held, latency: float, dense: float, expert: float) -> StageTerm:
    return term(
        name,
        len(held.dense),
        fixed=latency,
        first=held.first * dense,
        last=held.last * dense,
        layer=tuple(
            one * dense + other * expert for one, other in zip(held.dense, held.expert, strict=True)
        ),
    )


def _reduction(held: _Held, strategy: Strategy, pricer: LayerPricer) -> tuple[StageTerm, ...]:
    zero = strategy.zero
    names: tuple[tuple[Collective, bool], ...] = (
        ("all_reduce", zero == 0),
        ("reduce_scatter", zero == 1),
    )
    return _collective("dp_comm", names, pricer.gradient_bytes, held, pricer)


def _gathering(held: _Held, strategy: Strategy, pricer: LayerPricer) -> tuple[StageTerm, ...]:
    zero = strategy.zero
    gathers = ((zero == 1) | (zero == 2)) & (not pricer.framework.fsdp)
    return _collective("gather", (("all_gather", gathers),), pricer.weight_bytes, held, pricer)


def _collective(
    label: str,
    names: tuple[tuple[Collective, bool], ...],
    width: float,
    held: _Held,
    pricer: LayerPricer,
) -> tuple[StageTerm, ...]:
    """Return the term of the collective whose condition holds (of each lane); nothing where none does."""
    dp, experts = pricer.groups.dp, pricer.groups.expert_dp
    needed = [(name, applies & (dp.size > 1)) for name, applies in names]
    terms = []
    for name, applies in needed:
        if not holds(applies):
            continue
        latency, dense = _per_parameter(pricer, name, dp, width)
        expert_latency, expert = _per_parameter(pricer, name, experts, width)
        latency = latency + (expert_latency if _any(held.expert) else 0.0)
        terms.append(_linear(label, held, latency * applies, dense * applies, expert * applies))
    return (add(label, terms),) if terms else ()


def _any(values: Sequence[float]) -> bool:
    return any(has_lanes(value) or value for value in values)


def _optimizer(held: _Held, strategy: Strategy, pricer: LayerPricer) -> StageTerm:
    """Return the optimizer step: a stream over the local share of gradients and states."""
    size = 1 << 30
    event = ComputeEvent(op="optimizer", shape=(size,), dtype="fp32")
    unit = pricer.compute(event) / size * pricer.framework.optimizer_bytes
    shards = pick(strategy.zero > 0, strategy.sharding_ranks, 1)
    expert_shards = pick(strategy.zero > 0, strategy.expert_dp, 1)
    return _linear("optimizer", held, 0.0, unit / shards, unit / expert_shards)


def _tied(held: _Held, pricer: LayerPricer) -> StageTerm:
    """Return the all-reduce of the tied table's gradient between first and last stage."""
    group = pricer.groups.ends
    seconds = pricer.collective("all_reduce", held.first * pricer.gradient_bytes, group)
    return term("tied_embedding", len(held.dense), first=seconds, last=seconds)
