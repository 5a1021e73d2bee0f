"""One layer of each family against plain torch modules on meta: parameters and FLOPs, counted by torch.

The modules below are written from the papers and read the config fields themselves, so they share no code with
the readers. FlopCounterMode sees every matmul; attention is written as two batched matmuls, since fused kernels
are counted as nothing on some devices.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from costmodel import catalog
from costmodel.graph import Layer, build_graph

TOKENS = 640  # so that every mixture below routes evenly
Config = dict[str, Any]


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Softmax attention of (batch, heads, tokens, width) tensors; fewer key heads are repeated."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    mixed = torch.softmax(query @ key.transpose(-1, -2), -1) @ value
    return mixed.transpose(1, 2).flatten(2)


def heads(states: Tensor, count: int) -> Tensor:
    return states.reshape(*states.shape[:-1], count, -1).transpose(1, 2)


class Attention(nn.Module):
    """Grouped attention, of a sequence to itself or to a memory, with optional norms per head and sinks."""

    def __init__(
        self,
        hidden: int,
        shape: tuple[int, int, int],
        *,
        qkv_bias: bool = False,
        out_bias: bool = False,
        head_norm: bool = False,
        sinks: bool = False,
        buckets: int = 0,
    ) -> None:
        super().__init__()
        self.q_heads, self.kv_heads, width = shape
        self.query = nn.Linear(hidden, self.q_heads * width, bias=qkv_bias)
        self.key = nn.Linear(hidden, self.kv_heads * width, bias=qkv_bias)
        self.value = nn.Linear(hidden, self.kv_heads * width, bias=qkv_bias)
        self.out = nn.Linear(self.q_heads * width, hidden, bias=out_bias)
        self.query_norm = nn.RMSNorm(width) if head_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(width) if head_norm else nn.Identity()
        self.sinks = nn.Parameter(torch.empty(self.q_heads)) if sinks else None
        self.bias = nn.Embedding(buckets, self.q_heads) if buckets else None

    def forward(self, states: Tensor, memory: Tensor | None = None) -> Tensor:
        memory = states if memory is None else memory
        query = self.query_norm(heads(self.query(states), self.q_heads))
        key = self.key_norm(heads(self.key(memory), self.kv_heads))
        mixed = attend(query, key, heads(self.value(memory), self.kv_heads))
        return torch.as_tensor(self.out(mixed))


class Latent(nn.Module):
    """Multi-head latent attention (arXiv 2405.04434, section 2.1)."""

    def __init__(self, hidden: int, config: Config) -> None:
        super().__init__()
        self.count = config["num_attention_heads"]
        self.plain, self.rotated = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
        self.rank, rank = config["kv_lora_rank"], config["q_lora_rank"]
        wide = self.count * (self.plain + self.rotated)
        down = [nn.Linear(hidden, rank, bias=False), nn.RMSNorm(rank)] if rank else []
        self.query = nn.Sequential(*down, nn.Linear(rank or hidden, wide, bias=False))
        self.down = nn.Linear(hidden, self.rank + self.rotated, bias=False)
        self.norm = nn.RMSNorm(self.rank)
        self.width = config["v_head_dim"]
        self.up = nn.Linear(self.rank, self.count * (self.plain + self.width), bias=False)
        self.out = nn.Linear(self.count * self.width, hidden, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        query = heads(self.query(states), self.count)
        packed, rotated = torch.split(self.down(states), [self.rank, self.rotated], -1)
        both = heads(self.up(self.norm(packed)), self.count)
        key, value = torch.split(both, [self.plain, self.width], -1)
        shared = rotated.unsqueeze(1).expand(-1, self.count, -1, -1)
        return torch.as_tensor(self.out(attend(query, torch.cat([key, shared], -1), value)))


class FeedForward(nn.Module):
    """Two matrices, or three with a gate."""

    def __init__(self, hidden: int, ffn: int, *, gated: bool, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, ffn, bias=bias)
        self.gate = nn.Linear(hidden, ffn, bias=bias) if gated else None
        self.down = nn.Linear(ffn, hidden, bias=bias)

    def forward(self, states: Tensor) -> Tensor:
        inner = self.up(states)
        if self.gate is not None:
            inner = inner * self.gate(states)
        return torch.as_tensor(self.down(inner))


class Mixture(nn.Module):
    """Gated experts over evenly routed tokens, beside shared experts."""

    def __init__(
        self, hidden: int, ffn: int, experts: int, topk: int, *, bias: bool = False, shared: int = 0
    ) -> None:
        super().__init__()
        self.topk = topk
        self.router = nn.Linear(hidden, experts, bias=bias)
        self.up = nn.Parameter(torch.empty(experts, hidden, 2 * ffn))
        self.down = nn.Parameter(torch.empty(experts, ffn, hidden))
        self.up_bias = nn.Parameter(torch.empty(experts, 1, 2 * ffn)) if bias else 0.0
        self.down_bias = nn.Parameter(torch.empty(experts, 1, hidden)) if bias else 0.0
        self.shared = FeedForward(hidden, shared, gated=True, bias=False) if shared else None

    def forward(self, states: Tensor) -> Tensor:
        self.router(states)
        experts, hidden, _ = self.up.shape
        routed = states.repeat(1, self.topk, 1).reshape(experts, -1, hidden)
        gate, inner = (routed @ self.up + self.up_bias).chunk(2, -1)
        mixed = (gate * inner) @ self.down + self.down_bias
        summed = mixed.reshape(self.topk, *states.shape).sum(0)
        return summed if self.shared is None else summed + self.shared(states)


class Block(nn.Module):
    """A layer: sub-layers behind norms, and further norms that only hold parameters and change no FLOPs."""

    def __init__(
        self, attention: nn.Module, mlp: nn.Module, norms: list[nn.Module], cross: nn.Module | None
    ) -> None:
        super().__init__()
        self.attention, self.mlp, self.cross = attention, mlp, cross
        self.norms = nn.ModuleList(norms)

    def forward(self, states: Tensor) -> Tensor:
        states = states + self.attention(self.norms[0](states))
        if self.cross is not None:
            states = states + self.cross(states, states)
        return torch.as_tensor(states + self.mlp(self.norms[-1](states)))


def norms(kind: type[nn.Module], width: int, count: int) -> list[nn.Module]:
    return [kind(width) for _ in range(count)]


def gpt2(c: Config) -> nn.Module:
    h, a = c["n_embd"], c["n_head"]
    attention = Attention(h, (a, a, h // a), qkv_bias=True, out_bias=True)
    mlp = FeedForward(h, 4 * h, gated=False, bias=True)
    return Block(attention, mlp, norms(nn.LayerNorm, h, 2), None)


def grouped(c: Config) -> tuple[int, int, int]:
    a = int(c["num_attention_heads"])
    return a, int(c.get("num_key_value_heads", a)), int(c.get("head_dim", c["hidden_size"] // a))


def llama(c: Config, count: int = 2, **options: bool) -> nn.Module:
    h = c["hidden_size"]
    mlp = FeedForward(h, c["intermediate_size"], gated=True, bias=False)
    return Block(Attention(h, grouped(c), **options), mlp, norms(nn.RMSNorm, h, count), None)


def qwen2(c: Config) -> nn.Module:
    return llama(c, qkv_bias=True)


def qwen3(c: Config) -> nn.Module:
    return llama(c, head_norm=True)


def gemma2(c: Config) -> nn.Module:
    return llama(c, 4)


def gemma3(c: Config) -> nn.Module:
    return llama(c, 4, head_norm=True)


def mixtral(c: Config) -> nn.Module:
    h = c["hidden_size"]
    mlp = Mixture(h, c["intermediate_size"], c["num_local_experts"], c["num_experts_per_tok"])
    return Block(Attention(h, grouped(c)), mlp, norms(nn.RMSNorm, h, 2), None)


def qwen3_moe(c: Config) -> nn.Module:
    h, ffn = c["hidden_size"], c["moe_intermediate_size"]
    mlp = Mixture(h, ffn, c["num_local_experts"], c["num_experts_per_tok"])
    return Block(Attention(h, grouped(c), head_norm=True), mlp, norms(nn.RMSNorm, h, 2), None)


def gpt_oss(c: Config) -> nn.Module:
    h, ffn = c["hidden_size"], c["intermediate_size"]
    mlp = Mixture(h, ffn, c["num_local_experts"], c["num_experts_per_tok"], bias=True)
    attention = Attention(h, grouped(c), qkv_bias=True, out_bias=True, sinks=True)
    return Block(attention, mlp, norms(nn.RMSNorm, h, 2), None)


def shared_mixture(c: Config) -> nn.Module:
    h, ffn = c["hidden_size"], c["moe_intermediate_size"]
    shared = ffn * c["n_shared_experts"]
    return Mixture(h, ffn, c["n_routed_experts"], c["num_experts_per_tok"], shared=shared)


def deepseek(c: Config) -> nn.Module:
    h = c["hidden_size"]
    return Block(Latent(h, c), shared_mixture(c), norms(nn.RMSNorm, h, 2), None)


def deepseek_dense(c: Config) -> nn.Module:
    h = c["hidden_size"]
    mlp = FeedForward(h, c["intermediate_size"], gated=True, bias=False)
    return Block(Latent(h, c), mlp, norms(nn.RMSNorm, h, 2), None)


def glm(c: Config) -> nn.Module:
    h = c["hidden_size"]
    attention = Attention(h, grouped(c), qkv_bias=True, head_norm=c.get("use_qk_norm", False))
    return Block(attention, shared_mixture(c), norms(nn.RMSNorm, h, 2), None)


def falcon(c: Config) -> nn.Module:
    h, a = c["hidden_size"], c["num_attention_heads"]
    mlp = FeedForward(h, 4 * h, gated=False, bias=False)
    count = 2 if c["new_decoder_architecture"] else 1
    attention = Attention(h, (a, c.get("num_kv_heads", 1), h // a))
    return Block(attention, mlp, norms(nn.LayerNorm, h, count), None)


def plain(c: Config) -> nn.Module:
    h, a = c["hidden_size"], c.get("num_attention_heads") or c["n_head"]
    attention = Attention(h, (a, a, h // a), qkv_bias=True, out_bias=True)
    mlp = FeedForward(h, c.get("intermediate_size", 4 * h), gated=False, bias=True)
    return Block(attention, mlp, norms(nn.LayerNorm, h, 2), None)


def t5(c: Config, *, decoder: bool) -> nn.Module:
    h, shape = c["d_model"], (c["num_heads"], c["num_heads"], c["d_kv"])
    mlp = FeedForward(h, c["d_ff"], gated=False, bias=False)
    cross = Attention(h, shape) if decoder else None
    attention = Attention(h, shape, buckets=0 if decoder else 32)
    return Block(attention, mlp, norms(nn.RMSNorm, h, 3 if decoder else 2), cross)


def t5_encoder(c: Config) -> nn.Module:
    return t5(c, decoder=False)


def t5_decoder(c: Config) -> nn.Module:
    return t5(c, decoder=True)


CASES = [
    ("gpt2-xl", "block", gpt2),
    ("gpt3-175b", "block", gpt2),
    ("llama-2-7b", "dense", llama),
    ("llama-3.1-70b", "dense", llama),
    ("mistral-7b", "dense-window", llama),
    ("mixtral-8x7b", "moe", mixtral),
    ("qwen2.5-7b", "dense", qwen2),
    ("qwen3-0.6b", "dense", qwen3),
    ("qwen3-235b-a22b", "moe", qwen3_moe),
    ("deepseek-v3", "moe", deepseek),
    ("deepseek-v3", "dense", deepseek_dense),
    ("deepseek-v2-lite", "moe", deepseek),
    ("gemma-7b", "dense", llama),
    ("gemma-2-9b", "dense", gemma2),
    ("gemma-3-27b", "dense-window", gemma3),
    ("phi-4", "dense", llama),
    ("falcon-7b", "block", falcon),
    ("falcon-40b", "block", falcon),
    ("gpt-neox-20b", "block", plain),
    ("bloom-176b", "block", plain),
    ("gpt-oss-120b", "moe", gpt_oss),
    ("glm-4.5", "moe", glm),
    ("bert-large", "encoder", plain),
    ("vit-huge-14", "encoder", plain),
    ("t5-11b", "encoder-first", t5_encoder),
    ("t5-11b", "decoder", t5_decoder),
]


def layer_of(name: str, kind: str) -> Layer:
    return next(layer for layer in build_graph(catalog.model(name)).kinds if layer.name == kind)


@pytest.mark.parametrize(("name", "kind", "module"), CASES)
def test_a_layer_has_the_parameters_and_flops_of_a_plain_module(
    name: str, kind: str, module: Any
) -> None:
    config = catalog.model_config(name)
    hidden = int(str(config.get("hidden_size") or config.get("n_embd") or config.get("d_model")))
    counter = FlopCounterMode(display=False)
    with torch.device("meta"), torch.no_grad():
        block = module(config)
        with counter:
            block(torch.empty(1, TOKENS, hidden))
    layer = layer_of(name, kind)
    assert layer.parameters == sum(weight.numel() for weight in block.parameters())
    flops = TOKENS * sum(op.flops_per_token(TOKENS) for op in layer.operators)
    assert flops == counter.get_total_flops()


def test_backward_costs_twice_the_matmuls_of_forward() -> None:
    config = catalog.model_config("gpt2")
    counter = FlopCounterMode(display=False)
    with torch.device("meta"):
        block = gpt2(config)
        states = torch.empty(1, TOKENS, 768, requires_grad=True)
        with counter:
            block(states).sum().backward()
    flops = TOKENS * sum(op.flops_per_token(TOKENS) for op in layer_of("gpt2", "block").operators)
    assert counter.get_total_flops() == 3 * flops


def test_a_tied_head_is_counted_once_and_drawn_as_an_edge() -> None:
    graph = build_graph(catalog.model("gpt2"))
    assert graph.tied_weights == 50257 * 768
    assert graph.digraph().edges["embedding", "head"]["relation"] == "tied"
    assert graph.digraph().number_of_nodes() == 14
    untied = build_graph(catalog.model("llama-2-7b"))
    assert untied.tied_weights == 0
    assert not untied.digraph().has_edge("embedding", "head")


def test_keys_of_cross_attention_run_over_the_encoders_tokens() -> None:
    operators = layer_of("t5-11b", "decoder").operators
    assert [op.name for op in operators if op.encoder_tokens] == ["cross.kv"]


@pytest.mark.parametrize(
    ("name", "rotates"),
    [("llama-2-7b", True), ("gpt2", False), ("bloom-176b", False), ("t5-small", False)],
)
def test_only_rotary_models_rotate(name: str, rotates: bool) -> None:
    kinds = build_graph(catalog.model(name)).kinds
    assert any(op.kind == "rope" for op in kinds[0].operators) is rotates


def test_every_operator_name_is_unique_in_its_layer() -> None:
    for name in catalog.names("models"):
        graph = build_graph(catalog.model(name))
        for layer in (*graph.kinds, graph.embedding, graph.head):
            names = [op.name for op in layer.operators]
            assert len(names) == len(set(names))
