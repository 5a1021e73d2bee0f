"""The transformer that is launched: embedding, blocks and head as plain modules.

Dimension suffixes: b batch, s sequence, w width, h heads, d head width.
"""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional

from profiler.validate.job import ModelShape


class Block(nn.Module):
    """Norm, attention, norm, MLP; under tensor parallelism ``local`` holds one rank's heads and widths."""

    def __init__(self, shape: ModelShape, local: ModelShape) -> None:
        super().__init__()
        self.local, width = local, shape.heads * shape.head_dim
        self.attention_norm = nn.RMSNorm(shape.hidden)
        self.qkv = nn.Linear(shape.hidden, shape.qkv_width, bias=False)
        self.out = nn.Linear(width, shape.hidden, bias=False)
        self.mlp_norm = nn.RMSNorm(shape.hidden)
        self.up = nn.Linear(shape.hidden, shape.up_width, bias=False)
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x_bsw: Tensor) -> Tensor:
        """Return the block's output."""
        x_bsw = x_bsw + self.out(self._attention(self.qkv(self.attention_norm(x_bsw))))
        mixed_bsw: Tensor = x_bsw + self.down(self._activated(self.up(self.mlp_norm(x_bsw))))
        return mixed_bsw

    def _activated(self, up_bsw: Tensor) -> Tensor:
        if not self.local.gated:
            return functional.gelu(up_bsw, approximate="tanh")
        gate_bsw, up_bsw = up_bsw.chunk(2, dim=-1)
        return functional.silu(gate_bsw) * up_bsw

    def _attention(self, qkv_bsw: Tensor) -> Tensor:
        local = self.local
        batch, sequence, _ = qkv_bsw.shape
        qkv_bshd = qkv_bsw.view(batch, sequence, -1, local.head_dim)
        heads = [local.heads, local.kv_heads, local.kv_heads]
        q_bhsd, k_bhsd, v_bhsd = torch.split(qkv_bshd.transpose(1, 2), heads, dim=1)
        mixed_bhsd = functional.scaled_dot_product_attention(
            q_bhsd, k_bhsd, v_bhsd, is_causal=True, enable_gqa=local.heads != local.kv_heads
        )
        return mixed_bhsd.transpose(1, 2).reshape(batch, sequence, -1)


class Stage(nn.Module):
    """Consecutive blocks, with the embedding before or the head behind where the model begins or ends."""

    def __init__(
        self, shape: ModelShape, local: ModelShape, layers: int, *, first: bool, last: bool
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.hidden) if first else None
        self.blocks = nn.ModuleList(Block(shape, local) for _ in range(layers))
        self.head = (
            nn.Sequential(
                nn.RMSNorm(shape.hidden), nn.Linear(shape.hidden, shape.vocab, bias=False)
            )
            if last
            else None
        )

    @property
    def parts(self) -> list[nn.Module]:
        """Embedding, blocks and head, as far as the stage has them."""
        parts = (self.embedding, *self.blocks, self.head)
        return [part for part in parts if part is not None]

    def forward(self, x: Tensor) -> Tensor:
        """Return the stage's output; tokens come in on the first, logits go out on the last."""
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x) if self.head is not None else x


def split_block(block: Block, mesh: DeviceMesh) -> None:
    """Cut a block over the tensor-parallel ranks with DTensor (Shoeybi et al. 2019)."""
    plan = {
        "qkv": ColwiseParallel(),
        "out": RowwiseParallel(),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
    }
    parallelize_module(block, mesh, plan)


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross entropy."""
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def tokens(shape: ModelShape, batch: int) -> Tensor:
    """Return random tokens."""
    return torch.randint(shape.vocab, (batch, shape.sequence))


def backward(output: Tensor, gradient: Tensor | None = None) -> None:
    """Run the backward of ``output``; its gradient may be left out for a scalar."""
    torch.autograd.backward(output, gradient)
