"""Models written into a scenario: Hugging Face fields, a catalog model changed, or the project's own few keys."""

from dataclasses import dataclass

from costmodel import catalog, huggingface
from costmodel.decoders import distinct, head_width, layer_count
from costmodel.errors import InputError
from costmodel.fields import Fields, as_fields
from costmodel.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, NormKind

_DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_SIGNS_OF_CONFIG = (
    "model_type",
    "text_config",
    "architectures",
    "hidden_size",
    "n_embd",
    "d_model",
)
_OWN = (
    "name", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "gated", "vocab", "tied", "norm", "norms",
    "bias", "qkv_bias", "qk_norm", "positions", "rotary", "causal", "window", "experts", "topk", "expert_ffn",
    "shared_ffn", "dense_layers", "frozen_layers",
)  # fmt: skip


def model_from_mapping(mapping: object, file: str, path: str = "model") -> ModelSpec:
    """Return the model that a mapping inside a scenario describes.

    Three forms: ``{base: CATALOG_NAME, KEY: VALUE, ..}`` changes fields of a catalog model (``layers`` is its depth
    whatever its config calls it); a mapping with Hugging Face fields is read like a ``config.json``; else the own
    keys of scenarios/README.md hold, of which layers, hidden, heads and vocab are needed.

    Raises:
        InputError: If a key is unknown, missing or out of range; the key path starts with ``path``.
    """
    fields = as_fields(mapping, file, path)
    if "base" in fields.values:
        return _changed(fields)
    if any(sign in fields.values for sign in _SIGNS_OF_CONFIG):
        name = fields.text("name", default="inline model")
        config = {key: value for key, value in fields.values.items() if key != "name"}
        return huggingface.model_from_config(config, name=name, file=file, path=path)
    return _own(fields)


def _changed(fields: Fields) -> ModelSpec:
    """Return a catalog model with some fields of its config replaced."""
    base = fields.text("base")
    config = catalog.model_config(base)
    depth = next(name for name in _DEPTHS if name in config)
    fields.refuse_unknown(("base", "name", "layers", *config))
    changes = {key: value for key, value in fields.values.items() if key in config}
    if "layers" in fields.values:
        changes[depth] = layer_count(fields, "layers")
        if "num_decoder_layers" in config:
            changes.setdefault("num_decoder_layers", changes[depth])
    name = fields.text("name", default=_changed_name(base, config, changes))
    merged = config | changes
    return huggingface.model_from_config(merged, name=name, file=fields.file, path=fields.path)


def _changed_name(base: str, config: dict[str, object], changes: dict[str, object]) -> str:
    parts = [f"{key}={value}" for key, value in changes.items() if config[key] != value]
    return " ".join([base, *parts])


@dataclass(frozen=True, slots=True)
class _Style:
    """What follows from ``gated`` unless said otherwise: today's decoders, or GPT-2's."""

    gated: bool

    @property
    def norm(self) -> NormKind:
        return "rmsnorm" if self.gated else "layernorm"

    def ffn(self, hidden: int) -> int:
        """Return Megatron's default width: 4 h, or with a gate 8/3 h cut to a multiple of 64."""
        return int(hidden * 8 / 3 / 64) * 64 if self.gated else 4 * hidden


def _own(fields: Fields) -> ModelSpec:
    fields.refuse_unknown(_OWN)
    style = _Style(fields.flag("gated", default=False))
    layers = layer_count(fields, "layers")
    hidden = fields.integer("hidden")
    frozen = fields.integer("frozen_layers", default=0, minimum=0)
    kinds, order = distinct(
        [_own_layer(fields, style, hidden, index, index < frozen) for index in range(layers)]
    )
    positions = fields.integer("positions", default=0, minimum=0)
    return ModelSpec(
        name=fields.text("name", default="inline model"),
        hidden=hidden,
        kinds=kinds,
        layers=order,
        vocab=fields.integer("vocab"),
        tied=fields.flag("tied", default=not style.gated),
        norm=_norm(fields, style),
        positions=positions,
        rotary=fields.flag("rotary", default=positions == 0),
        source=fields.file,
    )


def _norm(fields: Fields, style: _Style) -> NormKind:
    norm = fields.text("norm", default=style.norm)
    if norm == "rmsnorm":
        return "rmsnorm"
    if norm == "layernorm":
        return "layernorm"
    raise fields.error("must be a kind of norm", "norm", nearest=("rmsnorm", "layernorm"))


def _own_layer(fields: Fields, style: _Style, hidden: int, index: int, frozen: bool) -> LayerSpec:
    sparse = "experts" in fields.values and index >= fields.integer(
        "dense_layers", default=0, minimum=0
    )
    kind = "moe" if sparse else "dense"
    return LayerSpec(
        name=f"frozen-{kind}" if frozen else kind,
        attention=_own_attention(fields, style, hidden),
        mlp=_own_experts(fields, style, hidden) if sparse else _own_mlp(fields, style, hidden),
        norms=fields.integer("norms", default=2, minimum=0),
        frozen=frozen,
    )


def _own_attention(fields: Fields, style: _Style, hidden: int) -> AttentionSpec:
    heads = fields.integer("heads")
    kv_heads = fields.integer("kv_heads", default=heads)
    if heads % kv_heads:
        raise fields.error(f"must divide the {heads} heads", "kv_heads", nearest=heads)
    bias = fields.flag("bias", default=not style.gated)
    return AttentionSpec(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.optional_integer("head_dim") or head_width(fields, hidden, heads, "heads"),
        qkv_bias=fields.flag("qkv_bias", default=bias),
        out_bias=bias,
        qk_norm=fields.flag("qk_norm", default=False),
        causal=fields.flag("causal", default=True),
        window=fields.optional_integer("window"),
    )


def _own_mlp(fields: Fields, style: _Style, hidden: int) -> MlpSpec:
    return MlpSpec(
        ffn=fields.integer("ffn", default=style.ffn(hidden)),
        gated=style.gated,
        bias=fields.flag("bias", default=not style.gated),
    )


def _own_experts(fields: Fields, style: _Style, hidden: int) -> MlpSpec:
    experts, topk = fields.integer("experts"), fields.integer("topk")
    if topk > experts:
        raise InputError(
            f"must not exceed the {experts} experts",
            file=fields.file,
            key=fields.key("topk"),
            value=topk,
            nearest=experts,
        )
    return MlpSpec(
        ffn=fields.integer("expert_ffn", "ffn", default=style.ffn(hidden)),
        gated=style.gated,
        bias=fields.flag("bias", default=not style.gated),
        experts=experts,
        topk=topk,
        shared_ffn=fields.integer("shared_ffn", default=0, minimum=0),
    )
