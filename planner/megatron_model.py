"""Megatron's model flags to a ModelSpec; the other direction is planner.export.megatron_model.

Defaults are those of megatron-core 0.16 to 0.20 (``validate_args``).
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from costmodel.errors import InputError
from costmodel.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from planner.export.megatron_model import LATENT_WIDTHS
from planner.megatron_text import Flags

# Vocabulary of the tokenizers that Megatron ships, where no --vocab-size stands (their published tables).
_TOKENIZER_VOCAB = {"GPT2BPETokenizer": 50257, "BertWordPieceLowerCase": 30522}


def read_model(flags: Flags, name: str) -> ModelSpec:
    """Return the model that the flags describe.

    Raises:
        InputError: If a needed flag is missing or has a value that means nothing.
    """
    hidden, layers = flags.need("--hidden-size"), flags.need("--num-layers")
    kinds, order = _kinds(flags, hidden, layers)
    positions = _position_kind(flags)
    learned = positions == "learned_absolute"
    return ModelSpec(
        name=name,
        hidden=hidden,
        kinds=kinds,
        layers=order,
        vocab=_vocab(flags),
        tied=not flags.has("--untie-embeddings-and-output-weights"),
        norm="rmsnorm" if flags.text("--normalization") == "RMSNorm" else "layernorm",
        positions=flags.need("--max-position-embeddings") if learned else 0,
        rotary=positions in ("rope", "mrope", "yarn"),
        mtp_layers=flags.integer("--mtp-num-layers", 0) or 0,
        source=f"Megatron arguments in {Path(flags.file).name}",
    )


def _position_kind(flags: Flags) -> str:
    if flags.has("--use-rotary-position-embeddings"):
        return "rope"
    return flags.text("--position-embedding-type", "learned_absolute") or ""


def _vocab(flags: Flags) -> int:
    given = flags.integer("--vocab-size")
    known = _TOKENIZER_VOCAB.get(flags.text("--tokenizer-type") or "")
    if given is None and known is None:
        rule = "must be given, because the tokenizer's table is not part of the arguments"
        raise InputError(rule, file=flags.file, key="--vocab-size")
    return given or known or 0


def _kinds(flags: Flags, hidden: int, layers: int) -> tuple[tuple[LayerSpec, ...], tuple[int, ...]]:
    """Return the distinct layers in order of appearance and the kind of each layer."""
    routed = _routed_layers(flags, layers)
    windowed = _windowed_layers(flags, layers)
    seen: dict[tuple[bool, bool], LayerSpec] = {}
    for key in zip(routed, windowed, strict=True):
        if key not in seen:
            seen[key] = LayerSpec(
                name=_kind_name(key, len(set(routed)) > 1, len(set(windowed)) > 1),
                attention=_attention(flags, hidden, key[1]),
                mlp=_mlp(flags, hidden, key[0]),
            )
    numbers = {key: index for index, key in enumerate(seen)}
    order = tuple(numbers[key] for key in zip(routed, windowed, strict=True))
    return tuple(seen.values()), order


def _kind_name(key: tuple[bool, bool], mixture: bool, windows: bool) -> str:
    words = [("moe" if key[0] else "dense")] if mixture else ["block"]
    return "-".join([*words, *(["window" if key[1] else "full"] if windows else [])])


def _attention(flags: Flags, hidden: int, windowed: bool) -> AttentionSpec:
    heads = flags.need("--num-attention-heads")
    latent = flags.has("--multi-latent-attention")
    groups = flags.integer("--num-query-groups") if flags.has("--group-query-attention") else None
    bias = not flags.has("--disable-bias-linear")
    widths: dict[str, Any] = (
        {name: flags.integer(flag, 0) or 0 for flag, name in LATENT_WIDTHS} if latent else {}
    )
    return AttentionSpec(
        heads=heads,
        kv_heads=groups or heads,
        head_dim=flags.integer("--kv-channels") or hidden // heads,
        qkv_bias=bias or flags.has("--add-qkv-bias"),
        out_bias=bias,
        qk_norm=flags.has("--qk-layernorm") and not latent,
        window=_window(flags) if windowed else None,
        sinks=flags.text("--softmax-type") == "learnable",
        **widths,
    )


def _mlp(flags: Flags, hidden: int, routed: bool) -> MlpSpec:
    gated = flags.has("--swiglu")
    ffn = flags.integer("--ffn-hidden-size") or _default_ffn(hidden, gated)
    bias = not flags.has("--disable-bias-linear")
    if not routed:
        return MlpSpec(ffn=ffn, gated=gated, bias=bias)
    return MlpSpec(
        ffn=flags.integer("--moe-ffn-hidden-size") or ffn,
        gated=gated,
        bias=bias,
        experts=flags.need("--num-experts"),
        topk=flags.integer("--moe-router-topk", 2) or 2,
        shared_ffn=flags.integer("--moe-shared-expert-intermediate-size", 0) or 0,
        router_bias=bias or flags.has("--moe-router-enable-expert-bias"),
    )


def _default_ffn(hidden: int, gated: bool) -> int:
    """Return Megatron's default width: 4 h, or two thirds of it in steps of 64 with SwiGLU."""
    return int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden


def _window(flags: Flags) -> int:
    text = flags.text("--window-size") or ""
    match = re.fullmatch(r"\(?(\d+),\s*-?\d+\)?", text)
    if match is None:
        rule = "must be two whole numbers"
        raise InputError(rule, file=flags.file, key="--window-size", value=text, nearest="4095,0")
    return int(match[1]) + 1


def _windowed_layers(flags: Flags, layers: int) -> tuple[bool, ...]:
    if not flags.has("--window-size"):
        return (False,) * layers
    if not flags.has("--window-attn-skip-freq"):
        return (True,) * layers
    return _switches(
        flags, "--window-attn-skip-freq", layers, lambda index, n: (index + 1) % n != 0
    )


def _routed_layers(flags: Flags, layers: int) -> tuple[bool, ...]:
    if not flags.has("--num-experts"):
        return (False,) * layers
    if not flags.has("--moe-layer-freq"):
        return (True,) * layers
    return _switches(flags, "--moe-layer-freq", layers, lambda index, n: index % n == 0)


def _switches(
    flags: Flags, name: str, layers: int, periodic: Callable[[int, int], bool]
) -> tuple[bool, ...]:
    """Read a period ``N`` or a list expression such as ``([0]*3+[1]*58)``."""
    text = flags.text(name) or ""
    if text.isdigit() and int(text) > 0:
        return tuple(periodic(index, int(text)) for index in range(layers))
    switches = _pattern(text)
    if len(switches) != layers:
        rule = f"must be a period or a list of {layers} switches"
        raise InputError(rule, file=flags.file, key=name, value=text)
    return switches


def _pattern(text: str) -> tuple[bool, ...]:
    """Return the switches of a sum of repeated lists, empty where the text is none."""
    body = text.replace(" ", "")
    outer = re.fullmatch(r"\((?P<body>[^()]*)\)(?:\*(?P<times>\d{1,4}))?", body)
    body, times = (outer["body"], int(outer["times"] or 1)) if outer else (body, 1)
    switches: list[bool] = []
    for part in body.split("+"):
        match = re.fullmatch(r"\[([01](?:,[01])*)\](?:\*(\d{1,4}))?", part)
        if match is None:
            return ()
        switches += [digit == "1" for digit in match[1].split(",")] * int(match[2] or 1)
    return tuple(switches) * times
