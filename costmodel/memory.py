"""Memory of a pipeline rank: named terms at the moments that can be its peak.

Three moments are compared (the largest is the peak): the **loss**, with all kept activations and the logits; the
**backward** pass of one layer, which holds that layer's recomputed activations and flowing gradients; the optimizer
**step**, which has gradients and temporaries but no activations. Every term is affine in the rank's content, so that
CP-SAT, simulation and report share it; micro-batches in flight are the schedule's and enter through the content.

Bytes per parameter are ZeRO's (Rajbhandari et al. 2020, arXiv 1910.02054, section 3): weights, gradients and optimizer
state are divided by the sharding ranks from stage 3, 2 and 1 on; experts only by the replicas of an expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from costmodel.cost import MemoryMoment
from costmodel.graph import ModelGraph
from costmodel.lanes import Memo
from costmodel.linear import ChunkContent, StageTerm, add, term, weighted
from costmodel.memory_terms import MemoryTerms
from costmodel.spec import ClusterSpec, TrainingSpec
from costmodel.strategy import Strategy
from costmodel.term_table import Contents, term_values

MEMORY_FIELDS: tuple[str, ...] = (
    "dp",
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "micro_batch",
    "microbatches",
    "zero",
    "zero_group",
    "sequence_parallel",
    "recompute",
    "offload_optimizer",
    "offload_activations",
)
"""Fields of a Strategy that memory depends on; of ``microbatches`` only whether it is one."""

_GEOMETRY = ("tp", "cp", "etp", "micro_batch", "sequence_parallel", "recompute")

DEVICE_TERMS = frozenset({"context"})
BEYOND_ALLOCATED = DEVICE_TERMS | {"fragmentation", "cached"}
"""``fragmentation`` is lost to rounding and gaps, ``cached`` is what other moments leave that this one cannot reuse."""


class StageMemory(NamedTuple):
    """Peak of one pipeline rank.

    Attributes:
        reserved_bytes: Everything on the device, which must stay under the limit.
        allocated_bytes: What the framework's allocated counter shows at that peak.
        moment: Name of the moment.
        terms: Bytes by term at that moment.
    """

    reserved_bytes: float
    allocated_bytes: float
    moment: str
    terms: dict[str, float]

    @property
    def framework_reserved_bytes(self) -> float:
        """What the framework's reserved counter shows: without context and communicators."""
        return self.reserved_bytes - sum(self.terms.get(name, 0.0) for name in DEVICE_TERMS)


def stage_memory(moments: Sequence[MemoryMoment], chunks: Sequence[ChunkContent]) -> StageMemory:
    """Return the peak over ``moments`` of a rank that holds ``chunks``.

    The moment is the one that reserves most; what it allocates may be less than the largest allocation.
    """
    return _peak([_at(item, [term.value(chunks) for term in item.terms]) for item in moments])


def stage_memories(moments: Sequence[MemoryMoment], contents: Contents) -> list[StageMemory]:
    """Return ``stage_memory`` of all ranks at once."""
    tables = [term_values(moment.terms, contents).T.tolist() for moment in moments]
    return [
        _peak([_at(moment, row) for moment, row in zip(moments, rows, strict=True)])
        for rows in zip(*tables, strict=True)
    ]


def _peak(found: Sequence[StageMemory]) -> StageMemory:
    peak = max(found, key=lambda memory: memory.reserved_bytes)
    return peak._replace(allocated_bytes=max(memory.allocated_bytes for memory in found))


def _at(moment: MemoryMoment, values: Sequence[float]) -> StageMemory:
    terms = {item.name: value for item, value in zip(moment.terms, values, strict=True)}
    beyond = sum(terms[name] for name in moment.beyond_allocated if name in terms)
    total = sum(terms.values())
    return StageMemory(total, total - beyond, moment.name, terms)


def memory_moments(
    graph: ModelGraph, cluster: ClusterSpec, training: TrainingSpec, strategy: Strategy
) -> tuple[MemoryMoment, ...]:
    """Return the moments of a rank under ``strategy``; for many strategies hold one MemoryModel.

    Raises:
        InputError: If the framework or one of its options is unknown.
    """
    return MemoryModel(graph, cluster, training).moments(strategy)


