"""Decoder families that share llama's field names, told apart by a table of their habits.

The habits (which projections have biases, how many norms a layer has, which layers slide) are those of the
model definitions in Hugging Face transformers 5.24 (modeling_*.py and configuration_*.py of each family);
`costmodel.huggingface` picks the reader by ``model_type``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from costmodel.fields import Fields
from costmodel.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, NormKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What a family does without saying so in its config.

    Attributes:
        qkv_bias: Default of ``attention_bias``; ``bias_field`` says whether the config may change it.
        out_bias: Whether the output projection has a bias when the others have one.
        mlp_bias: Default of ``mlp_bias``.
        qk_norm: Default of ``use_qk_norm``.
        norms: Hidden-wide norms per layer.
        norm: Kind of norm.
        gated: Whether the MLP has a gate.
        tied: Default of ``tie_word_embeddings``.
        sinks: Whether attention has a learned sink per head.
        slides: Whether layer ``i`` of ``fields`` attends to a window only, where the config does not say.
        experts: Reader of the mixture of experts of layer ``i``; None where the layer is dense.
        defaults: Class defaults of fields that files leave out.
    """

    qkv_bias: bool = False
    bias_field: bool = True
    out_bias: bool = True
    mlp_bias: bool = False
    qk_norm: bool = False
    norms: int = 2
    norm: NormKind = "rmsnorm"
    gated: bool = True
    tied: bool = False
    sinks: bool = False
    slides: Callable[[Fields, int], bool] = lambda _fields, _layer: False
    experts: Callable[[Fields, int], MlpSpec | None] = lambda _fields, _layer: None
    defaults: dict[str, int | bool] = field(default_factory=dict)


