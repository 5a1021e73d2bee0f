"""Megatron's model flags: ModelSpec to ``--flag value`` lines, and what those flags cannot say.

Spellings are those of megatron-core 0.16 to 0.20 (``megatron/training/arguments.py``). Activation function,
rotary base, initialisation and tokenizer change neither time nor memory, are not part of a ModelSpec and are
therefore left to the user. Blocks whose attention and MLP stand side by side (GPT-NeoX, Falcon) are described as the
sequential block of the same sizes, which is what ``pretrain_gpt.py`` trains.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from costmodel.errors import UnsupportedError
from costmodel.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, TrainingSpec
from planner.export.target import Launch, Refusal

Line = tuple[str, ...]

# Widths of latent attention (MLA): flag and the AttentionSpec field it carries.
LATENT_WIDTHS: tuple[tuple[str, str], ...] = (
    ("--q-lora-rank", "q_lora_rank"),
    ("--kv-lora-rank", "kv_lora_rank"),
    ("--qk-head-dim", "qk_nope_head_dim"),
    ("--qk-pos-emb-head-dim", "qk_rope_head_dim"),
    ("--v-head-dim", "v_head_dim"),
)
VOCAB_MULTIPLE = 128  # Megatron's default of --make-vocab-size-divisible-by


def model_lines(model: ModelSpec, training: TrainingSpec) -> list[Line]:
    """Return the flags that describe a model for which ``model_refusals`` is empty."""
    kinds = _used_kinds(model)
    attention = _attention(kinds[0])
    return [
        ("--num-layers", str(len(model.layers))),
        ("--hidden-size", str(model.hidden)),
        *_attention_lines(attention),
        *_window_lines(model),
        *_mlp_lines(model),
        *_bias_lines(attention, _mlp(kinds[0])),
        ("--normalization", "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm"),
        *_position_lines(model, training),
        *([] if model.tied else [("--untie-embeddings-and-output-weights",)]),
        ("--vocab-size", str(model.vocab)),
        ("--make-vocab-size-divisible-by", str(VOCAB_MULTIPLE)),
        *([("--mtp-num-layers", str(model.mtp_layers))] if model.mtp_layers else []),
    ]


def model_refusals(launch: Launch) -> Iterator[Refusal]:
    """Yield what of the model no flag of ``pretrain_gpt.py`` describes."""
    model = launch.model
    for name, rule in _WHOLE_MODEL.items():
        if getattr(model, name):
            yield Refusal(field=f"model.{name}", rule=rule, value=getattr(model, name))
    if not model.final_norm:
        yield Refusal(field="model.final_norm", rule="GPT models end with a norm", value=False)
    if not model.vocab:
        yield Refusal(field="model.vocab", rule="pretrain_gpt.py trains on tokens", value=0)
    sequence = launch.training.sequence
    if 0 < model.positions < sequence:
        yield Refusal(
            field="training.sequence",
            rule="a sequence has at most as many tokens as there are learned positions",
            value=sequence,
            nearest=model.positions,
        )
    kinds = _used_kinds(model)
    for kind in kinds:
        yield from _kind_refusals(kind)
    if any(kind.attention is None or kind.mlp is None for kind in kinds):
        return
    yield from _mixture_refusals(kinds)


_WHOLE_MODEL = {
    "decoder_start": "encoder-decoder models need pretrain_t5.py",
    "token_types": "models with token types need pretrain_bert.py",
    "embedding_norm": "no flag puts a norm behind the embedding",
    "head_transform": "models with a head transform need pretrain_bert.py",
    "head_bias": "no flag gives the head a bias",
    "pooler": "models with a pooler need pretrain_bert.py",
    "patch_inputs": "models on images need pretrain_vision_classify.py",
    "classes": "classification heads need their own program",
    "extra_parameters": "no flag adds parameters outside the layers",
}


def _kind_refusals(kind: LayerSpec) -> Iterator[Refusal]:
    where = f"model.kinds.{kind.name}"
    attention, mlp = kind.attention, kind.mlp
    if attention is None or mlp is None:
        yield Refusal(field=where, rule="every layer must have attention and an MLP")
        return
    rules = (
        (kind.cross_attention is not None, "cross-attention needs pretrain_t5.py"),
        (kind.norms != 2, "layers have two norms"),
        (kind.frozen, "no flag freezes single layers"),
        (not attention.causal, "attention is causal"),
        (attention.relative_buckets > 0, "no flag gives single layers a relative position bias"),
        (attention.out_bias and not attention.qkv_bias, "an output bias comes with qkv biases"),
        (attention.out_bias != mlp.bias, "attention output and MLP have biases together"),
        (mlp.router_bias and mlp.bias != attention.qkv_bias, "router biases follow the others"),
    )
    for broken, rule in rules:
        if broken:
            yield Refusal(field=where, rule=rule)


def _mixture_refusals(kinds: tuple[LayerSpec, ...]) -> Iterator[Refusal]:
    """Yield differences between kinds other than window and dense against routed MLPs."""
    attentions = {_without_window(_attention(kind)) for kind in kinds}
    windows = {_attention(kind).window for kind in kinds} - {None}
    mlps = [_mlp(kind) for kind in kinds]
    dense = {mlp for mlp in mlps if not mlp.experts}
    routed = {mlp for mlp in mlps if mlp.experts}
    rules = (
        (len(attentions) > 1, "all layers have the same attention but for the window"),
        (len(windows) > 1, "all windows are of one size"),
        (len(dense) > 1, "all dense MLPs are equal"),
        (len(routed) > 1, "all routed MLPs are equal"),
        (len({(mlp.gated, mlp.bias) for mlp in mlps}) > 1, "all MLPs are gated and biased alike"),
    )
    for broken, rule in rules:
        if broken:
            yield Refusal(field="model.kinds", rule=rule)


def _used_kinds(model: ModelSpec) -> tuple[LayerSpec, ...]:
    return tuple(model.kinds[index] for index in sorted(set(model.layers)))


def _attention(kind: LayerSpec) -> AttentionSpec:
    if kind.attention is None:
        raise UnsupportedError(f"layer {kind.name} has no attention")
    return kind.attention


def _mlp(kind: LayerSpec) -> MlpSpec:
    if kind.mlp is None:
        raise UnsupportedError(f"layer {kind.name} has no MLP")
    return kind.mlp


def _without_window(spec: AttentionSpec) -> AttentionSpec:
    return replace(spec, window=None)


def _attention_lines(spec: AttentionSpec) -> Iterator[Line]:
    yield ("--num-attention-heads", str(spec.heads))
    if spec.latent:
        yield ("--multi-latent-attention",)
        for flag, name in LATENT_WIDTHS:
            if value := getattr(spec, name):
                yield (flag, str(value))
    else:
        yield ("--kv-channels", str(spec.head_dim))
        if spec.kv_heads != spec.heads:
            yield ("--group-query-attention",)
            yield ("--num-query-groups", str(spec.kv_heads))
    if spec.qk_norm or spec.latent:  # MLA's latent norms hang on the same switch
        yield ("--qk-layernorm",)
    if spec.sinks:
        yield ("--softmax-type", "learnable")


def _window_lines(model: ModelSpec) -> Iterator[Line]:
    windows = [_attention(model.kinds[index]).window for index in model.layers]
    sizes = {window for window in windows if window is not None}
    if sizes:
        # Megatron counts the tokens to the left of the query, the spec also the query itself.
        yield ("--window-size", f"{sizes.pop() - 1},0")
        if None in windows:
            yield ("--window-attn-skip-freq", pattern([window is not None for window in windows]))


def _mlp_lines(model: ModelSpec) -> Iterator[Line]:
    mlps = [_mlp(model.kinds[index]) for index in model.layers]
    dense = next((mlp for mlp in mlps if not mlp.experts), None)
    routed = next((mlp for mlp in mlps if mlp.experts), None)
    yield ("--ffn-hidden-size", str((dense or mlps[0]).ffn))
    if mlps[0].gated:
        yield ("--swiglu",)
    if routed is None:
        return
    yield ("--num-experts", str(routed.experts))
    yield ("--moe-router-topk", str(routed.topk))
    yield ("--moe-ffn-hidden-size", str(routed.ffn))
    if routed.shared_ffn:
        yield ("--moe-shared-expert-intermediate-size", str(routed.shared_ffn))
    if dense is not None:
        yield ("--moe-layer-freq", pattern([mlp.experts > 0 for mlp in mlps]))
    if routed.router_bias and not routed.bias:  # with biases everywhere the router has one as well
        yield ("--moe-router-score-function", "sigmoid")
        yield ("--moe-router-enable-expert-bias",)
    yield ("--moe-token-dispatcher-type", "alltoall")
    yield ("--moe-grouped-gemm",)


def _bias_lines(attention: AttentionSpec, mlp: MlpSpec) -> Iterator[Line]:
    if not mlp.bias:
        yield ("--disable-bias-linear",)
        if attention.qkv_bias:
            yield ("--add-qkv-bias",)


def _position_lines(model: ModelSpec, training: TrainingSpec) -> Iterator[Line]:
    kind = "learned_absolute" if model.positions else "rope" if model.rotary else "none"
    yield ("--position-embedding-type", kind)
    yield ("--max-position-embeddings", str(model.positions or training.sequence))


def pattern(switches: list[bool]) -> str:
    """Return Megatron's list expression of 0 and 1, runs folded: ``([0]*3+[1]*58)``."""
    runs = [(int(value), len(list(run))) for value, run in groupby(switches)]
    return "(" + "+".join(f"[{value}]*{count}" for value, count in runs) + ")"
