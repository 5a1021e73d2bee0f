"""Which strategies are legal: one function per rule, its inequality in the docstring, one list of all.

Every rule works on columns (equal-length integer arrays, one entry per strategy), so the same code filters a
hundred thousand candidates, counts what each rule rejects and judges a single strategy. Rule numbers refer to
Megatron-LM's argument checks as listed in DESIGN.md, "Legality".
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.strategy import RECOMPUTES, SCHEDULES, Strategy
from planner.columns import Columns, IntColumn
from planner.legality import LEGALITY, Legality
from planner.scenario import Scenario

Mask = NDArray[np.bool_]

_INTERLEAVED = SCHEDULES.index("interleaved")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rules need to know of a scenario.

    Attributes:
        layers: Number of layers that are placed.
        heads, kv_heads: Distinct head counts of the model's attentions.
        experts: Routed experts of a layer, 0 for dense models.
        sequence, global_batch: Tokens of a sequence, sequences of an iteration.
        gpu_counts: Numbers of GPUs a strategy may use.
        legality: What the framework can run; ``framework`` its name.
        group_gpus: GPUs of each device group of a mixed cluster; empty where there is one.
    """

    layers: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    experts: int
    sequence: int
    global_batch: int
    gpu_counts: tuple[int, ...]
    gpus_per_node: int
    framework: str
    legality: Legality
    uneven_stages: bool
    group_gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A named rule.

    Attributes:
        name: As it appears in rejections, for example ``heads_mod_tp``.
        holds: Mask of the strategies that keep it.
        remedy: What would lift a rejection, in words with the nearest legal values.
    """

    name: str
    holds: Callable[[Columns, Facts], Mask]
    remedy: Callable[[Strategy, Facts], str]

    @property
    def text(self) -> str:
        """The rule in words: the first line of its docstring."""
        return (self.holds.__doc__ or self.name).splitlines()[0]


def facts_of(scenario: Scenario) -> Facts:
    """Return what the rules need to know of ``scenario``."""
    model, groups = scenario.graph.model, scenario.cluster.groups
    attentions = [
        attention
        for kind in model.kinds
        for attention in (kind.attention, kind.cross_attention)
        if attention is not None
    ]
    experts = [kind.mlp.experts for kind in model.kinds if kind.mlp is not None]
    return Facts(
        layers=len(scenario.graph.layers),
        heads=tuple(sorted({item.heads for item in attentions})),
        kv_heads=tuple(
            sorted({item.heads if item.latent else item.kv_heads for item in attentions})
        ),
        experts=max(experts, default=0),
        sequence=scenario.training.sequence,
        global_batch=scenario.training.global_batch,
        gpu_counts=scenario.gpu_counts,
        gpus_per_node=scenario.cluster.gpus_per_node,
        framework=scenario.training.framework,
        legality=LEGALITY[scenario.training.framework],
        uneven_stages=scenario.uneven_stages,
        group_gpus=tuple(group.gpus for group in groups) if len(groups) > 1 else (),
    )


def world_product(columns: Columns, facts: Facts) -> Mask:
    """Data x tensor x pipeline x context ranks must be the number of GPUs: dp tp pp cp in gpus (rule 1)."""
    return np.isin(_world(columns), facts.gpu_counts)


def batch_product(columns: Columns, facts: Facts) -> Mask:
    """Micro-batch x micro-batches x replicas must be the global batch: b m dp = B (rule 2)."""
    return _mask(columns.micro_batch * columns.microbatches * columns.dp == facts.global_batch)


def heads_mod_tp(columns: Columns, facts: Facts) -> Mask:
    """Attention heads must be divisible by tp: heads mod tp = 0 (rule 5)."""
    return _all(columns.tp, (heads % columns.tp == 0 for heads in facts.heads))


def kv_heads_mod_tp(columns: Columns, facts: Facts) -> Mask:
    """Key/value heads must be divisible by tp, or divide it where the framework replicates them (rule 5)."""
    tp = columns.tp
    if facts.legality.replicates_kv_heads:
        return _all(tp, ((kv % tp == 0) | (tp % kv == 0) for kv in facts.kv_heads))
    return _all(tp, (kv % tp == 0 for kv in facts.kv_heads))


def seq_mod_cp(columns: Columns, facts: Facts) -> Mask:
    """The sequence must split into two halves per context rank: s mod 2 cp = 0 if cp > 1 (rule 6)."""
    return _mask(np.logical_or(columns.cp == 1, facts.sequence % (2 * columns.cp) == 0))


def seq_mod_tp(columns: Columns, facts: Facts) -> Mask:
    """With sequence parallelism a context rank's tokens must be divisible by tp: (s/cp) mod tp = 0 (rule 6)."""
    tokens = facts.sequence // columns.cp
    return _mask(np.logical_or(columns.sequence_parallel == 0, tokens % columns.tp == 0))


