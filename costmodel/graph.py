"""The model graph: layers of few kinds, their operators with shapes, and what they share.

A ModelSpec (or a traced module) becomes a ModelGraph. Operators are described unsplit and per token; how a
strategy cuts them is decided where events are made (costmodel.events). Shapes follow the published model
definitions; `Operator.split` says which way Megatron-style tensor parallelism cuts each matrix
(Shoeybi et al. 2019, arXiv 1909.08053, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from costmodel.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec

if TYPE_CHECKING:
    import networkx as nx

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
    """

    name: str
    operators: tuple[Operator, ...]
    output_bytes_per_sample: float = 0.0

    @property
    def parameters(self) -> int:
        """Elements of all parameters of the layer."""
        return sum(operator.parameters for operator in self.operators)


@dataclass(frozen=True, kw_only=True)
class ModelGraph:
    """A model as the cost model sees it.

    Attributes:
        model: What the graph was made from; a traced module fills in name, hidden and layers only.
        kinds: Distinct kinds of layers.
        layers: Kind index of each layer in order.
        embedding, head: Layers before and behind; the head holds final norm, logits and loss.
        tied: Whether the head's matrix is the embedding's table (counted once).
    """

    model: ModelSpec
    kinds: tuple[Layer, ...]
    layers: tuple[int, ...]
    embedding: Layer
    head: Layer
    tied: bool

    @cached_property
    def parameters(self) -> int:
        """Parameters of the whole model, tied weights counted once."""
        blocks = sum(self.kinds[kind].parameters for kind in self.layers)
        return self.embedding.parameters + blocks + self.head.parameters - self.tied_weights

    @cached_property
    def tied_weights(self) -> int:
        """Elements shared by embedding and head."""
        if not self.tied:
            return 0
        return next(op.weights for op in self.head.operators if op.name == "head.logits")

    def kind_counts(self) -> tuple[int, ...]:
        """Return how many layers of each kind the model has."""
        return tuple(self.layers.count(kind) for kind in range(len(self.kinds)))

    def digraph(self) -> nx.DiGraph[str]:
        """Return the layers as a networkx graph; a tied head also has an edge from the embedding.

        Nodes carry ``layer`` (a Layer) and ``position``; edges carry ``relation``, "activation" or "tied".
        """
        import networkx as nx  # 0.1 s of import that --help does not need

        graph: nx.DiGraph[str] = nx.DiGraph()
        chain = [("embedding", self.embedding)]
        chain += [(f"layer.{i}", self.kinds[kind]) for i, kind in enumerate(self.layers)]
        chain.append(("head", self.head))
        for position, (name, layer) in enumerate(chain):
            graph.add_node(name, layer=layer, position=position)
        for (before, _), (after, _) in pairwise(chain):
            graph.add_edge(before, after, relation="activation")
        if self.tied:
            graph.add_edge("embedding", "head", relation="tied")
        return graph


def build_graph(model: ModelSpec) -> ModelGraph:
    """Return the graph of a transformer described by ``model``."""
    return ModelGraph(
        model=model,
        kinds=tuple(_block(model, kind) for kind in model.kinds),
        layers=model.layers,
        embedding=Layer(name="embedding", operators=_embedding(model)),
        head=Layer(name="head", operators=_head(model)),
        tied=model.tied and model.vocab > 0,
    )


def _block(model: ModelSpec, spec: LayerSpec) -> Layer:
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
    written = sum(op.kind == "norm" and op.inputs == model.hidden for op in operators)
    operators += [_norm(model, f"norm.{i}") for i in range(written, spec.norms)]
    for _ in range(written - spec.norms):  # parallel residual: one norm feeds both sub-layers
        operators.remove(next(op for op in reversed(operators) if op.kind == "norm"))
    if spec.frozen:
        operators = [replace(operator, trainable=False) for operator in operators]
    return Layer(name=spec.name, operators=tuple(operators))


def _norm(model: ModelSpec, name: str, width: int | None = None) -> Operator:
    width = width or model.hidden
    return Operator(
        name=name,
        kind="norm",
        inputs=width,
        outputs=width,
        biases=width * (2 if model.norm == "layernorm" else 1),
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
    rope = Operator(
        name=f"{name}.rope", kind="rope", inputs=spec.qk_width, split="heads", attention=spec
    )
    residual = Operator(name=f"{name}.residual", kind="residual", inputs=model.hidden)
    if spec.latent:
        return [*_latent_projections(model, spec, name), rope, core, out, residual]
    width = spec.heads * spec.head_dim + 2 * spec.kv_heads * spec.head_dim
    qkv = _matmul(f"{name}.qkv", model.hidden, width, "column", bias=spec.qkv_bias, attention=spec)
    norms = [
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
    return [qkv, *norms, *([] if model.positions else [rope]), core, out, residual]


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


def _embedding(model: ModelSpec) -> tuple[Operator, ...]:
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
    return tuple(operators)


def _head(model: ModelSpec) -> tuple[Operator, ...]:
    operators = [_norm(model, "head.norm")] if model.final_norm else []
    if model.pooler:
        operators.append(_matmul("head.pooler", model.hidden, model.hidden, "none", bias=True))
    if model.head_transform:
        operators += [
            _matmul("head.transform", model.hidden, model.hidden, "none", bias=True),
            _norm(model, "head.transform_norm"),
        ]
    outputs = model.vocab or model.classes
    if outputs:
        operators.append(
            Operator(
                name="head.logits",
                kind="matmul",
                inputs=model.hidden,
                outputs=outputs,
                split="vocab",
                weights=model.hidden * outputs,
                biases=outputs if model.head_bias else 0,
            )
        )
        operators.append(Operator(name="head.loss", kind="loss", inputs=outputs, split="vocab"))
    return tuple(operators)
