"""Small plans, models and a cluster that export tests share; predictions in them are placeholders."""

from collections.abc import Sequence
from dataclasses import replace

from costmodel.spec import (
    AttentionSpec,
    ClusterSpec,
    DeviceGroup,
    DeviceSpec,
    LayerSpec,
    LinkLevel,
    MlpSpec,
    ModelSpec,
    TrainingSpec,
)
from costmodel.strategy import Strategy
from planner.export.target import Launch
from planner.plans import Chunk, Placement, Plan, StageReport

BLOCK = LayerSpec(
    name="block",
    attention=AttentionSpec(heads=32, kv_heads=8, head_dim=128),
    mlp=MlpSpec(ffn=14336),
)


def llama(layers: int = 32) -> ModelSpec:
    """Llama-3.1-8B with another number of layers."""
    return ModelSpec(
        name="llama-3.1-8b", hidden=4096, kinds=(BLOCK,), layers=(0,) * layers, vocab=128256
    )


def gpt2() -> ModelSpec:
    """GPT-2: learned positions, biases everywhere, tied embeddings, LayerNorm."""
    attention = AttentionSpec(heads=12, kv_heads=12, head_dim=64, qkv_bias=True, out_bias=True)
    block = LayerSpec(
        name="block", attention=attention, mlp=MlpSpec(ffn=3072, gated=False, bias=True)
    )
    return ModelSpec(
        name="gpt2",
        hidden=768,
        kinds=(block,),
        layers=(0,) * 12,
        vocab=50257,
        tied=True,
        norm="layernorm",
        positions=1024,
        rotary=False,
    )


def qwen2() -> ModelSpec:
    """Qwen2.5-7B: biases on queries, keys and values only."""
    attention = AttentionSpec(heads=28, kv_heads=4, head_dim=128, qkv_bias=True)
    block = LayerSpec(name="block", attention=attention, mlp=MlpSpec(ffn=18944))
    return ModelSpec(name="qwen2.5-7b", hidden=3584, kinds=(block,), layers=(0,) * 28, vocab=152064)


def mixtral() -> ModelSpec:
    """Mixtral-8x7B with a window of 4096 tokens."""
    block = LayerSpec(
        name="block",
        attention=AttentionSpec(heads=32, kv_heads=8, head_dim=128, window=4096),
        mlp=MlpSpec(ffn=14336, experts=8, topk=2),
    )
    return ModelSpec(
        name="mixtral-8x7b", hidden=4096, kinds=(block,), layers=(0,) * 32, vocab=32000
    )


def deepseek() -> ModelSpec:
    """DeepSeek-V2-Lite's shapes: latent attention, one dense layer, shared experts."""
    attention = AttentionSpec(
        heads=16,
        kv_heads=16,
        head_dim=128,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    )
    dense = LayerSpec(name="dense", attention=attention, mlp=MlpSpec(ffn=10944))
    routed = MlpSpec(ffn=1408, experts=64, topk=6, shared_ffn=2816, router_bias=True)
    moe = LayerSpec(name="moe", attention=attention, mlp=routed)
    return ModelSpec(
        name="deepseek-v2-lite",
        hidden=2048,
        kinds=(dense, moe),
        layers=(0, *(1,) * 26),
        vocab=102400,
    )


def gpt_oss() -> ModelSpec:
    """gpt-oss-20b: sinks, biases everywhere, every other layer windowed."""
    attention = AttentionSpec(
        heads=64, kv_heads=8, head_dim=64, qkv_bias=True, out_bias=True, sinks=True
    )
    mlp = MlpSpec(ffn=2880, bias=True, experts=32, topk=4, router_bias=True)
    window = LayerSpec(name="block-window", attention=replace(attention, window=128), mlp=mlp)
    full = LayerSpec(name="block-full", attention=attention, mlp=mlp)
    return ModelSpec(
        name="gpt-oss-20b",
        hidden=2880,
        kinds=(window, full),
        layers=(0, 1) * 12,
        vocab=201088,
    )


def cluster(gpus: int = 64, architecture: str = "hopper") -> ClusterSpec:
    """Nodes of eight GPUs."""
    device = DeviceSpec(
        name="h100-sxm",
        architecture=architecture,
        memory_bytes=80 * 10**9,
        usable_bytes=78 * 10**9,
        bandwidth_bytes_per_s=3.35e12,
        peak_flops={"bf16": 989e12},
        multiprocessors=132,
    )
    level = LinkLevel(
        name="nvlink", gpus=8, bandwidth_bytes_per_s=450e9, latency_s=1e-6, kind="nvswitch"
    )
    group = DeviceGroup(device=device, gpus=gpus, gpus_per_node=8, levels=(level,))
    return ClusterSpec(name="dgx-h100", groups=(group,))


def placement(counts: Sequence[int], recomputed: Sequence[int] | int = 0) -> Placement:
    """Place ``counts`` layers on virtual stages; one number recomputes that many on each."""
    each = [recomputed] * len(counts) if isinstance(recomputed, int) else list(recomputed)
    return Placement(
        chunks=tuple(
            Chunk(first_layer=sum(counts[:stage]), layers=count, recomputed=each[stage])
            for stage, count in enumerate(counts)
        )
    )


def plan(strategy: Strategy, placed: Placement) -> Plan:
    """Wrap strategy and placement as a plan."""
    stage = StageReport(
        chunks=placed.chunks,
        memory_bytes=50e9,
        allocated_bytes=45e9,
        memory={},
        peak_moment="backward",
        forward_s=0.1,
        backward_s=0.2,
    )
    return Plan(
        rank=1,
        strategy=strategy,
        placement=placed,
        stages=(stage,) * strategy.pp,
        iteration_s=2.5,
        iteration_s_low=2.3,
        iteration_s_high=2.7,
        tokens_per_s=1e5,
        mfu=0.4,
        memory_limit_bytes=76e9,
        time={"compute": 2.5},
    )


def launch(
    model: ModelSpec,
    strategy: Strategy,
    counts: Sequence[int] | None = None,
    recomputed: Sequence[int] | int = 0,
    training: TrainingSpec | None = None,
) -> Launch:
    """Return a launch; without ``counts`` every virtual stage gets the same number of layers."""
    stages = strategy.pp * strategy.vpp
    even = counts or (len(model.layers) // stages,) * stages
    recomputed = even if strategy.recompute == "full" else recomputed
    sequence = min(4096, model.positions or 4096)
    asked = training or TrainingSpec(global_batch=strategy.global_batch, sequence=sequence)
    return Launch(
        plan=plan(strategy, placement(even, recomputed)),
        model=model,
        cluster=cluster(),
        training=asked,
    )
