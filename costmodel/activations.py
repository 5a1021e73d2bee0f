"""Activations a layer keeps for its backward pass, summed operator by operator.

An operator keeps its input unless its producer already keeps it. For a GPT layer with unfused attention and dropout
the sum is Korthikanti et al. 2022 (arXiv 2205.05198): s b h (34 + 5 a s / h) without tensor parallelism (equation 1),
s b h (10 + 24/t + 5 a s / (h t)) with it (equation 2), all of it over t with sequence parallelism (equation 4).
Flash attention (Dao et al. 2022, arXiv 2205.14135) keeps 4 bytes per token and head in place of the square.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.graph import Layer, Operator
from costmodel.lanes import highest, lowest
from costmodel.memory_behaviour import MemoryBehaviour
from costmodel.spec import AttentionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalShape:
    """What one micro-batch is on one rank.

    Attributes:
        samples: Sequences in the micro-batch.
        tokens: Tokens of the micro-batch on this context-parallel rank.
        context: Tokens an unfused attention core meets.
        tp: Tensor-parallel ranks; ``residual`` is the same where sequence parallelism splits the residual stream,
            1 otherwise; ``etp`` those of an expert.
        flash: Whether attention is fused.
    """

    samples: float
    tokens: float
    context: float
    tp: int
    residual: int
    etp: int
    flash: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Bytes a layer keeps per micro-batch.

    Attributes:
        whole: Without recomputation.
        selective: With selective recomputation.
        input: With full recomputation: the input only.
        widest: Gradients that flow while the widest operator's backward runs.
    """

    whole: float
    selective: float
    input: float
    widest: float


def layer_kept(layer: Layer, hidden: int, shape: LocalShape, behaviour: MemoryBehaviour) -> Kept:
    """Return what ``layer`` keeps of one micro-batch."""
    whole = dropped = outputs = widest = 0.0
    read: set[str] = set()
    modules = behaviour.modules or (_SELECTIVE_MODULES.get(behaviour.selective, ()))
    routed = any(operator.experts for operator in layer.operators)
    for operator in layer.operators:
        size = _kept(operator, hidden, shape, behaviour, read)
        square = _square(operator, shape, behaviour)
        whole += size + square
        dropped += square if "core_attn" in modules else 0.0
        dropped += size if _is_repeated(operator, modules, hidden, routed=routed) else 0.0
        outputs += _matmul_output(operator, shape, behaviour)
        widest = highest(widest, _flow(operator, shape, behaviour))
    if layer.output_bytes_per_sample:
        entry = layer.output_bytes_per_sample * shape.samples
    else:
        entry = behaviour.element * hidden * shape.tokens / shape.residual
    selective = whole - dropped
    if behaviour.selective == "operators" and not behaviour.modules:
        selective = lowest(whole, entry + outputs)
    if behaviour.selective == "alternate" and not behaviour.modules:
        selective = (whole + entry) / 2
    return Kept(whole=whole, selective=selective, input=entry, widest=widest)


_SELECTIVE_MODULES = {"core": ("core_attn",), "norms": ("layernorm",)}


def _is_repeated(
    operator: Operator, modules: tuple[str, ...], hidden: int, *, routed: bool
) -> bool:
    """Return whether what the operator keeps is recomputed by one of Megatron's ``modules``.

    ``layernorm`` repeats the norms, so that their outputs, the inputs of the first matmuls, need not be kept;
    ``moe_act`` the experts' activation; ``mla_up_proj`` queries, keys and values from their compressed form;
    ``mlp`` and ``moe`` the sub-layer from its input.
    """
    name, kind = operator.name, operator.kind
    entry = kind in ("matmul", "router") and operator.inputs == hidden and not operator.experts
    if not modules:
        return False
    repeated = {
        "layernorm": entry and operator.split in ("column", "none"),
        "moe_act": name == "mlp.expert.down",
        "mla_up_proj": kind == "attention"
        and operator.attention is not None
        and operator.attention.latent,
        "mlp": name.startswith("mlp.")
        and not routed
        and kind in ("activation", "matmul")
        and not entry,
        "moe": name.startswith("mlp.") and routed and kind != "norm" and not entry,
    }
    return any(repeated.get(module, False) for module in modules)


