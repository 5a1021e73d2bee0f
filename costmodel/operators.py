"""Operators and layers: what a block, an embedding and a head consist of, unsplit and per token.

How a strategy cuts operators is decided where events are made (costmodel.events). Shapes follow the published model
definitions; `Operator.split` says which way Megatron-style tensor parallelism cuts each matrix
(Shoeybi et al. 2019, arXiv 1909.08053, section 3).
"""

from dataclasses import dataclass, replace
from typing import Literal

from costmodel.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec

OperatorKind = Literal[
    "matmul",
    "attention",
    "norm",
    "activation",
    "rope",
    "residual",
    "router",
    "dispatch",
    "embedding",
    "loss",
    "opaque",
]
Split = Literal["none", "column", "row", "heads", "vocab"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a layer, unsplit.

    Attributes:
        name: Unique within its layer, for example ``mlp.up``.
        kind: What it does; ``opaque`` operators carry their own FLOPs and bytes (traced modules).
        inputs, outputs: Width of a token's input and output (for a matmul K and N).
        split: How tensor parallelism cuts it: ``column`` cuts outputs, ``row`` inputs, ``heads`` attention
            heads, ``vocab`` the vocabulary; ``none`` leaves it whole on every rank.
        weights: Matrix (or table) elements, cut as ``split`` says; for experts, of all experts.
        biases: Bias or norm elements; cut only under a ``column`` split.
        attention: Heads and window of an attention core, and of the qkv projection (key/value heads fewer
            than ranks are replicated).
        experts, topk: Number of experts the operator is repeated over and visits per token; 0 if not routed.
        flops, traffic_bytes, saved_bytes: Of an ``opaque`` operator: forward FLOPs, bytes moved forward and
            bytes kept for the backward pass, per sample.
        backward_ratio: Backward over forward FLOPs of an ``opaque`` operator.
        encoder_tokens: Whether it runs over the encoder's tokens inside a decoder layer (keys and values of
            cross-attention).
        trainable: Whether its parameters get gradients.
    """

    name: str
    kind: OperatorKind
    inputs: int = 0
    outputs: int = 0
    split: Split = "none"
    weights: int = 0
    biases: int = 0
    attention: AttentionSpec | None = None
    experts: int = 0
    topk: int = 0
    flops: float = 0.0
    traffic_bytes: float = 0.0
    saved_bytes: float = 0.0
    backward_ratio: float = 2.0
    encoder_tokens: bool = False
    trainable: bool = True

    @property
    def parameters(self) -> int:
        """Elements of all its parameters."""
        return self.weights + self.biases

    def flops_per_token(self, context: float) -> float:
        """Return forward FLOPs of one token; an attention core meets ``context`` tokens on average.

        A matmul costs 2 * K * N, an attention core 2 * context * (qk width + value width): scores and
        weighted sum.
        """
        if self.kind in ("matmul", "router"):
            return 2.0 * self.inputs * self.outputs * (self.topk or 1)
        if self.kind == "attention" and self.attention is not None:
            return 2.0 * context * (self.attention.qk_width + self.attention.value_width)
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One kind of layer, or the embedding or head.

    Attributes:
        output_bytes_per_sample: Of a traced layer, the size of what it hands on; 0 for transformer layers,
            where it follows from the hidden width.
        batch_norms: Channels of each batch normalisation, which replicas may synchronise.
    """

    name: str
    operators: tuple[Operator, ...]
    output_bytes_per_sample: float = 0.0
    batch_norms: tuple[int, ...] = ()

    @property
    def parameters(self) -> int:
        """Elements of all parameters of the layer."""
        return sum(operator.parameters for operator in self.operators)


def block(model: ModelSpec, spec: LayerSpec) -> Layer:
    """Return a layer of kind ``spec``."""
    operators: list[Operator] = []
    if spec.attention is not None:
        operators += [
            _norm(model, "attention.norm"),
            *_attention(model, spec.attention, "attention"),
        ]
    if spec.cross_attention is not None:
        operators += [_norm(model, "cross.norm"), *_attention(model, spec.cross_attention, "cross")]
    if spec.mlp is not None:
        operators += [_norm(model, "mlp.norm"), *_mlp(model, spec.mlp)]
    operators = _with_norms(model, operators, spec.norms)
    if spec.frozen:
        operators = [replace(operator, trainable=False) for operator in operators]
    return Layer(name=spec.name, operators=tuple(operators))