def sequence_parallel_tp(columns: Columns, facts: Facts) -> Mask:
    """Sequence parallelism splits over tensor ranks, so it needs some: tp > 1."""
    del facts
    return _mask(np.logical_or(columns.sequence_parallel == 0, columns.tp > 1))


def experts_mod_ep(columns: Columns, facts: Facts) -> Mask:
    """Experts must be divisible by ep: experts mod ep = 0; dense models have ep = etp = 1 (rule 7)."""
    if not facts.experts:
        return _mask((columns.ep == 1) & (columns.etp == 1))
    return _mask(facts.experts % columns.ep == 0)


def expert_world(columns: Columns, facts: Facts) -> Mask:
    """Expert ranks must tile a stage's ranks: (dp cp tp) mod (ep etp) = 0 (rule 1)."""
    del facts
    stage = columns.dp * columns.cp * columns.tp
    return _mask(stage % (columns.ep * columns.etp) == 0)


def moe_sequence_parallel(columns: Columns, facts: Facts) -> Mask:
    """Experts with tensor parallelism need sequence parallelism in Megatron: tp = 1 or sp."""
    if not (facts.experts and facts.legality.moe_needs_sequence_parallel):
        return np.ones_like(columns.tp, dtype=np.bool_)
    return _mask(np.logical_or(columns.tp == 1, columns.sequence_parallel == 1))


def zero_pp(columns: Columns, facts: Facts) -> Mask:
    """The framework must combine the ZeRO stage with a pipeline: zero in allowed(pp > 1)."""
    with_pipeline = np.isin(columns.zero, facts.legality.zero_pipeline)
    return _mask(np.isin(columns.zero, facts.legality.zero) & ((columns.pp == 1) | with_pipeline))


def zero_replicas(columns: Columns, facts: Facts) -> Mask:
    """Sharding needs ranks to shard over: zero = 0 or dp cp > 1."""
    del facts
    return _mask(np.logical_or(columns.zero == 0, columns.dp * columns.cp > 1))


def zero_group_divides(columns: Columns, facts: Facts) -> Mask:
    """A sharding group must divide the replicas: (dp cp) mod zero_group = 0, and sharding must be on."""
    del facts
    group = np.maximum(columns.zero_group, 1)
    divides = (columns.dp * columns.cp) % group == 0
    return _mask((columns.zero_group == 0) | ((columns.zero > 0) & divides & (group > 1)))


def context_sharding(columns: Columns, facts: Facts) -> Mask:
    """Context ranks that always shard the parameters need sharding: zero >= 2 where cp > 1."""
    if not facts.legality.context_shards:
        return np.ones_like(columns.cp, dtype=np.bool_)
    return _mask((columns.cp == 1) | (columns.zero >= 2))


def framework_degrees(columns: Columns, facts: Facts) -> Mask:
    """Degrees above one must exist in the framework."""
    legal = np.ones_like(columns.tp, dtype=np.bool_)
    for degree, allowed in (
        (columns.tp, facts.legality.tensor),
        (columns.pp, facts.legality.pipeline),
        (columns.cp, facts.legality.context),
        (columns.ep, facts.legality.expert),
        (columns.etp, facts.legality.tensor),
    ):
        legal &= allowed | (degree == 1)
    return legal


def offload_recompute(columns: Columns, facts: Facts) -> Mask:
    """Megatron offloads activations of layers that recompute nothing, without a pipeline (rule 9)."""
    if not facts.legality.offload_excludes_recompute:
        return np.ones_like(columns.pp, dtype=np.bool_)
    plain = (columns.recompute == RECOMPUTES.index("none")) & (columns.pp == 1)
    return _mask((columns.offload_activations == 0) | plain)


