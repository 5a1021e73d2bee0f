"""Named behaviours that a scenario may switch and that change memory: ``TrainingSpec.options``."""

from collections.abc import Mapping
from types import MappingProxyType

from costmodel.errors import InputError
from costmodel.spec import TrainingSpec

SWITCH = ("on", "off", "true", "false")

MEMORY_OPTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "weights": ("fp32", "bf16"),
        "gradient_dtype": ("fp32", "bf16", "fp16"),
        "optimizer": ("adamw", "pure_bf16", "adam8bit", "precision_aware", "sgd"),
        "optimizer_step": ("fused", "foreach", "in_backward"),
        "loss": ("fused", "plain", "compiled", "chunked"),
        "dropout": SWITCH,
        "adapter": ("none", "lora", "qlora"),
        "adapter_rank": (),
        "kernels": ("fused", "eager"),
        "selective": ("core", "operators", "alternate", "norms"),
        "recompute_modules": (),
        "recompute_group": (),
        "offload_parameters": SWITCH,
    }
)
"""The keys of ``TrainingSpec.options`` that change memory, with their values (none listed: see below).

weights: type of FSDP's resident weights and gradients. gradient_dtype: accumulate gradients in this type. optimizer: ``pure_bf16`` keeps weights, gradients and moments in
bf16 (8 bytes); ``adam8bit`` has 1-byte moments; ``precision_aware`` is Megatron's fp32 master with bf16 moments and
gradients. optimizer_step: ``foreach`` needs a temporary of the shard, ``in_backward`` frees each gradient at once.
loss: ``plain`` keeps several fp32 copies of the logits, ``chunked`` (Liger, chunked cross entropy) hardly any.
adapter: train low-rank adapters only, of ``adapter_rank`` (16); the base is frozen in 16 bits or in 4 (``qlora``).
kernels: unfused norms and activations keep more tensors. selective: what selective recomputation repeats: the attention
core, all but every second matmul (torchtitan), every second layer (fms-fsdp), norms. recompute_modules: Megatron's list,
joined by ``+`` (RECOMPUTE_MODULES). recompute_group: layers between two kept inputs under full recomputation (1).
offload_parameters: DeepSpeed ZeRO-3 keeps the weights in host memory.
"""

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {"adapter": "none", "adapter_rank": "16", "recompute_group": "1", "offload_parameters": "off"}
)

RECOMPUTE_MODULES: tuple[str, ...] = (
    "core_attn",
    "layernorm",
    "mla_up_proj",
    "mlp",
    "moe",
    "moe_act",
)
"""Megatron-core's ``--recompute-modules`` that costmodel.activations knows."""


def option(training: TrainingSpec, key: str) -> str:
    """Return an option of ``training`` or its default."""
    return training.options.get(key, DEFAULTS[key])


def is_on(training: TrainingSpec, key: str) -> bool:
    """Return whether a switch of ``training`` is on; YAML writes it as ``true``."""
    return option(training, key) in ("on", "true")


def whole(training: TrainingSpec, key: str) -> int:
    """Return an option that counts something.

    Raises:
        InputError: If it is no whole number from 1.
    """
    text = option(training, key)
    if not str(text).isdigit() or int(text) < 1:
        raise InputError("must be a whole number from 1", key=f"training.options.{key}", value=text)
    return int(text)


def check_options(options: Mapping[str, str]) -> None:
    """Refuse values that an option of memory does not have.

    Raises:
        InputError: Naming the option, its value and the known ones.
    """
    for key, value in options.items():
        listed = key == "recompute_modules"
        known = RECOMPUTE_MODULES if listed else MEMORY_OPTIONS.get(key, ())
        wrong = [name for name in (value.split("+") if listed else [value]) if name not in known]
        if known and wrong:
            raise InputError(
                "must be a known value",
                key=f"training.options.{key}",
                value=wrong[0],
                nearest=known,
            )
