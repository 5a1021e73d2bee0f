"""What is known of each physical constant of the time model before any run: meaning, prior and source.

A constant is positive and known to a factor: its prior is a median and a spread (standard deviation of the natural
logarithm).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One constant with what is known of it before any run.

    Attributes:
        name: Dotted name; the last part may name a device, an architecture, a link or a style.
        prior: Median before the fit.
        spread: Standard deviation of the logarithm before the fit.
        meaning: What it stands for, with its unit.
        source: Where the prior comes from.
    """

    name: str
    prior: float
    spread: float
    meaning: str
    source: str


def _family(
    stem: str, values: Mapping[str, float], spread: float, meaning: str, source: str
) -> Iterator[Constant]:
    for key, prior in values.items():
        yield Constant(
            name=f"{stem}.{key}", prior=prior, spread=spread, meaning=meaning, source=source
        )


_POWER_LAW = (
    "board power over dense peak: 0.97 * (W per TFLOP/s)^0.85, at most 0.83; A100 400 W / 312, H100 700 W / 989, "
    "V100 300 W / 125, B200 1000 W / 2250, GB200 1200 W / 2450 (data sheets)"
)
_STUDY = "study of public measured runs (tests/data/runs.csv)"

CONSTANTS: tuple[Constant, ...] = (
    *_family(
        "matmul.ceiling",
        {
            "volta": 0.82,
            "ampere": 0.83,
            "hopper": 0.72,
            "h100-sxm-96gb-hbm2e": 0.54,
            "blackwell": 0.55,
            "b200-sxm": 0.55,
            "gb200": 0.57,
            "ada": 0.75,
            "rtx-4090": 0.95,
            "rtx-5090": 0.90,
            "rtx-pro-6000": 0.90,
            "turing": 0.75,
            "cdna3": 0.5,
            "other": 0.6,
        },
        0.10,
        "share of the dense 16-bit peak that long matmuls sustain (clock under power, memory stalls)",
        _POWER_LAW,
    ),
    *_family(
        "matmul.ceiling8",
        {
            "hopper": 0.62,
            "h100-sxm-96gb-hbm2e": 0.47,
            "blackwell": 0.6,
            "ada": 0.7,
            "rtx-4090": 0.9,
            "other": 0.55,
        },
        0.15,
        "the same for 8-bit matmuls, as share of the 8-bit peak",
        "Transformer Engine and DeepGEMM report 1,200-1,500 of 1,979 TFLOP/s on H100",
    ),
    *_family(
        "matmul.ceiling32",
        {"ampere": 0.7, "hopper": 0.55, "volta": 0.85, "other": 0.7},
        0.2,
        "the same for fp32 and tf32 matmuls",
        _STUDY,
    ),
    Constant(
        name="matmul.prologue",
        prior=129.0,
        spread=0.3,
        meaning="filling and draining a tile's pipeline, in units of the inner dimension K",
        source="220 isolated A100 matmuls of Mist's operator table",
    ),
    Constant(
        name="matmul.misaligned",
        prior=6.0,
        spread=0.3,
        meaning="slowdown of matmuls whose inner or outer width is no multiple of 8 elements",
        source="cuBLAS tensor-core alignment rule; 108-wide heads in bigscience's sweep",
    ),
    Constant(
        name="matmul.grouped",
        prior=0.85,
        spread=0.2,
        meaning="efficiency of grouped (expert) matmuls over dense ones of the same shapes",
        source="CUTLASS grouped GEMM against batched GEMM on H100",
    ),
    Constant(
        name="memory.efficiency",
        prior=0.80,
        spread=0.08,
        meaning="share of the memory bandwidth that streaming kernels reach",
        source="STREAM-like kernels reach 0.75-0.92 on A100 and H100",
    ),
    Constant(
        name="kernel.gap",
        prior=3e-6,
        spread=0.5,
        meaning="idle seconds between two kernels of a busy queue",
        source="CUDA launch latency of back-to-back kernels, 2-4 us",
    ),
    *_family(
        "attention.te",
        {"ampere": 0.45, "hopper": 0.55, "blackwell": 0.42, "ada": 0.5, "other": 0.4},
        0.15,
        "share of the 16-bit peak of cuDNN / FlashAttention-3 class kernels, long sequences",
        "FlashAttention-3, arXiv 2407.08608: 550-650 TFLOP/s forward on H100; cuDNN 9 notes",
    ),
    *_family(
        "attention.fa2",
        {"ampere": 0.50, "hopper": 0.32, "blackwell": 0.2, "ada": 0.5, "other": 0.35},
        0.15,
        "share of the 16-bit peak of FlashAttention-2 kernels, long sequences",
        "FlashAttention-2, arXiv 2307.08691: 150-190 TFLOP/s on A100, 300-330 on H100",
    ),
    *_family(
        "attention.triton",
        {"ampere": 0.35, "hopper": 0.20, "other": 0.2},
        0.15,
        "share of the 16-bit peak of FlashAttention-1 generation and early Triton kernels",
        "FlashAttention, arXiv 2205.14135; llm-foundry's Triton kernel",
    ),
    Constant(
        name="attention.short",
        prior=500.0,
        spread=0.4,
        meaning="tokens at which a flash kernel reaches half of its long-sequence speed",
        source=_STUDY,
    ),
    Constant(
        name="attention.backward",
        prior=0.85,
        spread=0.1,
        meaning="efficiency of the flash backward relative to its forward (2.5 times the FLOPs)",
        source="FlashAttention-2, arXiv 2307.08691, figures 4-6",
    ),
    Constant(
        name="attention.narrow",
        prior=0.1,
        spread=0.5,
        meaning="exponent of a flash kernel's slowdown with 128 / head width",
        source="FlashAttention-2, arXiv 2307.08691, figures 4-6: head width 64 against 128",
    ),
    Constant(
        name="attention.batched",
        prior=0.75,
        spread=0.15,
        meaning="efficiency of the strided batched matmuls of unfused attention over dense ones of the same shapes",
        source="Mist's operator table, A100",
    ),
    Constant(
        name="attention.scores",
        prior=1.0,
        spread=0.15,
        meaning="memory traffic of fused scale-mask-softmax-dropout over its minimum",
        source="Mist's operator table, A100",
    ),
    Constant(
        name="attention.unfused",
        prior=4.0,
        spread=0.3,
        meaning="the same where the fused softmax kernel refuses the shape, relative to fused",
        source="Megatron's fused softmax: sequence <= 2048 and batch * heads a multiple of 4",
    ),
    *_family(
        "elementwise",
        {
            "megatron-lm": 1.0,
            "megatron": 1.7,
            "nemo": 1.7,
            "composer": 1.75,
            "composer-2023": 2.0,
            "compiled": 1.0,
            "eager": 3.0,
            "hf": 4.0,
            "hf-kernels": 1.5,
            "hf-liger": 1.4,
            "deepspeed": 1.5,
            "other": 1.8,
        },
        0.25,
        "memory traffic of norms and residuals over the minimum of fused kernels",
        "count of kernels in each framework's block; " + _STUDY,
    ),
    *_family(
        "activation",
        {
            "megatron-lm": 1.0,
            "megatron": 1.7,
            "nemo": 1.7,
            "composer": 1.75,
            "composer-2023": 2.0,
            "compiled": 1.0,
            "eager": 3.0,
            "hf": 4.0,
            "hf-kernels": 1.5,
            "hf-liger": 1.4,
            "deepspeed": 1.5,
            "other": 1.8,
        },
        0.25,
        "memory traffic of activations and rotations, with copies of their tensors, over the minimum of fused kernels",
        "count of kernels in each framework's block; " + _STUDY,
    ),
    Constant(
        name="loss.bytes",
        prior=23.0,
        spread=0.2,
        meaning="bytes moved per logit by an unfused 32-bit cross entropy, forward and backward",
        source="Megatron vocab_parallel_cross_entropy: casts, max, exp, sum, gradient",
    ),
    Constant(
        name="loss.fused",
        prior=12.0,
        spread=0.2,
        meaning="the same for a fused cross entropy",
        source="half of the passes of the unfused one",
    ),
    *_family(
        "link",
        {
            "nvlink": 0.85,
            "nvswitch": 0.77,
            "pcie": 0.7,
            "infiniband": 0.85,
            "roce": 0.80,
            "ethernet": 0.6,
            "efa": 0.6,
            "omnipath": 0.25,
            "slingshot": 0.6,
            "other": 0.6,
        },
        0.15,
        "share of the nominal bandwidth that large collectives reach over a link",
        "nccl-tests, large messages: A100 229 of 300, V100 134 of 150 GB/s; Omni-Path without GPU-direct RDMA",
    ),
    Constant(
        name="latency.launch",
        prior=25e-6,
        spread=0.3,
        meaning="seconds of a collective beyond its steps and bytes: launch, synchronisation of the ranks",
        source="nccl-tests all-reduce on A100, 2-8 GPUs, 1-16 MiB (vTrain's tables): 25 us + 5 us a ring step",
    ),
    *_family(
        "latency",
        {"node": 1.3, "network": 0.7},
        0.4,
        "one step of a ring, or level of a tree, over the level's stated latency",
        "the same tables inside a node; between nodes LL128 against Simple protocol (NCCL tuning constants)",
    ),
    Constant(
        name="latency.pass",
        prior=0.5,
        spread=0.5,
        meaning="a step inside a node of a ring that crosses nodes over one of a ring that stays inside",
        source="NCCL tuning constants: LL128 against Simple protocol inside a node, 1.9 and 3.4 us",
    ),
    Constant(
        name="overlap.tp",
        prior=0.35,
        spread=0.25,
        meaning="exposed share of tensor-parallel communication that is overlapped with matmuls",
        source="Transformer Engine user buffers and torchtitan's asynchronous tensor parallelism",
    ),
    Constant(
        name="overlap.cp",
        prior=0.3,
        spread=0.4,
        meaning="exposed share of context-parallel ring exchange behind attention",
        source=_STUDY,
    ),
    Constant(
        name="overlap.gradients",
        prior=0.20,
        spread=0.3,
        meaning="share of an overlapped gradient reduction that is paid anyway (slowed compute, last bucket)",
        source="Echo, arXiv 2412.12487: kernels run up to 38 % slower under an all-reduce",
    ),
    Constant(
        name="overlap.fsdp",
        prior=0.55,
        spread=0.3,
        meaning="slowdown of compute per unit of FSDP communication that runs beside it",
        source="Echo, arXiv 2412.12487; " + _STUDY,
    ),
    *_family(
        "p2p",
        {"megatron": 0.6, "interleaved": 0.4, "deepspeed": 1.2, "other": 1.0},
        0.3,
        "exposed share of both directions of a pipeline exchange per micro-batch",
        _STUDY,
    ),
    *_family(
        "host.layer",
        {
            "megatron-deepspeed": 1.0e-3,
            "megatron-lm": 0.6e-3,
            "megatron": 0.45e-3,
            "fsdp": 0.6e-3,
            "hf": 1.0e-3,
            "other": 0.6e-3,
        },
        0.3,
        "host seconds to launch the forward of one layer, the floor of launch-bound layers",
        "Python and launch cost of 30-60 kernels at 8-20 us each",
    ),
    Constant(
        name="host.step",
        prior=30e-6,
        spread=0.5,
        meaning="seconds that launch-bound ranks wait for each other per collective and doubling of the group",
        source="spread of Python launch times between processes; small models at high tensor parallelism",
    ),
    Constant(
        name="host.backward",
        prior=1.3,
        spread=0.15,
        meaning="host seconds of a layer's backward over its forward",
        source=_STUDY,
    ),
    *_family(
        "iteration",
        {"megatron": 25e-3, "megatron-deepspeed": 25e-3, "other": 25e-3},
        0.4,
        "seconds per iteration outside the schedule: data, gradient norm, logging",
        _STUDY,
    ),
    *_family(
        "microbatch",
        {"megatron": 1e-3, "megatron-deepspeed": 3e-3, "other": 1e-3},
        0.5,
        "seconds per micro-batch outside layers: batch broadcast, schedule bookkeeping",
        _STUDY,
    ),
    Constant(
        name="zero3.legacy",
        prior=10.0,
        spread=0.3,
        meaning="communication of DeepSpeed ZeRO-3 of 2021 over its link time (small gathers, no prefetch)",
        source="Narayanan et al. 2021, arXiv 2104.04473, table 2",
    ),
    Constant(
        name="moe.imbalance",
        prior=1.05,
        spread=0.1,
        meaning="work of the fullest expert rank over the mean",
        source="auxiliary-loss balanced routers keep it near 1",
    ),
    Constant(
        name="moe.permute",
        prior=3.0,
        spread=0.4,
        meaning="memory passes over the routed tokens for permutation, padding and combination",
        source="Megatron token dispatcher: permute, sort by expert, unpermute, weight",
    ),
)
