"""Reader of Hugging Face ``config.json`` files: fields in their old and new spellings become a ModelSpec.

Parameter counts of the result equal those of the transformers classes (tied weights once), without vision
towers and without multi-token-prediction layers, which those classes do not build.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from costmodel.decoders import (
    HABITS,
    UNKNOWN,
    distinct,
    head_width,
    layer_count,
    read_decoder,
)
from costmodel.errors import InputError
from costmodel.fields import Fields, as_fields
from costmodel.load import read_json
from costmodel.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec


def read_model(path: Path | str) -> ModelSpec:
    """Read a ``config.json``, or the one in a folder; the model is named after its folder or file.

    Raises:
        InputError: If the file cannot be read, or a field is missing or impossible.
    """
    file = Path(path)
    if file.is_dir():
        file /= "config.json"
    name = file.parent.name if file.name == "config.json" else file.stem
    return model_from_config(read_json(file), name=name or "config", file=str(file))


def model_from_config(config: object, *, name: str, file: str, path: str = "") -> ModelSpec:
    """Return the model that the fields of a config describe.

    Args:
        config: The mapping that the file holds.
        name: Name of the result.
        file: Name of the file for errors.
        path: Key path of the mapping inside the file.

    Raises:
        InputError: If a field is missing or impossible.
    """
    fields = as_fields(config, file, path)
    notes: tuple[str, ...] = ()
    if isinstance(fields.values.get("text_config"), Mapping):
        fields = _text_part(fields)
        notes = ("only the text part of the model is described, without its vision or audio part",)
    kind = fields.text("model_type", default="")
    if kind in _READERS:
        model = _READERS[kind](fields, name)
    elif kind in HABITS:
        model = read_decoder(fields, name, HABITS[kind])
    else:
        model = _read_unknown(fields, name, kind)
    return replace(model, notes=notes + model.notes, source=model.source or file)


def known_types() -> tuple[str, ...]:
    """Return every ``model_type`` with a reader of its own."""
    return tuple(sorted({*_READERS, *HABITS}))


def _text_part(fields: Fields) -> Fields:
    """Return the nested text config; fields it lacks may stand beside it (tying, in some files)."""
    text = fields.child("text_config")
    outer = {key: fields.values[key] for key in ("tie_word_embeddings",) if key in fields.values}
    kind = {"model_type": fields.values.get("model_type")}
    return Fields({**kind, **outer, **text.values}, text.file, text.path)


def _read_unknown(fields: Fields, name: str, kind: str) -> ModelSpec:
    try:
        model = read_decoder(fields, name, UNKNOWN)
    except InputError as error:
        known = f"model_type {kind or '(none)'} is unknown and read by llama's field names"
        rule = f"{error.rule} ({known})"
        raise InputError(
            rule, file=error.file, key=error.key, value=error.value, nearest=error.nearest
        ) from error
    note = f"model_type {kind!r} is unknown: read by llama's field names, without biases, untied"
    return replace(model, notes=(note,))


def _block(
    name: str, attention: AttentionSpec, ffn: int, *, bias: bool = True, norms: int = 2
) -> LayerSpec:
    mlp = MlpSpec(ffn=ffn, gated=False, bias=bias)
    return LayerSpec(name=name, attention=attention, mlp=mlp, norms=norms)


def _plain_attention(
    fields: Fields, hidden: int, heads_name: str, *, bias: bool = True, causal: bool = True
) -> AttentionSpec:
    heads = fields.integer(heads_name)
    width = head_width(fields, hidden, heads, heads_name)
    return AttentionSpec(
        heads=heads, kv_heads=heads, head_dim=width, qkv_bias=bias, out_bias=bias, causal=causal
    )


def _gpt2(fields: Fields, name: str) -> ModelSpec:
    hidden = fields.integer("n_embd", "hidden_size")
    attention = _plain_attention(fields, hidden, "n_head")
    block = _block("block", attention, fields.integer("n_inner", default=4 * hidden))
    return ModelSpec(
        name=name,
        hidden=hidden,
        kinds=(block,),
        layers=(0,) * layer_count(fields, "n_layer", "num_hidden_layers"),
        vocab=fields.integer("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=True),
        norm="layernorm",
        positions=fields.integer("n_positions", "n_ctx", default=1024),
        rotary=False,
    )


def _gpt_neox(fields: Fields, name: str) -> ModelSpec:
    hidden = fields.integer("hidden_size")
    attention = _plain_attention(
        fields, hidden, "num_attention_heads", bias=fields.flag("attention_bias", default=True)
    )
    block = _block("block", attention, fields.integer("intermediate_size"))
    return ModelSpec(
        name=name,
        hidden=hidden,
        kinds=(block,),
        layers=(0,) * layer_count(fields, "num_hidden_layers"),
        vocab=fields.integer("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=False),
        norm="layernorm",
    )


def _bloom(fields: Fields, name: str) -> ModelSpec:
    hidden = fields.integer("hidden_size", "n_embed")
    block = _block("block", _plain_attention(fields, hidden, _first(fields, "n_head")), 4 * hidden)
    return ModelSpec(
        name=name,
        hidden=hidden,
        kinds=(block,),
        layers=(0,) * layer_count(fields, "n_layer", "num_hidden_layers"),
        vocab=fields.integer("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=True),
        norm="layernorm",
        rotary=False,
        embedding_norm=True,
    )


def _first(fields: Fields, name: str) -> str:
    """Return ``name``, or the long spelling of the number of heads where only that is present."""
    return name if fields.values.get(name) is not None else "num_attention_heads"


def _falcon(fields: Fields, name: str) -> ModelSpec:
    """Read Falcon: 40B and 180B share keys among groups, 7B among all heads; both run sub-layers in parallel."""
    hidden = fields.integer("hidden_size")
    heads_name = _first(fields, "n_head")
    heads = fields.integer(heads_name)
    groups = fields.optional_integer("num_kv_heads", "n_head_kv")
    new = fields.flag("new_decoder_architecture", default=groups not in (None, heads))
    shared = fields.flag("multi_query", default=True)
    bias = fields.flag("bias", default=False)
    attention = AttentionSpec(
        heads=heads,
        kv_heads=(groups or heads) if new else (1 if shared else heads),
        head_dim=head_width(fields, hidden, heads, heads_name),
        qkv_bias=bias,
        out_bias=bias,
    )
    parallel = new or fields.flag("parallel_attn", default=True)
    norms = fields.integer("num_ln_in_parallel_attn", default=2 if new or not parallel else 1)
    ffn = fields.integer("ffn_hidden_size", default=4 * hidden)
    return ModelSpec(
        name=name,
        hidden=hidden,
        kinds=(_block("block", attention, ffn, bias=bias, norms=norms),),
        layers=(0,) * layer_count(fields, "num_hidden_layers", "n_layer"),
        vocab=fields.integer("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=True),
        norm="layernorm",
        rotary=not fields.flag("alibi", default=False),
    )


def _mpt(fields: Fields, name: str) -> ModelSpec:
    """Read MPT; without biases its layer norms have none either (llm-foundry's ``no_bias``)."""
    hidden = fields.integer("d_model", "hidden_size")
    bias = not fields.flag("no_bias", default=True)
    attention = _plain_attention(fields, hidden, "n_heads", bias=bias)
    ffn = fields.integer("expansion_ratio", default=4) * hidden
    inner = fields.child("attn_config") if "attn_config" in fields.values else Fields({}, "")
    alibi = inner.flag("alibi", default=True)
    return ModelSpec(
        name=name,
        hidden=hidden,
        kinds=(_block("block", attention, ffn, bias=bias),),
        layers=(0,) * layer_count(fields, "n_layers"),
        vocab=fields.integer("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=True),
        norm="layernorm",
        norm_bias=bias,
        positions=0 if alibi else fields.integer("max_seq_len", default=2048),
        rotary=False,
    )


def _opt(fields: Fields, name: str) -> ModelSpec:
    """Read OPT; its position table has two more rows than positions."""
    hidden = fields.integer("hidden_size")
    if fields.integer("word_embed_proj_dim", default=hidden) != hidden:
        raise fields.error("must equal hidden_size", "word_embed_proj_dim", nearest=hidden)
    bias = fields.flag("enable_bias", default=True)
    attention = _plain_attention(fields, hidden, "num_attention_heads", bias=bias)
    return ModelSpec(
        name=name,
        hidden=hidden,
        kinds=(_block("block", attention, fields.integer("ffn_dim"), bias=bias),),
        layers=(0,) * layer_count(fields, "num_hidden_layers"),
        vocab=fields.integer("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=True),
        norm="layernorm",
        positions=fields.integer("max_position_embeddings", default=2048) + 2,
        rotary=False,
    )


def _bert(fields: Fields, name: str) -> ModelSpec:
    """Read BERT as it is pre-trained: both heads, unless ``architectures`` names the masked one alone."""
    hidden = fields.integer("hidden_size")
    attention = _plain_attention(fields, hidden, "num_attention_heads", causal=False)
    block = _block("encoder", attention, fields.integer("intermediate_size"))
    masked_only = "BertForMaskedLM" in str(fields.values.get("architectures", ""))
    return ModelSpec(
        name=name,
        hidden=hidden,
        kinds=(block,),
        layers=(0,) * layer_count(fields, "num_hidden_layers"),
        vocab=fields.integer("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=True),
        norm="layernorm",
        positions=fields.integer("max_position_embeddings", default=512),
        token_types=fields.integer("type_vocab_size", default=2, minimum=0),
        rotary=False,
        embedding_norm=True,
        final_norm=False,
        head_transform=True,
        head_bias=True,
        pooler=not masked_only,
        classes=0 if masked_only else 2,
    )


def _vit(fields: Fields, name: str) -> ModelSpec:
    """Read ViT: the class token is one more position; without a classifier there is a pooler."""
    hidden = fields.integer("hidden_size")
    side = fields.integer("image_size", default=224) // fields.integer("patch_size", default=16)
    tokens = side * side + 1
    patch = fields.integer("patch_size", default=16) ** 2 * fields.integer(
        "num_channels", default=3
    )
    bias = fields.flag("qkv_bias", default=True)
    attention = _plain_attention(fields, hidden, "num_attention_heads", causal=False)
    attention = replace(attention, qkv_bias=bias)
    classes = _classes(fields)
    return ModelSpec(
        name=name,
        hidden=hidden,
        kinds=(_block("encoder", attention, fields.integer("intermediate_size")),),
        layers=(0,) * layer_count(fields, "num_hidden_layers"),
        vocab=0,
        norm="layernorm",
        positions=tokens,
        rotary=False,
        patch_inputs=patch,
        classes=classes,
        pooler=not classes,
        extra_parameters=hidden,
    )


def _classes(fields: Fields) -> int:
    if "ForImageClassification" not in str(fields.values.get("architectures", "")):
        return 0
    labels = fields.values.get("id2label")
    return len(labels) if isinstance(labels, Mapping) else fields.integer("num_labels", default=2)


def _t5(fields: Fields, name: str) -> ModelSpec:
    """Read T5: relative positions live in the first layer of each stack, the encoder has its own last norm."""
    hidden = fields.integer("d_model", "hidden_size")
    encoders = layer_count(fields, "num_layers", "num_hidden_layers")
    decoders = layer_count(fields, "num_decoder_layers", default=encoders)
    encoder = [_t5_layer(fields, hidden, index == 0) for index in range(encoders)]
    encoder[-1] = replace(encoder[-1], name="encoder-last", norms=encoder[-1].norms + 1)
    decoder = [_t5_layer(fields, hidden, index == 0, decoder=True) for index in range(decoders)]
    kinds, order = distinct(encoder + decoder)
    return ModelSpec(
        name=name,
        hidden=hidden,
        kinds=kinds,
        layers=order,
        vocab=fields.integer("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=True),
        rotary=False,
        decoder_start=encoders,
    )


def _t5_layer(fields: Fields, hidden: int, first: bool, *, decoder: bool = False) -> LayerSpec:
    heads = fields.integer("num_heads", "num_attention_heads")
    width = fields.integer("d_kv", default=64)
    buckets = fields.integer("relative_attention_num_buckets", default=32) if first else 0
    attention = AttentionSpec(
        heads=heads, kv_heads=heads, head_dim=width, causal=decoder, relative_buckets=buckets
    )
    cross = AttentionSpec(heads=heads, kv_heads=heads, head_dim=width, causal=False)
    gated = fields.text("feed_forward_proj", default="relu").startswith("gated")
    name = "decoder" if decoder else "encoder"
    return LayerSpec(
        name=f"{name}-first" if first else name,
        attention=attention,
        cross_attention=cross if decoder else None,
        mlp=MlpSpec(ffn=fields.integer("d_ff", default=4 * hidden), gated=gated),
        norms=3 if decoder else 2,
    )


_READERS: dict[str, Callable[[Fields, str], ModelSpec]] = {
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "bloom": _bloom,
    "falcon": _falcon,
    "mpt": _mpt,
    "opt": _opt,
    "bert": _bert,
    "vit": _vit,
    "t5": _t5,
}