def schedule_framework(columns: Columns, facts: Facts) -> Mask:
    """The schedule must exist in the framework; without a pipeline there is nothing to schedule (1f1b)."""
    codes = [SCHEDULES.index(name) for name in facts.legality.schedules]
    plain = columns.schedule == SCHEDULES.index("1f1b")
    return _mask(np.where(columns.pp > 1, np.isin(columns.schedule, codes), plain))


def vpp_schedule(columns: Columns, facts: Facts) -> Mask:
    """Several chunks per rank need the interleaved schedule and a pipeline: vpp > 1 iff interleaved (rule 4)."""
    del facts
    interleaved = columns.schedule == _INTERLEAVED
    return _mask((interleaved == (columns.vpp > 1)) & ((columns.vpp == 1) | (columns.pp > 1)))


def vpp_microbatches(columns: Columns, facts: Facts) -> Mask:
    """Interleaving walks micro-batches in groups of pp: m mod pp = 0 and m >= pp (rule 4)."""
    del facts
    whole = (columns.microbatches % columns.pp == 0) & (columns.microbatches >= columns.pp)
    return _mask((columns.vpp == 1) | whole)


def microbatches_lt_pp(columns: Columns, facts: Facts) -> Mask:
    """The framework needs as many micro-batches as stages: m >= pp."""
    if not facts.legality.full_microbatches:
        return np.ones_like(columns.pp, dtype=np.bool_)
    return _mask(columns.microbatches >= columns.pp)


def layers_lt_stages(columns: Columns, facts: Facts) -> Mask:
    """Every virtual stage must hold a layer: pp vpp <= layers."""
    return _mask(columns.pp * columns.vpp <= facts.layers)


def layers_mod_pp(columns: Columns, facts: Facts) -> Mask:
    """Equal stages need layers mod (pp vpp) = 0; embedding and loss may count as layers (rule 3)."""
    if facts.uneven_stages and facts.legality.uneven_stages:
        return np.ones_like(columns.pp, dtype=np.bool_)
    return divides_evenly(facts.layers, columns.pp * columns.vpp)