def _with_norms(model: ModelSpec, operators: list[Operator], norms: int) -> list[Operator]:
    """Return the operators with as many hidden-wide norms as the layer has.

    Fewer than sub-layers means that one norm feeds several (parallel residual); more are norms behind
    sub-layers (Gemma 2) or behind a whole stack (T5).
    """
    own = [op for op in operators if op.name in ("attention.norm", "cross.norm", "mlp.norm")]
    surplus = own[norms:]
    added = [_norm(model, f"norm.{index}") for index in range(len(own), norms)]
    return [op for op in operators if op not in surplus] + added


def _norm(model: ModelSpec, name: str, width: int | None = None) -> Operator:
    width = width or model.hidden
    return Operator(
        name=name,
        kind="norm",
        inputs=width,
        outputs=width,
        biases=width * (2 if model.norm == "layernorm" and model.norm_bias else 1),
    )


def _matmul(
    name: str,
    inputs: int,
    outputs: int,
    split: Split,
    *,
    bias: bool = False,
    experts: int = 0,
    topk: int = 0,
    attention: AttentionSpec | None = None,
) -> Operator:
    copies = experts or 1
    return Operator(
        name=name,
        kind="matmul",
        inputs=inputs,
        outputs=outputs,
        split=split,
        weights=inputs * outputs * copies,
        biases=outputs * copies if bias else 0,
        experts=experts,
        topk=topk,
        attention=attention,
    )


def _attention(model: ModelSpec, spec: AttentionSpec, name: str) -> list[Operator]:
    if spec.latent:
        projections = _latent_projections(model, spec, name)
    elif name == "cross":
        projections = _cross_projections(model, spec)
    else:
        projections = [*_projections(model, spec, name), *_head_norms(spec, name)]
    rotates = model.rotary and not model.positions and name != "cross"
    rope = Operator(
        name=f"{name}.rope", kind="rope", inputs=spec.qk_width, split="heads", attention=spec
    )
    core = Operator(
        name=f"{name}.core",
        kind="attention",
        inputs=spec.qk_width,
        outputs=spec.value_width,
        split="heads",
        attention=spec,
        biases=(spec.heads if spec.sinks else 0) + spec.relative_buckets * spec.heads,
    )
    out = _matmul(f"{name}.out", spec.value_width, model.hidden, "row", bias=spec.out_bias)
    residual = Operator(name=f"{name}.residual", kind="residual", inputs=model.hidden)
    return [*projections, *([rope] if rotates else []), core, out, residual]


def _projections(model: ModelSpec, spec: AttentionSpec, name: str) -> list[Operator]:
    width = (spec.heads + 2 * spec.kv_heads) * spec.head_dim
    bias = spec.qkv_bias
    return [_matmul(f"{name}.qkv", model.hidden, width, "column", bias=bias, attention=spec)]


def _cross_projections(model: ModelSpec, spec: AttentionSpec) -> list[Operator]:
    """Return queries of the decoder's tokens, and keys and values of the encoder's."""
    bias = spec.qkv_bias
    width = 2 * spec.kv_heads * spec.head_dim
    query = _matmul("cross.q", model.hidden, spec.qk_width, "column", bias=bias)
    pair = _matmul("cross.kv", model.hidden, width, "column", bias=bias, attention=spec)
    return [query, replace(pair, encoder_tokens=True)]


def _head_norms(spec: AttentionSpec, name: str) -> list[Operator]:
    return [
        Operator(
            name=f"{name}.{which}_norm",
            kind="norm",
            inputs=heads * spec.head_dim,
            outputs=heads * spec.head_dim,
            split="heads",
            biases=spec.head_dim,
            attention=spec,
        )
        for which, heads in (("q", spec.heads), ("k", spec.kv_heads))
        if spec.qk_norm
    ]


