"""Seconds of one layer, of the embedding and of the head, forward and backward, by term.

Everything that overlaps does so within a layer: its exposed part is a constant per layer, so the seconds of a stage
stay affine in its content and bounds on them stay valid.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from costmodel.constants import Constants
from costmodel.events import Collective, CommEvent, ComputeEvent
from costmodel.frameworks import Framework, element_bytes
from costmodel.graph import Layer, Operator
from costmodel.groups import Group, Groups
from costmodel.lanes import (
    choose,
    highest,
    holds,
    log2,
    lowest,
    pick,
    power,
    rounded,
    smooth_highest,
)
from costmodel.local_parameters import LocalElements, adapted, layer_elements
from costmodel.memory_behaviour import memory_behaviour
from costmodel.prices import EventPrices
from costmodel.spec import TrainingSpec
from costmodel.split import (
    Local,
    Part,
    Work,
    attention_of,
    expert_tokens,
    operator_work,
)
from costmodel.strategy import Strategy

COMPUTE_TERMS = ("matmul", "attention", "elementwise")
Seconds = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSeconds:
    """Priced layer, before what overlaps is settled.

    Attributes:
        forward, backward, weight: Compute by term; ``backward`` is the gradient of the input.
        forward_comm, backward_comm: Exposed communication by term ("tp_comm", "cp_comm", "ep_comm").
        gather, reduce: FSDP seconds of one gather of the layer and of its gradient reduction.
        near: Seconds that one such collective's bytes take through a GPU's own links, during which it disturbs compute.
        steps: Tree steps of its tensor-parallel collectives in one pass, each of which waits for the later rank.
        selective: Recomputation of a layer that does not recompute fully, by term.
    """

    forward: Seconds
    backward: Seconds
    weight: Seconds
    forward_comm: Seconds
    backward_comm: Seconds
    gather: float
    reduce: float
    near: float
    steps: float
    selective: Seconds = field(default_factory=dict)


class LayerPricer:
    """Prices layers under one strategy."""

    def __init__(
        self,
        training: TrainingSpec,
        strategy: Strategy,
        groups: Groups,
        framework: Framework,
        prices: EventPrices,
        constants: Constants,
    ) -> None:
        self.groups, self.framework, self.constants = groups, framework, constants
        self.weight_bytes = element_bytes(training)
        self.gradient_bytes = framework.gradient_bytes or self.weight_bytes
        self._strategy, self._prices = strategy, prices
        self._adapter_rank = memory_behaviour(training).adapter_rank

    def compute(self, event: ComputeEvent) -> float:
        """Return the seconds of one compute event."""
        return self._prices.compute([event])[0]

    def price(self, layer: Layer, local: Local) -> LayerSeconds:
        """Return the seconds of ``layer`` on one rank and micro-batch."""
        works = [operator_work(operator, local, self.framework) for operator in layer.operators]
        whole = Work()
        for work in works:
            whole.extend(work)
        forward, backward, weight = (
            self._sum(events)
            for events in (whole.forward, whole.backward, self._weight_gradients(layer, works))
        )
        comm = [
            self._layer_comm(layer, local, forward, beside, passes)
            for passes, beside in ((1, forward), (2, weight))
        ]
        gather, reduce, near = self._sharded(layer)
        return LayerSeconds(
            forward=forward,
            backward=backward,
            weight=weight,
            forward_comm=comm[0],
            backward_comm=comm[1],
            gather=gather,
            reduce=reduce,
            near=near,
            steps=len(self._rows(layer)) * log2(local.tp),
            selective=self._selective(layer, works, forward, comm[0]),
        )

    def _weight_gradients(
        self, layer: Layer, works: Sequence[Work]
    ) -> list[tuple[Part, ComputeEvent]]:
        """Return the weight gradients of what trains; those of low-rank adapters are too small to count."""
        if self._adapter_rank:
            return []
        pairs = zip(layer.operators, works, strict=True)
        return [event for operator, work in pairs if operator.trainable for event in work.weight]

    def _sum(self, events: Sequence[tuple[Part, ComputeEvent]]) -> Seconds:
        seconds: Seconds = dict.fromkeys(COMPUTE_TERMS, 0.0)
        prices = self._prices.compute([event for _, event in events])
        for (part, _), price in zip(events, prices, strict=True):
            seconds[part] = seconds[part] + price
        return seconds

    def held(self, layer: Layer) -> LocalElements:
        """Return the parameters of ``layer`` on one rank before sharding over data-parallel ranks."""
        tp, ep, etp = self._strategy.tp, self._strategy.ep, self._strategy.etp
        whole = layer_elements(
            layer, tp=tp, ep=ep, etp=etp, vocab_multiple=self.framework.vocab_multiple
        )
        if not self._adapter_rank:
            return whole
        return adapted(layer, whole, self._adapter_rank, tp=tp, ep=ep, quantised=False)

    def collective(self, name: Collective, size: float, group: Group) -> float:
        """Return the seconds of a collective of ``size`` bytes over ``group``."""
        return self._prices.comm(
            CommEvent(
                collective=name,
                bytes=rounded(size),
                group_size=group.size,
                per_node=group.per_node,
                level=group.level,
            )
        )

    def all_reduce_pair(self, size: float, group: Group) -> float:
        """Return an all-reduce, or the reduce-scatter and all-gather that replace it."""
        return choose(
            self._strategy.sequence_parallel,
            lambda: (
                self.collective("reduce_scatter", size, group)
                + self.collective("all_gather", size, group)
            ),
            lambda: self.collective("all_reduce", size, group),
        )

    def _layer_comm(
        self, layer: Layer, local: Local, forward: Seconds, beside: Seconds, passes: int
    ) -> Seconds:
        return {
            "tp_comm": self._tensor(layer, local, beside["matmul"], passes),
            "cp_comm": self._context(layer, local, forward, passes),
            "ep_comm": self._expert(layer, local),
            **self._batch_norms(layer, passes),
        }

    def _batch_norms(self, layer: Layer, passes: int) -> Seconds:
        """Return the statistics that replicas exchange in every micro-batch.

        torch.nn.SyncBatchNorm gathers mean, deviation and count of all ranks forward (2 C + 1 words each) and
        reduces two sums of C words backward; nothing can run beside them.
        """
        group = self.groups.dp
        if not self.framework.sync_batch_norm or group.size < 2 or not layer.batch_norms:
            return {}
        word, total = 4, 0.0
        for channels in layer.batch_norms:
            if passes == 1:
                size = word * (2 * channels + 1) * group.size
                total = total + self.collective("all_gather", size, group)
            else:
                total = total + self.collective("all_reduce", word * 2 * channels, group)
        return {"dp_comm": total}

    @staticmethod
    def _rows(layer: Layer) -> list[Operator]:
        return [op for op in layer.operators if op.split == "row" and not op.experts]

    def _tensor(self, layer: Layer, local: Local, beside: float, passes: int) -> float:
        """Return the exposed collectives of tensor parallelism, experts apart.

        Args:
            layer: The layer.
            local: Its local sizes.
            beside: Seconds of the matmuls behind which collectives may hide.
            passes: 2 in the backward, 1 in the forward.

        A row-parallel matmul ends in an all-reduce, as does the backward of a column-parallel one (Shoeybi et al.
        2019); sequence parallelism replaces each by a gather and a scatter and gathers once more in the backward
        (Korthikanti et al. 2022). In the backward all but one gather can hide behind weight gradients.
        """
        rows = self._rows(layer)
        if not rows or not holds(local.tp > 1):
            return 0.0
        size = local.tokens * rows[0].outputs * self.weight_bytes
        whole, open_part = len(rows) * self.all_reduce_pair(size, self.groups.tp), 0.0
        if passes == 2:
            open_part = choose(
                self._strategy.sequence_parallel,
                lambda: len(rows) * self.collective("all_gather", size, self.groups.tp),
                lambda: 0.0,
            )
            whole = whole + open_part
        if self.framework.tp_overlap:
            return self._hidden(whole, beside)
        if passes == 2 and self.framework.tp_backward_overlap:
            return open_part + self._hidden(whole - open_part, beside)
        return whole

    def _hidden(self, comm: float, beside: float) -> float:
        """Return what stays exposed of communication behind matmuls: a share, or what does not fit."""
        return highest(comm * self.constants["overlap.tp"], comm - beside)

    def _context(self, layer: Layer, local: Local, forward: Seconds, passes: int) -> float:
        """Return the exposed exchange of keys and values; ``passes`` is 1 forward, 2 backward.

        A ring hides behind attention (ring attention, arXiv 2310.01889); an exchange of heads
        (DeepSpeed-Ulysses, arXiv 2309.14509) stands still.
        """
        cores = [op for op in layer.operators if op.kind == "attention"]
        if not cores or not holds(self._strategy.cp > 1):
            return 0.0
        total = 0.0
        for core in cores:
            total = total + self._exchange(core, local, forward["attention"], passes)
        return total

    def _exchange(self, core: Operator, local: Local, attention: float, passes: int) -> float:
        spec, cp = attention_of(core), self._strategy.cp
        heads = -(-spec.heads // local.tp)
        kv = highest(1, -(-spec.kv_heads // local.tp))
        head = (core.inputs + core.outputs) / (2 * spec.heads)
        group = self.groups.cp
        if self.framework.context_exchange == "all_to_all":
            size = local.tokens * head * self.weight_bytes
            parts = (heads, kv, kv, heads)
            return sum(self.collective("all_to_all", size * part, group) for part in parts)
        size = 2 * local.tokens * kv * head * self.weight_bytes
        hop = self._prices.comm(
            CommEvent(
                collective="send_recv",
                bytes=rounded(size),
                group_size=2,
                per_node=1,
                level=group.level,
            )
        )
        ring = passes * (cp - 1) * hop
        share = self.constants["overlap.cp"]
        return highest(share * ring, ring - passes * attention)

    def _expert(self, layer: Layer, local: Local) -> float:
        """Return dispatch and combination of routed tokens (two all-to-alls)."""
        routed = [op for op in layer.operators if op.kind == "dispatch"]
        total = 0.0
        for operator in routed:
            size = expert_tokens(operator, local) * operator.inputs * self.weight_bytes
            if holds(self._strategy.ep > 1):
                sent = size / local.etp * self._crossing(operator)
                total = total + 2 * self.collective("all_to_all", sent, self.groups.ep)
            total = total + self._expert_reduction(size, local)
        return total

    def _expert_reduction(self, size: float, local: Local) -> float:
        return choose(
            local.etp > 1, lambda: self.all_reduce_pair(size, self.groups.tp), lambda: 0.0
        )

    def _crossing(self, operator: Operator) -> float:
        """Return the share of routed copies that are sent when a token goes to each node only once.

        Of n nodes, k random experts meet n (1 - (1 - 1/n)^k).
        """
        group = self.groups.ep
        nodes = group.size / group.per_node
        if not self.framework.node_dispatch:
            return 1.0
        met = nodes * (1.0 - power(1.0 - 1.0 / nodes, operator.topk)) / operator.topk
        return pick(nodes <= 1, 1.0, met)

    def _sharded(self, layer: Layer) -> tuple[float, float, float]:
        """Return one gather of the layer's parameters, one reduction of its gradients, and the near share."""
        zero, framework = self._strategy.zero, self.framework
        if not holds(zero >= 2):
            return 0.0, 0.0, 0.0
        width = self.weight_bytes
        held = self.held(layer)
        gathered = held.total * (framework.gather_bytes or width)
        reduced = (held.dense + held.expert) * (framework.reduce_bytes or width)
        shard, replicate = self.groups.shard, self.groups.replicate
        gather = choose(
            (zero == 3) | framework.fsdp,
            lambda: self.collective("all_gather", gathered, shard),
            lambda: 0.0,
        )
        reduce = self.collective("reduce_scatter", reduced, shard)
        reduce = reduce + self.collective("all_reduce", reduced / shard.size, replicate)
        scale = pick(zero == 3, self.constants[framework.zero3], 1.0) if framework.zero3 else 1.0
        near = self.collective("all_gather", gathered, replace(shard, level=0))
        shards = zero >= 2
        return gather * scale * shards, reduce * scale * shards, near * shards

    def _selective(
        self, layer: Layer, works: Sequence[Work], forward: Seconds, comm: Seconds
    ) -> Seconds:
        """Return what a layer repeats under selective recomputation.

        "core" repeats the attention core (Korthikanti et al. 2022), "operators" everything but every second
        matmul and the attention (torchtitan), "alternate" every second layer, "norms" norms and activations.
        """
        selective = self._strategy.recompute == "selective"
        if not holds(selective):
            return {}
        repeated = self._repeated(layer, works, forward, comm)
        return {name: value * selective for name, value in repeated.items()}

    def _repeated(
        self, layer: Layer, works: Sequence[Work], forward: Seconds, comm: Seconds
    ) -> Seconds:
        if self.framework.selective == "core":
            return {"attention": forward["attention"]}
        if self.framework.selective == "alternate":
            return {name: value / 2 for name, value in (forward | comm).items()}
        light = 0.0
        for operator, work in zip(layer.operators, works, strict=True):
            if operator.kind in ("norm", "activation"):
                light = light + self._sum(work.forward)["elementwise"]
        if self.framework.selective == "norms":
            return {"elementwise": light}
        return {"elementwise": forward["elementwise"], "matmul": forward["matmul"] / 2}


def overlapped(busy: float, comm: float, near: float, interference: float) -> float:
    """Return the seconds of compute ``busy`` beside communication ``comm``.

    While data moves through the GPU (``near`` seconds of it; waiting for a slow network disturbs nobody), compute
    is slowed by ``interference`` per second (Echo, arXiv 2412.12487, measures it for DDP); the longer of the two,
    with a round corner, is the total.
    """
    shared = lowest(busy, lowest(comm, near))
    return smooth_highest(busy + interference * shared, comm)
