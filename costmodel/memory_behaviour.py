"""What each framework keeps in device memory: named, documented differences between training stacks.

Bytes per parameter follow the frameworks' own sources: Megatron-LM's ``theoretical_memory_usage.py`` (18 bytes, or
6 + 12/DP with the distributed optimizer), ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054, section 3) for DeepSpeed,
and FSDP's sharded fp32 weights (16 bytes over the shards). Which activations stay is Korthikanti et al. 2022
(arXiv 2205.05198, section 4) operator by operator; see costmodel.activations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from costmodel.errors import InputError
from costmodel.memory_options import check_options, option, whole
from costmodel.spec import Precision, TrainingSpec
from costmodel.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBehaviour:
    """Constants of one framework in one precision; every size is per element or per rank, in bytes.

    Attributes:
        framework: Name it was made from.
        weight: Resident bytes of a trained parameter (the copy that ZeRO-3 or FSDP shards).
        gradient, state: Bytes of its gradient and of its optimizer state (master copy and moments).
        frozen, quantised: Bytes of a parameter that is not trained, in 16 bits or in 4 with its scales.
        adapter_rank: Rank of the adapters that are trained in place of the weights, 0 for none.
        unreduced: Bytes of the 16-bit gradients that stay beside an fp32 accumulator.
        gradient_buffers: Whether gradients live in buffers of their own from start to end (Megatron, DeepSpeed);
            otherwise the backward pass makes them and the step frees them (torch).
        element: Bytes of an activation; ``matmul_input`` where a matmul keeps it (Transformer Engine: fp8).
        norm_copies: Copies of its input that an RMSNorm keeps (1: fused kernel; LayerNorm always is one).
        gathered_inputs: Whether matmuls keep their inputs gathered under sequence parallelism.
        activation_outputs: Copies of its output that a gated activation keeps beyond its input (0: fused).
        dropout: Whether LayerNorm models are trained with dropout, whose masks (1 byte) are kept.
        dispatch_copies: Copies of the routed tokens kept beyond the experts' inputs.
        logit_kept, logit_peak: Bytes per logit kept from loss to backward, and more at the moment of the loss.
        selective: What selective recomputation drops, a value of the option of that name.
        modules: Megatron modules that are recomputed besides.
        group: Layers between two kept inputs under full recomputation.
        offloads_gradients: Whether gradients follow an offloaded optimizer to host memory.
        gathered_layers: Layers whose whole weights are on the rank at once under ZeRO-3 and FSDP.
        gather: Bytes per gathered element.
        live_parameters: Elements that DeepSpeed's ZeRO-3 may keep gathered (``stage3_max_live_parameters``).
        bucket_elements: Elements of each of the ``buckets`` communication buffers (``reduce_bucket_size``).
        buckets: Number of such buffers.
        step: Temporary bytes per updated parameter during the optimizer step.
        transformer_engine: Whether its kernels are Transformer Engine's.
        layernorm: Whether the model's norms are LayerNorms.
        placeholder: Bytes per element of one dummy gradient for every distinct weight shape, which Transformer
            Engine caches when gradients are accumulated inside the matmul (TE 2.3 on; 2.10 on for experts).
        sequence_copies: Copies of the whole hidden stream around a gathered matmul under sequence parallelism:
            its input, its gradient, and the transposed copies of both collectives (fitted: torchtitan t4a, A17).
        fragmentation: Share of the dynamic allocations that the allocator reserves on top.
        recomputed_fragmentation: Added to it under full recomputation, whose buffers come and go between the
            inputs that stay.
        sharded_fragmentation: Added to it under ZeRO-3 and FSDP, whose gathers live on another stream.
        routed_fragmentation: Added to it for experts, whose shapes change from step to step;
            ``routed_fixed`` is what their buffers hold back whatever the batch.
        static_fragmentation: The same share of weights, gradients and optimizer state.
        unshared: Share of what other moments allocate that the caching allocator cannot reuse for this one.
        weight_versions: Whether each micro-batch in flight keeps its own version of the weights (PipeDream).
        context: Bytes of the CUDA context and libraries.
        communicator: Bytes of each communicator (NCCL channels and buffers).
        routed_communicator: Bytes of the all-to-all's buffers where its group leaves the node.
    """

    framework: str
    weight: float
    gradient: float
    state: float
    frozen: float = 2.0
    quantised: float = 0.55
    adapter_rank: int = 0
    unreduced: float = 0.0
    gradient_buffers: bool = True
    element: float = 2.0
    matmul_input: float = 2.0
    norm_copies: float = 1.0
    gathered_inputs: bool = False
    activation_outputs: float = 0.0
    layernorm: bool = False
    dropout: bool = False
    dispatch_copies: float = 0.0
    logit_kept: float = 4.0
    logit_peak: float = 2.0
    selective: str = "core"
    modules: tuple[str, ...] = ()
    group: int = 1
    offloads_gradients: bool = True
    gathered_layers: float = 2.0
    gather: float = 2.0
    live_parameters: float = 0.0
    bucket_elements: float = 0.0
    buckets: int = 0
    step: float = 0.0
    transformer_engine: bool = False
    placeholder: float = 0.0
    sequence_copies: float = 0.0
    fragmentation: float = 0.0
    recomputed_fragmentation: float = 0.0
    sharded_fragmentation: float = 0.12
    routed_fragmentation: float = 0.2
    routed_fixed: float = 2.0 * GIB
    static_fragmentation: float = 0.01
    unshared: float = 0.9
    weight_versions: bool = False
    context: float = 0.9 * GIB
    communicator: float = 0.4 * GIB
    routed_communicator: float = 3.0 * GIB


CONTEXT_SCALE: Mapping[str, float] = MappingProxyType({"volta": 0.4, "turing": 0.4})
"""Share of ``context`` and ``communicator`` on older generations (fewer channels, smaller kernels' images).

Fitted: device memory less states and activations of the 1.3B sweep on V100 against those on A100 (bigscience).
"""

_HALF = 2.0
_WORD = 4.0


def _megatron(training: TrainingSpec) -> MemoryBehaviour:
    """Megatron-core: fp32 gradient buffers, fused Adam, vocabulary-parallel loss in fp32."""
    return MemoryBehaviour(
        framework=training.framework,
        weight=_HALF,
        gradient=_WORD,
        state=12.0,
        dropout=True,
        offloads_gradients=False,
        transformer_engine=True,
        placeholder=_HALF,
        fragmentation=0.25,
    )


def _nemo(training: TrainingSpec) -> MemoryBehaviour:
    """NeMo and Megatron-Bridge recipes: Megatron-core with gradients kept and reduced in bf16."""
    return replace(_megatron(training), gradient=_HALF)


def _megatron_lm(training: TrainingSpec) -> MemoryBehaviour:
    """Megatron-LM of 2020-2022: fp16 gradients unless training in bf16; the loss is not fused.

    Logits exist in 16 bits, in fp32, and as exponentials (2 + 4 + 4 bytes).
    """
    gradient = _HALF if training.precision == "fp16" else _WORD
    return replace(
        _megatron(training),
        gradient=gradient,
        transformer_engine=False,
        placeholder=0.0,
        logit_peak=6.0,
    )


def _megatron_deepspeed(training: TrainingSpec) -> MemoryBehaviour:
    """Megatron-DeepSpeed with ZeRO-1: gradients in 16 bits, beside an fp32 accumulator if asked for (BLOOM).

    At the step the partition's gradients exist flat in 16 bits and in fp32 (6 bytes of the shard).
    """
    return replace(
        _megatron_lm(training),
        gradient=_HALF,
        unreduced=_HALF,
        dropout=False,
        step=6.0,
        bucket_elements=5e8,
        buckets=3,
        fragmentation=0.0,
        recomputed_fragmentation=0.2,
        context=2.5 * GIB,
        communicator=0.6 * GIB,
    )


def _nanotron(training: TrainingSpec) -> MemoryBehaviour:
    """Nanotron with ``accumulate_grad_in_fp32``: bf16 gradients live beside the fp32 buffer.

    Outputs of its collectives are kept for the backward pass and its gate is not fused (nanotron PR 203).
    """
    return replace(
        _megatron(training),
        gradient=_HALF + _WORD,
        transformer_engine=False,
        placeholder=0.0,
        gathered_inputs=True,
        activation_outputs=1.0,
    )


def _deepspeed(training: TrainingSpec) -> MemoryBehaviour:
    """DeepSpeed: 2 + 2 + 12 bytes, buckets of 5e8 elements, at most 1e9 gathered ones (its defaults).

    Two buckets reduce in turns and one gathers; at the step the shard's gradients exist flat and in fp32.
    """
    return MemoryBehaviour(
        framework=training.framework,
        weight=_HALF,
        gradient=_HALF,
        state=12.0,
        norm_copies=3.0,
        activation_outputs=1.0,
        logit_kept=4.0,
        logit_peak=8.4,
        live_parameters=1e9,
        bucket_elements=5e8,
        buckets=3,
        step=6.0,
    )


def _fsdp(training: TrainingSpec) -> MemoryBehaviour:
    """FSDP with mixed precision: weights, gradients and moments in fp32, gathered in 16 bits."""
    return MemoryBehaviour(
        framework=training.framework,
        weight=_WORD,
        gradient=_WORD,
        state=8.0,
        gradient_buffers=False,
        norm_copies=3.0,
        activation_outputs=1.0,
        logit_kept=4.0,
        logit_peak=8.4,
        step=_WORD,
        communicator=1.0 * GIB,
    )


def _composer(training: TrainingSpec) -> MemoryBehaviour:
    """Composer and llm-foundry: fused cross entropy on 16-bit logits, an optimizer that loops over parameters."""
    return replace(
        _fsdp(training), logit_kept=2.0, logit_peak=2.0, activation_outputs=0.0, step=0.0
    )


def _fms(training: TrainingSpec) -> MemoryBehaviour:
    """fms-fsdp: FSDP whose selective recomputation takes every second layer."""
    return replace(_fsdp(training), selective="alternate")


def _ddp(training: TrainingSpec) -> MemoryBehaviour:
    """DistributedDataParallel: its buckets are a second copy of the gradients."""
    return replace(_fsdp(training), gradient=2 * _WORD, gradient_buffers=True)


def _pipedream(training: TrainingSpec) -> MemoryBehaviour:
    """PipeDream: weight stashing keeps one version for each micro-batch in flight (SOSP 2019, section 3.3)."""
    return replace(_fsdp(training), weight_versions=True)


def _sagemaker(training: TrainingSpec) -> MemoryBehaviour:
    """SageMaker's rule of 20 bytes a parameter: 2 + 2 and, sharded, fp32 weights, gradients and moments."""
    return replace(_deepspeed(training), state=16.0, live_parameters=0.0, buckets=0, step=0.0)


def _torchtitan(training: TrainingSpec) -> MemoryBehaviour:
    """Torchtitan: FSDP2 with fused AdamW; selective recomputation keeps every second matmul's output.

    DTensor's linear keeps the gathered input, and its collectives along the sequence copy to transpose.
    """
    return replace(
        _fsdp(training),
        step=0.0,
        selective="operators",
        logit_peak=10.0,
        sequence_copies=7.0,
        gathered_inputs=True,
        sharded_fragmentation=0.05,
    )


_FRAMEWORKS: Mapping[str, Callable[[TrainingSpec], MemoryBehaviour]] = MappingProxyType(
    {
        "accelerate": _fsdp,
        "composer": _composer,
        "ddp": _ddp,
        "deepspeed": _deepspeed,
        "fms-fsdp": _fms,
        "fsdp": _fsdp,
        "hf-trainer": _fsdp,
        "megatron": _megatron,
        "megatron-deepspeed": _megatron_deepspeed,
        "megatron-lm": _megatron_lm,
        "nanotron": _nanotron,
        "nemo": _nemo,
        "pipedream": _pipedream,
        "sagemaker": _sagemaker,
        "torchgpipe": _fsdp,
        "torchtitan": _torchtitan,
        "unknown": _fsdp,
    }
)

FRAMEWORKS_WITH_MEMORY: tuple[str, ...] = tuple(sorted(_FRAMEWORKS))


def memory_behaviour(training: TrainingSpec, *, layernorm: bool = False) -> MemoryBehaviour:
    """Return the constants that hold for ``training``; ``layernorm`` models train with dropout by default.

    Raises:
        InputError: If the framework is unknown or an option has no such value.
    """
    maker = _FRAMEWORKS.get(training.framework)
    if maker is None:
        raise InputError(
            "must be a known framework",
            key="training.framework",
            value=training.framework,
            nearest=FRAMEWORKS_WITH_MEMORY,
        )
    check_options(training.options)
    behaviour = _with_precision(maker(training), training.precision)
    for key, value in training.options.items():
        if change := _CHANGES.get((key, value)):
            behaviour = change(behaviour)
    usual = "on" if behaviour.dropout and layernorm else "off"
    modules = training.options.get("recompute_modules", "")
    return replace(
        behaviour,
        layernorm=layernorm,
        dropout=training.options.get("dropout", usual) in ("on", "true"),
        adapter_rank=0
        if option(training, "adapter") == "none"
        else whole(training, "adapter_rank"),
        modules=tuple(name for name in modules.split("+") if name),
        group=whole(training, "recompute_group"),
    )


def _with_precision(behaviour: MemoryBehaviour, precision: Precision) -> MemoryBehaviour:
    """Return the behaviour in fp32 (no master copy: 4 + 4 + 8) or in fp8 (Transformer Engine keeps fp8 inputs)."""
    if precision == "fp8" and behaviour.transformer_engine:
        return replace(behaviour, matmul_input=1.0)
    if precision not in ("fp32", "tf32"):
        return behaviour
    return replace(
        behaviour,
        weight=_WORD,
        gradient=_WORD,
        state=8.0,
        element=_WORD,
        matmul_input=_WORD,
        step=0.0 if behaviour.gradient_buffers else behaviour.step,
        frozen=_WORD,
        gather=_WORD,
    )


def _named(**values: str) -> Callable[[MemoryBehaviour], MemoryBehaviour]:
    return lambda behaviour: replace(behaviour, **values)  # type: ignore[arg-type]


def _changed(**values: float) -> Callable[[MemoryBehaviour], MemoryBehaviour]:
    return lambda behaviour: replace(behaviour, **values)  # type: ignore[arg-type]


_CHANGES: Mapping[tuple[str, str], Callable[[MemoryBehaviour], MemoryBehaviour]] = MappingProxyType(
    {
        ("weights", "fp32"): _changed(weight=_WORD, gradient=_WORD),
        ("weights", "bf16"): _changed(weight=_HALF, gradient=_HALF),
        ("gradient_dtype", "fp32"): lambda b: replace(b, gradient=_WORD + b.unreduced),
        ("gradient_dtype", "bf16"): _changed(gradient=_HALF),
        ("gradient_dtype", "fp16"): _changed(gradient=_HALF),
        # 2 + 2 + 4, and the foreach update holds one bf16 temporary of the shard.
        ("optimizer", "pure_bf16"): lambda b: replace(
            b, weight=_HALF, gradient=_HALF, state=_WORD, step=_HALF if b.step else 0.0
        ),
        ("optimizer", "adam8bit"): lambda b: replace(
            b, state=b.state - 6.0 if b.state > 6.0 else 2.0
        ),
        ("optimizer", "precision_aware"): _changed(gradient=_HALF, state=8.0),
        ("optimizer", "sgd"): lambda b: replace(b, state=max(0.0, b.state - 8.0)),
        ("optimizer_step", "fused"): _changed(step=0.0),
        ("optimizer_step", "foreach"): lambda b: replace(b, step=b.weight),
        ("optimizer_step", "in_backward"): _changed(step=0.0, gradient=0.0),
        ("loss", "fused"): lambda b: replace(b, logit_peak=min(b.logit_peak, 4.3)),
        ("loss", "plain"): _changed(logit_kept=4.0, logit_peak=8.4),
        ("loss", "compiled"): _changed(logit_kept=4.0, logit_peak=2.0),
        ("loss", "chunked"): _changed(logit_kept=0.0, logit_peak=1.0),
        ("selective", "core"): _named(selective="core"),
        ("selective", "operators"): _named(selective="operators"),
        ("selective", "alternate"): _named(selective="alternate"),
        ("selective", "norms"): _named(selective="norms"),
        ("kernels", "fused"): _changed(norm_copies=1.0, activation_outputs=0.0, gathered_inputs=0),
        ("kernels", "eager"): _changed(norm_copies=3.0, activation_outputs=1.0),
    }
)