def _kept(
    operator: Operator, hidden: int, shape: LocalShape, behaviour: MemoryBehaviour, read: set[str]
) -> float:
    size = behaviour.element
    if operator.kind == "opaque":
        return operator.saved_bytes * shape.samples
    if operator.kind == "norm":
        ranks = shape.tp if operator.split == "heads" else shape.residual
        copies = 1.0 if behaviour.layernorm else behaviour.norm_copies
        return copies * size * operator.inputs * shape.tokens / ranks
    if operator.kind in ("matmul", "router"):
        return _matmul_input(operator, hidden, shape, behaviour, read)
    if operator.kind == "attention" and operator.attention is not None:
        return _core(operator.attention, shape, size)
    if operator.kind == "activation":
        gated = operator.inputs > operator.outputs
        extra = behaviour.activation_outputs * operator.outputs * gated
        return (
            size
            * (operator.inputs + extra)
            * _routed(operator, shape)
            / _width_ranks(operator, shape)
        )
    if operator.kind == "residual":
        return (hidden * shape.tokens / shape.residual) if behaviour.dropout else 0.0
    if operator.kind == "dispatch":
        return behaviour.dispatch_copies * size * hidden * _routed(operator, shape)
    return 0.0


def _routed(operator: Operator, shape: LocalShape) -> float:
    """Return the tokens an operator meets: experts share the top-k copies of all tokens over their ranks."""
    if not operator.experts:
        return shape.tokens
    return shape.tokens * operator.topk * shape.etp / shape.tp


def _width_ranks(operator: Operator, shape: LocalShape) -> int:
    return shape.etp if operator.experts else shape.tp


def _matmul_input(
    operator: Operator, hidden: int, shape: LocalShape, behaviour: MemoryBehaviour, read: set[str]
) -> float:
    """Return the kept input; matmuls of one sub-layer that read the same normed stream keep it once."""
    size = behaviour.matmul_input * operator.inputs
    if operator.split == "row":
        return size * _routed(operator, shape) / _width_ranks(operator, shape)
    if operator.experts and operator.kind == "matmul":
        return size * _routed(operator, shape)
    sublayer = operator.name.split(".", 1)[0]
    if operator.inputs == hidden:
        if sublayer in read:
            return 0.0
        read.add(sublayer)
    return size * shape.tokens / (1 if behaviour.gathered_inputs else shape.residual)


def _core(spec: AttentionSpec, shape: LocalShape, size: float) -> float:
    """Return queries, keys and values, and flash attention's log-sum-exp of each row."""
    if spec.latent:
        width = 2 * spec.qk_width / shape.tp + spec.value_width / shape.tp
    else:
        shared = highest(spec.kv_heads / shape.tp, 1.0)
        width = spec.qk_width / shape.tp + 2 * shared * spec.head_dim
    statistics = 4.0 * spec.heads / shape.tp if shape.flash else 0.0
    return (size * width + statistics) * shape.tokens


def _square(operator: Operator, shape: LocalShape, behaviour: MemoryBehaviour) -> float:
    """Return the attention square: softmax output, and with dropout its mask and output (5 a s in all)."""
    if operator.kind != "attention" or operator.attention is None or shape.flash:
        return 0.0
    per_score = 2 * behaviour.element + 1 if behaviour.dropout else behaviour.element
    return per_score * operator.attention.heads / shape.tp * shape.context * shape.tokens


def _matmul_output(operator: Operator, shape: LocalShape, behaviour: MemoryBehaviour) -> float:
    """Return what operator-wise recomputation keeps: half the matmul outputs and all attention outputs."""
    if operator.kind == "matmul":
        ranks = (
            shape.residual if operator.split in ("row", "none") else _width_ranks(operator, shape)
        )
        return 0.5 * behaviour.element * operator.outputs * _routed(operator, shape) / ranks
    if operator.kind == "attention":
        return behaviour.element * operator.outputs * shape.tokens / shape.tp
    return 0.0


def _flow(operator: Operator, shape: LocalShape, behaviour: MemoryBehaviour) -> float:
    """Return the gradients of an operator's input and output, alive together."""
    if operator.split == "vocab" or operator.kind not in ("matmul", "activation"):
        return 0.0
    ranks = _width_ranks(operator, shape)
    inputs = operator.inputs / (
        ranks if operator.split == "row" or operator.kind == "activation" else 1
    )
    outputs = operator.outputs / (ranks if operator.split == "column" else 1)
    return behaviour.element * (inputs + outputs) * _routed(operator, shape)