def group_capacity(columns: Columns, facts: Facts) -> Mask:
    """Every pipeline rank must stand on one device group: pp <= sum of gpus_g // (tp cp dp), pp outermost."""
    if not facts.group_gpus:
        return np.ones_like(columns.pp, dtype=np.bool_)
    each = columns.tp * columns.cp * columns.dp
    room = sum((gpus // each for gpus in facts.group_gpus), np.zeros_like(each))
    outside = np.array([order.endswith("pp") for order in columns.orders])
    return _mask((columns.pp == 1) | ((columns.pp <= room) & outside[columns.placement_order]))


def divides_evenly(layers: int, stages: IntColumn | int) -> Mask:
    """Return where layers, or layers with embedding and/or loss counted, divide by ``stages``."""
    return _mask(
        (layers % stages == 0) | ((layers + 1) % stages == 0) | ((layers + 2) % stages == 0)
    )


def _mask(values: object) -> Mask:
    return np.asarray(values, dtype=np.bool_)


def _world(columns: Columns) -> IntColumn:
    return columns.dp * columns.tp * columns.pp * columns.cp


def _all(like: IntColumn, masks: Iterable[Mask]) -> Mask:
    result = np.ones_like(like, dtype=np.bool_)
    for mask in masks:
        result &= mask
    return result


def _divisors(*numbers: int) -> str:
    common = [n for n in range(1, min(numbers) + 1) if all(number % n == 0 for number in numbers)]
    return ", ".join(str(n) for n in common)


def _near(values: str, name: str) -> str:
    return f"{name} {values}"


def _remedies() -> Mapping[str, Callable[[Strategy, Facts], str]]:
    return {
        "world_product": lambda s, f: (
            f"dp = {f.gpu_counts[-1]} / (tp pp cp) = "
            f"{f.gpu_counts[-1] / (s.tp * s.pp * s.cp):g}, or a number of GPUs that is a multiple of "
            f"{s.tp * s.pp * s.cp}"
        ),
        "batch_product": lambda s, f: (
            f"microbatches = {f.global_batch / (s.micro_batch * s.dp):g} for global_batch "
            f"{f.global_batch}, or global_batch {s.global_batch}"
        ),
        "heads_mod_tp": lambda _, f: _near(_divisors(*f.heads), "tp in"),
        "kv_heads_mod_tp": lambda _, f: _near(_divisors(*f.kv_heads), "tp in"),
        "seq_mod_cp": lambda s, f: _nearest_multiple("sequence", f.sequence, 2 * s.cp),
        "seq_mod_tp": lambda s, f: _nearest_multiple("sequence", f.sequence, s.tp * s.cp),
        "sequence_parallel_tp": lambda *_: "sequence_parallel false, or tp 2",
        "experts_mod_ep": lambda _, f: _near(_divisors(f.experts) if f.experts else "1", "ep in"),
        "expert_world": lambda s, _: _near(_divisors(s.dp * s.cp * s.tp), "ep etp in"),
        "moe_sequence_parallel": lambda *_: "sequence_parallel true, or tp 1",
        "zero_pp": lambda s, f: (
            f"zero in {(f.legality.zero_pipeline if s.pp > 1 else f.legality.zero) or (0,)} "
            f"for {f.framework} with pp {s.pp}"
        ),
        "zero_replicas": lambda *_: "zero 0, or dp 2",
        "zero_group_divides": lambda s, _: _near(_divisors(s.dp * s.cp), "zero_group in"),
        "context_sharding": lambda *_: "zero 2 or 3, or cp 1",
        "framework_degrees": lambda _, f: f"a framework other than {f.framework}, or degrees of 1",
        "offload_recompute": lambda *_: "offload_activations 0, or recompute none and pp 1",
        "schedule_framework": lambda _, f: _near(", ".join(f.legality.schedules), "schedule in"),
        "vpp_schedule": lambda *_: (
            "schedule interleaved with vpp 2 or more and pp 2 or more, else vpp 1"
        ),
        "vpp_microbatches": lambda s, _: _nearest_multiple("microbatches", s.microbatches, s.pp),
        "microbatches_lt_pp": lambda s, _: f"microbatches {s.pp} or more, or pp {s.microbatches}",
        "layers_lt_stages": lambda _, f: f"pp vpp at most {f.layers}",
        "group_capacity": lambda s, f: (
            f"pp {sum(gpus // (s.tp * s.cp * s.dp) for gpus in f.group_gpus) or 1}, or tp cp dp in "
            f"{_divisors(*f.group_gpus)}, and placement_order tp-cp-ep-dp-pp"
        ),
        "layers_mod_pp": lambda s, f: (
            f"pp in {_even_stages(f.layers)}, or a placement such as {_balanced(f.layers, s.pp * s.vpp)}"
        ),
    }


def _nearest_multiple(name: str, value: int, step: int) -> str:
    below, above = value // step * step, -(-value // step) * step
    return f"{name} {above}" if below in (0, above) else f"{name} {below} or {above}"


def _even_stages(layers: int) -> str:
    return ", ".join(str(n) for n in range(2, min(layers, 64) + 1) if layers % n == 0)


def _balanced(layers: int, stages: int) -> str:
    low, more = divmod(layers, stages)
    front = more // 2
    counts = [low + (front <= i < front + more) for i in range(stages)]
    return "/".join(str(count) for count in counts[:16]) + ("/.." if stages > 16 else "")


_ORDER = (
    framework_degrees,
    world_product,
    batch_product,
    heads_mod_tp,
    kv_heads_mod_tp,
    seq_mod_cp,
    sequence_parallel_tp,
    seq_mod_tp,
    experts_mod_ep,
    expert_world,
    moe_sequence_parallel,
    zero_pp,
    zero_replicas,
    zero_group_divides,
    context_sharding,
    offload_recompute,
    schedule_framework,
    vpp_schedule,
    vpp_microbatches,
    microbatches_lt_pp,
    layers_lt_stages,
    layers_mod_pp,
    group_capacity,
)

RULES: tuple[Rule, ...] = tuple(
    Rule(name=function.__name__, holds=function, remedy=_remedies()[function.__name__])
    for function in _ORDER
)
"""Every rule, in the order in which a strategy is judged: a rejection names the first it breaks."""