def _latent_projections(model: ModelSpec, spec: AttentionSpec, name: str) -> list[Operator]:
    """Return MLA's down and up projections (DeepSeek-V2, arXiv 2405.04434, equations 9-19)."""
    operators: list[Operator] = []
    if spec.q_lora_rank:
        operators += [
            _matmul(f"{name}.q_down", model.hidden, spec.q_lora_rank, "none", bias=spec.qkv_bias),
            _norm(model, f"{name}.q_norm", spec.q_lora_rank),
            _matmul(f"{name}.q_up", spec.q_lora_rank, spec.qk_width, "column"),
        ]
    else:
        operators.append(_matmul(f"{name}.q", model.hidden, spec.qk_width, "column"))
    up = spec.heads * (spec.qk_nope_head_dim + spec.v_head_dim)
    return [
        *operators,
        _matmul(
            f"{name}.kv_down",
            model.hidden,
            spec.kv_lora_rank + spec.qk_rope_head_dim,
            "none",
            bias=spec.qkv_bias,
        ),
        _norm(model, f"{name}.kv_norm", spec.kv_lora_rank),
        _matmul(f"{name}.kv_up", spec.kv_lora_rank, up, "column"),
    ]


def _mlp(model: ModelSpec, spec: MlpSpec) -> list[Operator]:
    residual = Operator(name="mlp.residual", kind="residual", inputs=model.hidden)
    if not spec.experts:
        return [*_feed_forward(model, spec, "mlp", spec.ffn), residual]
    router = Operator(
        name="mlp.router",
        kind="router",
        inputs=model.hidden,
        outputs=spec.experts,
        weights=model.hidden * spec.experts,
        biases=spec.experts if spec.router_bias else 0,
    )
    dispatch = Operator(
        name="mlp.dispatch",
        kind="dispatch",
        inputs=model.hidden,
        experts=spec.experts,
        topk=spec.topk,
    )
    shared = _feed_forward(model, spec, "mlp.shared", spec.shared_ffn) if spec.shared_ffn else []
    routed = _feed_forward(model, spec, "mlp.expert", spec.ffn, spec.experts, spec.topk)
    return [router, dispatch, *routed, *shared, residual]


def _feed_forward(
    model: ModelSpec, spec: MlpSpec, name: str, ffn: int, experts: int = 0, topk: int = 0
) -> list[Operator]:
    up = (2 if spec.gated else 1) * ffn
    return [
        _matmul(
            f"{name}.up", model.hidden, up, "column", bias=spec.bias, experts=experts, topk=topk
        ),
        Operator(
            name=f"{name}.activation",
            kind="activation",
            inputs=up,
            outputs=ffn,
            split="column",
            experts=experts,
            topk=topk,
        ),
        _matmul(
            f"{name}.down", ffn, model.hidden, "row", bias=spec.bias, experts=experts, topk=topk
        ),
    ]


def embedding(model: ModelSpec) -> Layer:
    """Return what stands before the first layer: tables, patches and their norm."""
    operators: list[Operator] = []
    if model.vocab:
        operators.append(
            Operator(
                name="embedding.tokens",
                kind="embedding",
                inputs=model.vocab,
                outputs=model.hidden,
                split="vocab",
                weights=model.vocab * model.hidden,
            )
        )
    if model.patch_inputs:
        operators.append(
            _matmul("embedding.patches", model.patch_inputs, model.hidden, "none", bias=True)
        )
    tables = model.positions + model.token_types
    if tables or model.extra_parameters:
        operators.append(
            Operator(
                name="embedding.positions",
                kind="residual",
                inputs=model.hidden,
                biases=tables * model.hidden + model.extra_parameters,
            )
        )
    if model.embedding_norm:
        operators.append(_norm(model, "embedding.norm"))
    return Layer(name="embedding", operators=tuple(operators))


def head(model: ModelSpec) -> Layer:
    """Return what stands behind the last layer: final norm, pooler, logits and loss."""
    operators = [_norm(model, "head.norm")] if model.final_norm else []
    if model.pooler:
        operators.append(_matmul("head.pooler", model.hidden, model.hidden, "none", bias=True))
    if model.head_transform:
        operators += [
            _matmul("head.transform", model.hidden, model.hidden, "none", bias=True),
            _norm(model, "head.transform_norm"),
        ]
    if model.classes:
        operators.append(_matmul("head.classes", model.hidden, model.classes, "none", bias=True))
    outputs = model.vocab or model.classes
    if model.vocab:
        operators.append(
            Operator(
                name="head.logits",
                kind="matmul",
                inputs=model.hidden,
                outputs=model.vocab,
                split="vocab",
                weights=model.hidden * model.vocab,
                biases=model.vocab if model.head_bias else 0,
            )
        )
    if outputs:
        split: Split = "vocab" if model.vocab else "none"
        operators.append(Operator(name="head.loss", kind="loss", inputs=outputs, split=split))
    return Layer(name="head", operators=tuple(operators))
