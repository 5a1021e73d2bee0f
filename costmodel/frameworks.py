"""How named frameworks behave in time: what they overlap, fuse, gather and copy.

A framework is a value of switches and of names of constants (costmodel.constants); nothing here is a factor for a
source of runs. What is not known is priced without overlap. ``TrainingSpec.options`` overrides switches by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from costmodel.errors import InputError
from costmodel.local_parameters import padded
from costmodel.memory_options import MEMORY_OPTIONS
from costmodel.spec import TrainingSpec

ContextExchange = Literal["ring", "all_to_all"]
SelectiveKind = Literal["core", "operators", "alternate", "norms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """Behaviour of one framework.

    Attributes:
        name: As scenarios write it.
        known: Whether runs of it entered the fit; predictions of others get wider bands.
        elementwise: Which ``elementwise.*`` constant its block kernels follow.
        attention: Generation of its flash kernel, an ``attention.*`` constant.
        host: Which ``host.layer.*`` constant its launches follow.
        fused_loss: Whether the cross entropy is one kernel.
        sync_batch_norm: Whether replicas normalise batches together (torch.nn.SyncBatchNorm).
        tp_overlap: Whether tensor-parallel collectives run beside matmuls.
        tp_backward_overlap: Whether those of the backward hide behind weight gradients.
        gradient_overlap: Whether gradients are reduced during the last backward.
        gather_overlap: Whether ZeRO-1 gathers parameters during the next forward.
        gradient_bytes: Bytes per gradient element on the wire; 0 means those of the compute type.
        accumulate_bytes: Memory traffic per parameter and micro-batch of adding a gradient to its accumulator.
        optimizer_bytes: Memory traffic of the optimizer step per local parameter.
        gather_bytes, reduce_bytes: FSDP traffic per parameter on the wire; 0 means those of the compute type.
        node_dispatch: Whether a routed token crosses the network once per node, not once per expert (DeepEP).
        fsdp: Whether parameters are gathered per layer even under ZeRO 2 (SHARD_GRAD_OP).
        hybrid_sharding: Whether FSDP shards inside a node and replicates across nodes.
        scatter_gather: Whether pipeline transfers are cut over the tensor-parallel ranks.
        p2p: Which ``p2p.*`` constant its pipeline exchange follows without interleaving.
        selective: What "selective" recomputation repeats.
        context_exchange: How context parallelism exchanges keys and values.
        vocab_multiple: The vocabulary is padded to a multiple of this times the tensor-parallel size.
        iteration, microbatch: Which ``iteration.*`` and ``microbatch.*`` constants it follows.
        bucket_bytes: Bytes that one call of a bucketed collective moves: its latency is paid once per bucket.
        bucket_rank_bytes: The same per data-parallel rank, where buckets grow with the ranks.
        zero3: Multiple of ZeRO-3's link time, the name of a constant, or "" for 1.
        source: Where its behaviour is documented.
    """

    name: str
    known: bool = True
    elementwise: str = "other"
    attention: str = "te"
    host: str = "other"
    fused_loss: bool = False
    sync_batch_norm: bool = False
    tp_overlap: bool = False
    tp_backward_overlap: bool = False
    gradient_overlap: bool = False
    gather_overlap: bool = False
    gradient_bytes: int = 0
    accumulate_bytes: float = 6.0
    optimizer_bytes: float = 44.0
    gather_bytes: int = 0
    reduce_bytes: int = 0
    node_dispatch: bool = False
    fsdp: bool = False
    hybrid_sharding: bool = False
    scatter_gather: bool = False
    p2p: str = "other"
    selective: SelectiveKind = "core"
    context_exchange: ContextExchange = "ring"
    vocab_multiple: int = 1
    iteration: str = "other"
    microbatch: str = "other"
    bucket_bytes: int = 256 << 20
    bucket_rank_bytes: int = 0
    zero3: str = ""
    source: str = ""


# bucket_bytes: DeepSpeed 5e8 elements, Megatron the larger of 40 million parameters and a million per rank.
# accumulate_bytes: an fp16 add reads two and writes one (6); Megatron's fused weight-gradient kernel reads and writes
# the fp32 accumulator (8); an unfused fp32 add reads 2 + 4 and writes 4 (10), of fp32 gradients 12; FSDP accumulates the reduced shard only.
# optimizer_bytes: Adam reads gradient 4, master, m, v 12, writes 12 and the 16-bit weight 2, and the gradient is
# cleared, unscaled and its norm taken (14 more) = 44; pure 16-bit Adam moves half.
_MEGATRON = Framework(
    name="megatron",
    elementwise="megatron",
    host="megatron",
    tp_backward_overlap=True,
    gradient_bytes=4,
    accumulate_bytes=8.0,
    scatter_gather=True,
    p2p="megatron",
    vocab_multiple=128,
    iteration="megatron",
    microbatch="megatron",
    bucket_bytes=160_000_000,
    bucket_rank_bytes=4_000_000,
    source="Megatron-core with Transformer Engine; docs/source/api-guide, arguments.py",
)
_FSDP = Framework(
    name="fsdp",
    known=False,
    elementwise="eager",
    attention="fa2",
    host="fsdp",
    gradient_bytes=4,
    accumulate_bytes=0.0,
    reduce_bytes=4,
    fsdp=True,
    source="torch.distributed.fsdp with bf16 parameters and fp32 reduction",
)
_HF = replace(
    _FSDP,
    name="hf-trainer",
    known=True,
    elementwise="hf",
    host="hf",
    source="transformers.Trainer, eager modelling code, FSDP or DDP through accelerate",
)
_DEEPSPEED = Framework(
    name="deepspeed",
    elementwise="deepspeed",
    attention="fa2",
    host="hf",
    gradient_overlap=True,
    p2p="deepspeed",
    iteration="megatron-deepspeed",
    microbatch="megatron-deepspeed",
    source="DeepSpeed ZeRO with overlap_comm and prefetching",
)
# DDP and the pipelines below run the same eager modules as DeepSpeed: they differ in what they exchange and keep.
_STAGES = replace(
    _DEEPSPEED,
    name="stages",
    known=False,
    gradient_bytes=4,
    accumulate_bytes=12.0,
    gradient_overlap=False,
    p2p="other",
)

_ALL: tuple[Framework, ...] = (
    _MEGATRON,
    replace(
        _MEGATRON,
        name="megatron-lm",
        elementwise="megatron-lm",
        host="megatron-lm",
        tp_backward_overlap=False,
        gradient_bytes=0,
        accumulate_bytes=10.0,
        source="Megatron-LM of 2020-2022, arXiv 1909.08053, 2104.04473, 2205.05198; fp16 or fp32 reduction",
    ),
    replace(
        _MEGATRON,
        name="nemo",
        elementwise="nemo",
        tp_overlap=True,
        gradient_overlap=True,
        gather_overlap=True,
        source="NeMo and Megatron-Bridge recipes: user-buffer TP overlap, overlap_grad_reduce, overlap_param_gather",
    ),
    Framework(
        name="megatron-deepspeed",
        elementwise="megatron-lm",
        attention="triton",
        host="megatron-deepspeed",
        accumulate_bytes=10.0,
        scatter_gather=True,
        p2p="deepspeed",
        vocab_multiple=128,
        iteration="megatron-deepspeed",
        microbatch="megatron-deepspeed",
        zero3="zero3.legacy",
        source="Megatron-DeepSpeed of 2021-2022: DeepSpeed pipeline engine (activations cut over the ranks of a stage), no overlap",
    ),
    _DEEPSPEED,
    replace(
        _FSDP,
        name="composer",
        known=True,
        elementwise="composer",
        attention="triton",
        reduce_bytes=2,
        source="Composer / llm-foundry FSDP: 2-byte gathers, a reduction in every micro-batch",
    ),
    _FSDP,
    replace(
        _FSDP,
        name="torchtitan",
        known=True,
        elementwise="compiled",
        selective="operators",
        vocab_multiple=1,
        source="torchtitan FSDP2 with torch.compile, fp32 reduction; docs/performance.md",
    ),
    replace(
        _FSDP,
        name="fms-fsdp",
        known=True,
        elementwise="compiled",
        reduce_bytes=2,
        selective="alternate",
        source="foundation-model-stack/fms-fsdp: torch.compile, bf16 reduction",
    ),
    _HF,
    replace(
        _HF, name="accelerate", known=False, source="accelerate launches the same eager modules"
    ),
    replace(
        _MEGATRON,
        name="nanotron",
        known=False,
        elementwise="eager",
        attention="fa2",
        host="fsdp",
        tp_backward_overlap=False,
        bucket_bytes=25 << 20,
        accumulate_bytes=10.0,
        scatter_gather=False,
        p2p="other",
        vocab_multiple=1,
        iteration="other",
        microbatch="other",
        source="nanotron: fp32 accumulation, no overlap of its pipeline, make_vocab_size_divisible_by 1 (config.py)",
    ),
    replace(
        _DEEPSPEED,
        name="ddp",
        known=False,
        gradient_bytes=4,
        bucket_bytes=25 << 20,
        source="torch DistributedDataParallel, bucket_cap_mb=25, buckets reduced during the backward",
    ),
    replace(
        _STAGES,
        name="torchgpipe",
        source="torchgpipe (arXiv 2004.09910): eager modules in one process, copies between devices on streams",
    ),
    replace(
        _STAGES,
        name="pipedream",
        source="PipeDream (SOSP 2019): eager modules, transfers beside the computation (section 3.2)",
    ),
    replace(
        _STAGES,
        name="sagemaker",
        gradient_bytes=0,
        gradient_overlap=True,
        source="SageMaker model parallel library (arXiv 2111.05972): eager modules, all-reduce beside the backward",
    ),
    Framework(
        name="unknown",
        known=False,
        gradient_bytes=4,
        accumulate_bytes=10.0,
        bucket_bytes=25 << 20,
        source="no assumption: nothing overlaps, gradients are reduced in 32 bits and in small buckets",
    ),
)
FRAMEWORKS: Mapping[str, Framework] = {framework.name: framework for framework in _ALL}

_ON = {"on": True, "true": True, "yes": True, "1": True}
_OFF = {"off": False, "false": False, "no": False, "0": False}


def _switch(text: str) -> bool:
    return {**_ON, **_OFF}[text.lower()]


def _dtype_bytes(text: str) -> int:
    return {"fp32": 4, "bf16": 2, "fp16": 2}[text]


def _choice(*names: str) -> Callable[[str], str]:
    table = {name: name for name in names}
    return table.__getitem__


_LOSSES = {"fused": True, "compiled": True, "chunked": True, "plain": False}
_BLOCKS = ("compiled", "eager", "hf", "hf-kernels", "hf-liger", "composer-2023")

# Option name -> (field it overrides, reader, what it takes).
_OPTIONS: Mapping[str, tuple[str, Callable[[str], object], str]] = {
    "tp_overlap": ("tp_overlap", _switch, "on, off"),
    "tp_backward_overlap": ("tp_backward_overlap", _switch, "on, off"),
    "gradient_overlap": ("gradient_overlap", _switch, "on, off"),
    "gather_overlap": ("gather_overlap", _switch, "on, off"),
    "loss": ("fused_loss", _LOSSES.__getitem__, "fused, plain, compiled, chunked"),
    "sync_batch_norm": ("sync_batch_norm", _switch, "on, off"),
    "scatter_gather": ("scatter_gather", _switch, "on, off"),
    "node_dispatch": ("node_dispatch", _switch, "on, off"),
    "hybrid_sharding": ("hybrid_sharding", _switch, "on, off"),
    "gradient_dtype": ("gradient_bytes", _dtype_bytes, "fp32, bf16, fp16"),
    "reduce_dtype": ("reduce_bytes", _dtype_bytes, "fp32, bf16, fp16"),
    "gather_dtype": ("gather_bytes", _dtype_bytes, "fp32, bf16, fp16"),
    "block": ("elementwise", _choice(*_BLOCKS), ", ".join(_BLOCKS)),
    "attention_kernel": ("attention", _choice("te", "fa2", "triton"), "te, fa2, triton"),
    "selective": (
        "selective",
        _choice("core", "operators", "alternate", "norms"),
        "core, operators, alternate, norms",
    ),
    "context_exchange": ("context_exchange", _choice("ring", "all_to_all"), "ring, all_to_all"),
    "vocab_multiple": ("vocab_multiple", int, "a whole number"),
}


def framework(name: str) -> Framework:
    """Return the framework of that name.

    Raises:
        InputError: If there is none.
    """
    if name not in FRAMEWORKS:
        raise InputError(
            "must name a known framework",
            key="training.framework",
            value=name,
            nearest=sorted(FRAMEWORKS),
        )
    return FRAMEWORKS[name]


def behaviour(training: TrainingSpec) -> Framework:
    """Return the framework of ``training`` with its options applied.

    Raises:
        InputError: If the framework, an option or its value is not known.
    """
    changes: dict[str, object] = {}
    for option, text in training.options.items():
        key = f"training.options.{option}"
        if option not in _OPTIONS:
            if option not in MEMORY_OPTIONS:
                raise InputError("must name a known option", key=key, nearest=sorted(_OPTIONS))
            continue
        field, read, accepted = _OPTIONS[option]
        try:
            changes[field] = read(str(text))
        except (KeyError, ValueError) as error:
            raise InputError(
                "must be one of the option's values", key=key, value=text, nearest=accepted
            ) from error
    return replace(framework(training.framework), **changes)  # type: ignore[arg-type]


def padded_vocab(framework: Framework, vocab: int, tp: int) -> int:
    """Return the rows of the embedding that the framework allocates."""
    return padded(vocab, framework.vocab_multiple * tp)


def element_bytes(training: TrainingSpec) -> int:
    """Return the bytes of an activation or weight element in the matmuls' input type."""
    return 4 if training.precision in ("fp32", "tf32") else 2