class MemoryModel:
    """Memory of one model, cluster and training for any strategy; each distinct combination is made once."""

    def __init__(self, graph: ModelGraph, cluster: ClusterSpec, training: TrainingSpec) -> None:
        self._terms = MemoryTerms(graph, cluster, training)
        self._nothing = term("", len(graph.kinds))
        self._moments: Memo[tuple[MemoryMoment, ...]] = Memo()
        self._peak_terms: Memo[tuple[list[StageTerm], list[StageTerm]]] = Memo()

    def moments(self, strategy: Strategy) -> tuple[MemoryMoment, ...]:
        """Return loss, backward and step of a rank under ``strategy``."""
        key = tuple(getattr(strategy, name) for name in MEMORY_FIELDS if name != "microbatches")
        key = (*key, strategy.microbatches > 1)
        return self._moments.recall(strategy, key, lambda: self._build(strategy))

    def _build(self, strategy: Strategy) -> tuple[MemoryMoment, ...]:
        terms, behaviour = self._terms, self._terms.behaviour
        standing, early, late = self._phases(strategy)
        loss, backward = self._peaks(strategy)
        backward = [*backward, *_present([terms.gathered_layers(strategy)])]
        loss_of_static = [(behaviour.static_fragmentation, item) for item in standing]
        still = weighted("", [*loss_of_static, (1.0, terms.routed_reserve())])
        before = add("", early)
        after = add("", late) if late else self._nothing
        kept = weighted("cached", [(behaviour.unshared, after)])
        freed = weighted("cached", [(behaviour.unshared, before)])
        share, context = terms.fragmentation(strategy), terms.context(strategy)

        def moment(
            name: str, items: list[StageTerm], loose: list[StageTerm], cached: StageTerm
        ) -> MemoryMoment:
            lost = weighted("fragmentation", [(1.0, still), *((share, item) for item in loose)])
            values = (*standing, *items, *_present([lost, cached]), context)
            return MemoryMoment(name=name, terms=values, beyond_allocated=BEYOND_ALLOCATED)

        return (
            moment("loss", [*early, *loss], [before, *loss], kept),
            moment("backward", [*early, *backward], [before, *backward], kept),
            moment("step", late, [after], freed),
        )

    def _peaks(self, strategy: Strategy) -> tuple[list[StageTerm], list[StageTerm]]:
        """Return what only the loss and only a layer's backward pass hold, whatever the sharding."""
        key = tuple(getattr(strategy, name) for name in _GEOMETRY)
        return self._peak_terms.recall(strategy, key, lambda: self._made_peaks(strategy))

    def _made_peaks(self, strategy: Strategy) -> tuple[list[StageTerm], list[StageTerm]]:
        terms = self._terms
        loss = [terms.logits(strategy), terms.sequence_copies(strategy, "last")]
        backward = [*terms.working(strategy), terms.sequence_copies(strategy, "fixed")]
        return _present(loss), _present(backward)

    def _phases(
        self, strategy: Strategy
    ) -> tuple[list[StageTerm], list[StageTerm], list[StageTerm]]:
        """Return what always stands, what forward and backward pass add, and what the step adds."""
        states = self._terms.states(strategy)
        gradients = states.pop("gradients")
        standing = [*states.values(), self._terms.placeholders(strategy)]
        early = [
            self._terms.activations(strategy),
            self._terms.transfers(strategy),
            self._terms.gathered_ends(strategy),
        ]
        late = [self._terms.buckets(strategy), self._terms.temporaries(strategy)]
        stay = (strategy.microbatches > 1) | self._terms.behaviour.gradient_buffers
        standing.append(weighted("gradients", [(stay, gradients)]))
        late.append(weighted("gradients", [(1 - stay, gradients)]))
        return _present(standing), _present(early), _present(late)


def _present(items: Sequence[StageTerm]) -> list[StageTerm]:
    """Return the terms that are not zero everywhere."""
    return [item for item in items if not item.empty]