def read_decoder(fields: Fields, name: str, habits: Habits) -> ModelSpec:
    """Read a decoder whose fields are called as llama's.

    Raises:
        InputError: If a size is missing, out of range or does not divide.
    """
    fields = Fields({**habits.defaults, **_present(fields)}, fields.file, fields.path)
    layers = layer_count(fields, "num_hidden_layers")
    kinds, order = distinct([_layer(fields, habits, index) for index in range(layers)])
    return ModelSpec(
        name=name,
        hidden=fields.integer("hidden_size"),
        kinds=kinds,
        layers=order,
        vocab=fields.integer("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=habits.tied),
        norm=habits.norm,
        notes=_omissions(fields),
    )


def _omissions(fields: Fields) -> tuple[str, ...]:
    count = fields.optional_integer("num_nextn_predict_layers", "num_mtp_layers", minimum=0)
    if not count:
        return ()
    return (f"the {count} multi-token-prediction layers of the file are not described",)


def distinct(layers: list[LayerSpec]) -> tuple[tuple[LayerSpec, ...], tuple[int, ...]]:
    """Return the distinct layers in order of appearance, and the index of each layer among them."""
    kinds = tuple(dict.fromkeys(layers))
    return kinds, tuple(kinds.index(layer) for layer in layers)


def layer_count(fields: Fields, *names: str, default: int | None = None) -> int:
    """Return the number of layers, at most 10000: the deepest published transformer has 1000.

    Raises:
        InputError: If it is missing or out of range.
    """
    layers = fields.integer(*names, default=default)
    if layers > 10_000:
        raise fields.error("must be at most 10000", names[0], nearest=10_000)
    return layers


def head_width(fields: Fields, hidden: int, heads: int, heads_name: str) -> int:
    """Return hidden / heads.

    Raises:
        InputError: If heads does not divide hidden.
    """
    if hidden % heads:
        nearest = max(d for d in range(1, heads + 1) if hidden % d == 0)
        raise fields.error(f"must divide the width {hidden}", heads_name, nearest=nearest)
    return hidden // heads


def _present(fields: Fields) -> dict[str, object]:
    return {key: value for key, value in fields.values.items() if value is not None}


def _layer(fields: Fields, habits: Habits, index: int) -> LayerSpec:
    mlp = habits.experts(fields, index)
    window = fields.optional_integer("sliding_window") if _slides(fields, habits, index) else None
    mlp_bias = fields.flag("mlp_bias", default=habits.mlp_bias)
    dense = mlp or MlpSpec(
        ffn=fields.integer("intermediate_size"), gated=habits.gated, bias=mlp_bias
    )
    kind = "moe" if mlp else "dense"
    return LayerSpec(
        name=f"{kind}-window" if window else kind,
        attention=_attention(fields, habits, window),
        mlp=dense,
        norms=habits.norms,
    )


def _slides(fields: Fields, habits: Habits, index: int) -> bool:
    types = fields.values.get("layer_types")
    if not isinstance(types, list):
        return habits.slides(fields, index)
    if index >= len(types):
        raise fields.error("must name every layer", "layer_types")
    return bool(types[index] == "sliding_attention")


def _attention(fields: Fields, habits: Habits, window: int | None) -> AttentionSpec:
    heads = fields.integer("num_attention_heads")
    kv_heads = fields.integer("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise fields.error(f"must divide the {heads} heads", "num_key_value_heads", nearest=heads)
    bias = habits.qkv_bias
    if habits.bias_field:
        bias = fields.flag("attention_bias", default=habits.qkv_bias)
    latent = fields.optional_integer("kv_lora_rank") is not None
    width = fields.integer("v_head_dim") if latent else fields.optional_integer("head_dim")
    spec = AttentionSpec(
        heads=heads,
        kv_heads=heads if latent else kv_heads,
        head_dim=width
        or head_width(fields, fields.integer("hidden_size"), heads, "num_attention_heads"),
        qkv_bias=bias,
        out_bias=bias and habits.out_bias,
        qk_norm=fields.flag("use_qk_norm", default=habits.qk_norm),
        window=window,
        sinks=habits.sinks,
    )
    return _with_latent(fields, spec) if latent else spec


def _with_latent(fields: Fields, spec: AttentionSpec) -> AttentionSpec:
    """Add the widths of latent attention; ``head_dim`` of such files is the rotated part only."""
    return replace(
        spec,
        kv_lora_rank=fields.integer("kv_lora_rank"),
        q_lora_rank=fields.optional_integer("q_lora_rank", minimum=0) or 0,
        qk_nope_head_dim=fields.integer("qk_nope_head_dim"),
        qk_rope_head_dim=fields.integer("qk_rope_head_dim"),
        v_head_dim=fields.integer("v_head_dim"),
    )


def _always_slides(_fields: Fields, _layer: int) -> bool:
    return True


def _every_other_slides(_fields: Fields, layer: int) -> bool:
    return layer % 2 == 0


def _gemma3_slides(fields: Fields, layer: int) -> bool:
    return (layer + 1) % fields.integer("sliding_window_pattern") != 0


def _qwen_slides(fields: Fields, layer: int) -> bool:
    first = fields.integer("max_window_layers", default=0, minimum=0)
    return fields.flag("use_sliding_window", default=False) and layer >= first


def _every_layer_experts(fields: Fields, _layer: int) -> MlpSpec:
    return MlpSpec(
        ffn=fields.integer("intermediate_size"),
        experts=fields.integer("num_local_experts", "num_experts"),
        topk=_topk(fields),
    )


def _gpt_oss_experts(fields: Fields, _layer: int) -> MlpSpec:
    return MlpSpec(
        ffn=fields.integer("intermediate_size"),
        bias=True,
        experts=fields.integer("num_local_experts"),
        topk=_topk(fields),
        router_bias=True,
    )


def _qwen_experts(fields: Fields, layer: int) -> MlpSpec | None:
    dense = fields.values.get("mlp_only_layers", [])
    if not isinstance(dense, list):
        raise fields.error("must be a list of layers", "mlp_only_layers")
    if layer in dense or (layer + 1) % fields.integer("decoder_sparse_step"):
        return None
    return MlpSpec(
        ffn=fields.integer("moe_intermediate_size"),
        experts=fields.integer("num_experts", "num_local_experts", default=128),
        topk=_topk(fields),
    )


def _deepseek_experts(fields: Fields, layer: int) -> MlpSpec | None:
    """Return routed and shared experts; the score-correction bias is a buffer, not a parameter."""
    experts = fields.optional_integer("n_routed_experts", minimum=0)
    first = fields.integer("first_k_dense_replace", minimum=0)
    if not experts or layer < first or layer % fields.integer("moe_layer_freq", default=1):
        return None
    width = fields.integer("moe_intermediate_size")
    shared = fields.optional_integer("n_shared_experts", minimum=0) or 0
    return MlpSpec(ffn=width, experts=experts, topk=_topk(fields), shared_ffn=shared * width)


def _any_experts(fields: Fields, _layer: int) -> MlpSpec | None:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    experts = fields.optional_integer(*names, minimum=0)
    if not experts:
        return None
    width = fields.integer("moe_intermediate_size", "intermediate_size")
    return MlpSpec(ffn=width, experts=experts, topk=_topk(fields))


def _topk(fields: Fields) -> int:
    topk = fields.integer("num_experts_per_tok")
    experts = fields.integer("num_local_experts", "num_experts", "n_routed_experts", default=topk)
    if topk > experts:
        raise fields.error("must not exceed the experts", "num_experts_per_tok", nearest=experts)
    return topk


# Class defaults: configuration_*.py of each family in transformers 5.24.
_GEMMA = {"head_dim": 256}
_GEMMA2 = {"head_dim": 256, "sliding_window": 4096}
# Multimodal files leave these out of their text_config.
_GEMMA3 = {
    "head_dim": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 262208,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
}
_QWEN3_MOE = {
    "head_dim": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "decoder_sparse_step": 1,
}
_GPT_OSS = {
    "head_dim": 64,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
}
_DEEPSEEK3 = {
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_intermediate_size": 2048,
}
_DEEPSEEK = Habits(experts=_deepseek_experts, defaults={**_DEEPSEEK3})
_GEMMA3_HABITS = Habits(
    tied=True, norms=4, qk_norm=True, slides=_gemma3_slides, defaults={**_GEMMA3}
)

HABITS = {
    "llama": Habits(),
    "mistral": Habits(slides=_always_slides, defaults={"sliding_window": 4096}),
    "mixtral": Habits(
        slides=_always_slides,
        experts=_every_layer_experts,
        defaults={"num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "qwen2": Habits(qkv_bias=True, bias_field=False, out_bias=False, slides=_qwen_slides),
    "qwen3": Habits(qk_norm=True, slides=_qwen_slides, defaults={"head_dim": 128}),
    "qwen3_moe": Habits(
        qk_norm=True, slides=_qwen_slides, experts=_qwen_experts, defaults={**_QWEN3_MOE}
    ),
    "deepseek_v2": Habits(
        experts=_deepseek_experts,
        defaults={"first_k_dense_replace": 0, "moe_layer_freq": 1},
    ),
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4_moe": Habits(
        out_bias=False,
        experts=_deepseek_experts,
        defaults={"first_k_dense_replace": 1, "n_shared_experts": 1},
    ),
    "gemma": Habits(tied=True, defaults={**_GEMMA}),
    "gemma2": Habits(tied=True, norms=4, slides=_every_other_slides, defaults={**_GEMMA2}),
    "gemma3_text": _GEMMA3_HABITS,
    "gemma3": _GEMMA3_HABITS,
    "phi3": Habits(slides=_always_slides),
    "gpt_oss": Habits(
        qkv_bias=True,
        sinks=True,
        slides=_every_other_slides,
        experts=_gpt_oss_experts,
        defaults={**_GPT_OSS},
    ),
    "nemotron": Habits(norm="layernorm", gated=False),
    # xai-org/grok-1, model.py: a norm before and behind each sub-layer.
    "grok-1": Habits(tied=True, norms=4, experts=_every_layer_experts),
}
UNKNOWN = Habits(experts=_any_experts)
