"""Which framework, with which switches, a measured run used: read from what its row says.

A column ``framework`` wins; else repository names and words in ``where``, ``source`` and ``notes``; else the shape of the
strategy. Rules name software, never a source of runs; what no rule knows becomes ``unknown``, which overlaps nothing.
"""

import re
from collections.abc import Mapping

from costmodel.frameworks import FRAMEWORKS

Row = Mapping[str, str]

# First match wins; patterns meet the lower-case text of where, source, model and notes.
_RULES: tuple[tuple[str, str], ...] = (
    (r"zero-3, no model parallelism|deepspeed zero|zero-infinity", "deepspeed-2021"),
    (r"nanotron", "nanotron"),
    (r"llm-foundry|composer|mosaic", "composer"),
    (r"torchtitan", "torchtitan"),
    (r"fms-fsdp", "fms-fsdp"),
    (
        r"fms-acceleration|hf trainer|huggingface/transformers|trl|axolotl|llama-factory",
        "hf-trainer",
    ),
    (r"accelerate", "accelerate"),
    (r"dgxc|megatron-bridge|nemo", "nemo"),
    (r"megatron-deepspeed|bigscience-workshop|deepspeed pipeline", "megatron-deepspeed"),
    (
        r"transformer_engine|transformer engine|\bte \d|megatron-core|primus|moe-modelzoo",
        "megatron",
    ),
    (r"megatron", "megatron-lm"),
    (r"xtuner|tinyllama|lit-gpt", "fsdp"),
    (r"deepspeed", "deepspeed"),
    (r"pytorch lamb|distributeddataparallel", "ddp"),
)


def text_of(row: Row) -> str:
    """Return the lower-case text that names software."""
    return " ".join(row.get(key, "") for key in ("where", "source", "notes")).lower()


def framework_of(row: Row) -> str:
    """Return the name of the framework that made the run."""
    stated = row.get("framework", "").strip().lower()
    if stated in FRAMEWORKS:
        return stated
    text = f"{stated} {text_of(row)}"
    name = next((name for pattern, name in _RULES if re.search(pattern, text)), "")
    name = name or _by_strategy(row)
    return _generation(name, row)


def _generation(name: str, row: Row) -> str:
    """Return the generation: Megatron with flash attention is Megatron-core, ZeRO-3 of 2021 is Megatron's fork."""
    if name == "deepspeed-2021":
        return "megatron-deepspeed" if row.get("attention") == "standard" else "deepspeed"
    if name == "megatron-lm" and row.get("attention") == "flash":
        return "megatron"
    return name


def _by_strategy(row: Row) -> str:
    if row.get("zero_stage", "") == "fsdp":
        return "fsdp"
    if row.get("zero_stage", "") in ("2", "3"):
        return "deepspeed"
    return "unknown"


def options_of(row: Row, framework: str) -> dict[str, str]:
    """Return the switches that the row states beyond its framework's defaults."""
    text, options = text_of(row), {}
    for pattern, frameworks, (key, value) in _SWITCHES:
        if framework in frameworks and key not in options and re.search(pattern, text):
            options[key] = value
    if framework in _HF and _pure_bf16(row, text):
        options["optimizer"] = "pure_bf16"
    return options


def _pure_bf16(row: Row, text: str) -> bool:
    """Whether weights and Adam states are bf16: mixed precision under FSDP keeps both in fp32."""
    mixed = "amp column bf16=true" in text and row.get("zero_stage") == "fsdp"
    return "pure bf16 weights" in text and not mixed


_MEGATRONS = frozenset({"megatron", "nemo", "megatron-lm", "megatron-deepspeed"})
_HF = frozenset({"hf-trainer", "accelerate"})
_TITAN = frozenset({"torchtitan"})
_EVERY = frozenset(FRAMEWORKS)
_SWITCHES: tuple[tuple[str, frozenset[str], tuple[str, str]], ...] = (
    (r"no tp/dp/pp overlap", _EVERY, ("tp_overlap", "off")),
    (r"no tp/dp/pp overlap", _EVERY, ("gradient_overlap", "off")),
    (r"no tp/dp/pp overlap", _EVERY, ("tp_backward_overlap", "off")),
    # Since 2022 the backward's all-reduce runs beside the weight gradient (--async-tensor-model-parallel-allreduce).
    (r"microsoft/megatron-deepspeed|seqsel|2205\.05198", _MEGATRONS, ("tp_backward_overlap", "on")),
    (r"async tp", _TITAN, ("tp_overlap", "on")),
    (r"tp[-_]comm[-_]overlap", _MEGATRONS, ("tp_overlap", "on")),
    (r"overlap[-_]grad[-_]reduce(=true)?", _MEGATRONS, ("gradient_overlap", "on")),
    (r"overlap[-_]param[-_]gather(=true)?", _MEGATRONS, ("gather_overlap", "on")),
    (
        r"cross[- ]entropy fusion|fused cross[- ]entropy|cross_entropy_loss_fusion",
        _EVERY,
        ("loss", "fused"),
    ),
    (r"deepep|hybridep|megatron-bridge", _EVERY, ("node_dispatch", "on")),
    (r"cp_comm_type=a2a|ulysses", _EVERY, ("context_exchange", "all_to_all")),
    (r"\bhsdp\b|hybrid[_ -]shard", _EVERY, ("hybrid_sharding", "on")),
    (r"scatter/gather", _MEGATRONS, ("scatter_gather", "on")),
    (r"selective layer|every second layer", _EVERY, ("selective", "alternate")),
    (r"op-level selective|selective op", _EVERY, ("selective", "operators")),
    (r"recompute modules: *(layernorm|norm|mla_up|moe_act|act)", _EVERY, ("selective", "norms")),
    (r"\btorch\.compile", _TITAN, ("block", "compiled")),
    (r"\beager\b|fsdp2", _TITAN, ("block", "eager")),
    (r"torch 1\.", frozenset({"composer"}), ("block", "composer-2023")),
    (r"framework=\S*liger|liger kernel", _HF, ("block", "hf-liger")),
    (r"framework=\S*liger|liger kernel", _HF, ("loss", "chunked")),
    (r"fast-kernels", _HF, ("block", "hf-kernels")),
    (r"fast-kernels", _HF, ("loss", "fused")),
    (r"fast-kernels", _HF, ("kernels", "fused")),
    (r"fp32 grad", _EVERY, ("gradient_dtype", "fp32")),
)
