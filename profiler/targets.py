"""What runs for each kind of compute event: tensors of its local shapes and the call that is timed.

Suffixes name the dimensions: t tokens, w width, m n k of a matmul, b batch, h heads, s queries, l keys, d head width,
v vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from costmodel.errors import UnsupportedError
from costmodel.events import ComputeEvent

_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "tf32": torch.float32,
}
# Rows of the table that embedding events gather from; its price depends on the rows only through caches.
_VOCABULARY = 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One set of tensors of an event.

    Attributes:
        prepare: Untimed part of every repeat (the forward, where the backward is timed).
        run: Timed part; takes what ``prepare`` returned.
        bytes: Of all tensors, so that caches can be outrun by rotating over several sets.
    """

    prepare: Callable[[], Any]
    run: Callable[[Any], object]
    bytes: int


def build(event: ComputeEvent, device: str) -> Target:
    """Return the tensors and the call of ``event``.

    Raises:
        UnsupportedError: If no kernel is known for its operator or dtype.
    """
    make = _BUILDERS.get(event.op)
    if make is None or event.dtype not in _DTYPES:
        raise UnsupportedError(f"{event.key}: no kernel to measure")
    return make(event, _Maker(device, _DTYPES[event.dtype]))


class _Maker:
    """Makes tensors on one device."""

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype

    def normal(self, *shape: int, grad: bool = False) -> Tensor:
        """Return a tensor of small normal values."""
        values = torch.randn(shape, dtype=torch.float32, device=self.device) * 0.02
        return values.to(self.dtype).requires_grad_(grad)

    def indices(self, count: int, limit: int) -> Tensor:
        """Return random indices below ``limit``."""
        return torch.randint(limit, (count,), device=self.device)


def _bytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _forward(call: Callable[[], Tensor], *tensors: Tensor) -> Target:
    def run(_: object) -> Tensor:
        with torch.no_grad():
            return call()

    return Target(prepare=lambda: None, run=run, bytes=2 * _bytes(*tensors))


def _backward(call: Callable[[], Tensor], *tensors: Tensor) -> Target:
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    gradients: list[Tensor] = []

    def prepare() -> Tensor:
        output = call()
        if not gradients:
            gradients.append(torch.randn_like(output))
        return output

    def run(output: Tensor) -> object:
        return torch.autograd.grad(output, wanted, gradients[0])

    return Target(prepare=prepare, run=run, bytes=3 * _bytes(*tensors))


def _passes(event: ComputeEvent, call: Callable[[], Tensor], *tensors: Tensor) -> Target:
    make = _forward if event.direction == "forward" else _backward
    return make(call, *tensors)


def _matmul(event: ComputeEvent, make: _Maker) -> Target:
    *groups, m, n, k = event.shape
    left_mk, right_kn = make.normal(*groups, m, k), make.normal(*groups, n, k).transpose(-1, -2)
    return _forward(lambda: left_mk @ right_kn, left_mk, right_kn)


def attended(queries: int, keys: int, causal: int, window: int) -> tuple[int, bool]:
    """Return the keys, and whether to mask causally, that give the kernel the work of the event.

    The kernel masks a square, and knows no window. Where the queries are a context-parallel rank's share, or a window is
    below half the sequence, it runs unmasked over as many keys as a query sees on average (costmodel.compute).
    """
    seen = keys // 2 if causal else keys
    if window:
        seen = min(seen, window)
    if causal and queries == keys and seen == keys // 2:
        return keys, True
    return max(seen, 1), False


def _attention(event: ComputeEvent, make: _Maker) -> Target:
    b, heads, kv_heads, queries, keys, qk, v, masked, window = event.shape
    keys, causal = attended(queries, keys, masked, window)
    q_bhsd = make.normal(b, heads, queries, qk, grad=True)
    k_bhld = make.normal(b, kv_heads, keys, qk, grad=True)
    v_bhld = make.normal(b, kv_heads, keys, v, grad=True)

    def call() -> Tensor:
        with _fused(make.device):
            return functional.scaled_dot_product_attention(
                q_bhsd, k_bhld, v_bhld, is_causal=causal, enable_gqa=kv_heads != heads
            )

    return _passes(event, call, q_bhsd, k_bhld, v_bhld)


def _fused(device: str) -> AbstractContextManager[None]:
    """Allow fused kernels alone on a GPU: the fallback writes the scores out, and its time would be no price of this event."""
    fused = [
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
    ]
    return sdpa_kernel(fused, set_priority=True) if device == "cuda" else nullcontext()


def _standard_attention(event: ComputeEvent, make: _Maker) -> Target:
    b, heads, kv_heads, queries, keys, qk, v, causal, _ = event.shape
    q_bhsd = make.normal(b, heads, queries, qk, grad=True)
    k_bhld = make.normal(b, kv_heads, keys, qk, grad=True)
    v_bhld = make.normal(b, kv_heads, keys, v, grad=True)
    mask_sl = torch.full((queries, keys), float("-inf"), device=make.device, dtype=make.dtype)
    mask_sl = mask_sl.triu(1) if causal else torch.zeros_like(mask_sl)

    def call() -> Tensor:
        keys_bhld = k_bhld.repeat_interleave(heads // kv_heads, 1)
        values_bhld = v_bhld.repeat_interleave(heads // kv_heads, 1)
        scores_bhsl = q_bhsd @ keys_bhld.transpose(-1, -2) * qk**-0.5 + mask_sl
        return functional.softmax(scores_bhsl, dim=-1) @ values_bhld

    return _passes(event, call, q_bhsd, k_bhld, v_bhld)


def _activation(event: ComputeEvent, make: _Maker) -> Target:
    tokens, inputs, outputs = event.shape
    x_tw = make.normal(tokens, inputs, grad=True)

    def call() -> Tensor:
        if inputs == 2 * outputs:
            gate_tw, up_tw = x_tw.chunk(2, dim=-1)
            return functional.silu(gate_tw) * up_tw
        return functional.gelu(x_tw, approximate="tanh")

    return _passes(event, call, x_tw)


def _norm(event: ComputeEvent, make: _Maker) -> Target:
    tokens, width = event.shape
    x_tw, weight_w = make.normal(tokens, width, grad=True), make.normal(width, grad=True)
    return _passes(event, lambda: functional.rms_norm(x_tw, (width,), weight_w), x_tw, weight_w)


def _residual(event: ComputeEvent, make: _Maker) -> Target:
    x_tw, y_tw = make.normal(*event.shape, grad=True), make.normal(*event.shape, grad=True)
    return _passes(event, lambda: x_tw + y_tw, x_tw, y_tw)


def _rope(event: ComputeEvent, make: _Maker) -> Target:
    tokens, width = event.shape
    half = max(width // 2, 1)
    x_tw = make.normal(tokens, 2 * half, grad=True)
    cos_tw, sin_tw = make.normal(tokens, half), make.normal(tokens, half)

    def call() -> Tensor:
        left_tw, right_tw = x_tw.chunk(2, dim=-1)
        turned = (left_tw * cos_tw - right_tw * sin_tw, right_tw * cos_tw + left_tw * sin_tw)
        return torch.cat(turned, dim=-1)

    return _passes(event, call, x_tw, cos_tw, sin_tw)


def _router(event: ComputeEvent, make: _Maker) -> Target:
    logits_tw = make.normal(*event.shape, grad=True)
    return _passes(event, lambda: functional.softmax(logits_tw.float(), dim=-1), logits_tw)


def _embedding(event: ComputeEvent, make: _Maker) -> Target:
    tokens, width = event.shape
    table_vw = make.normal(_VOCABULARY, width, grad=True)
    indices_t = make.indices(tokens, _VOCABULARY)
    return _passes(event, lambda: functional.embedding(indices_t, table_vw), table_vw)


def _cross_entropy(event: ComputeEvent, make: _Maker) -> Target:
    """Time forward and backward together, as the event means."""
    tokens, width = event.shape
    logits_tw, labels_t = make.normal(tokens, width, grad=True), make.indices(tokens, width)

    def run(_: object) -> object:
        loss = functional.cross_entropy(logits_tw, labels_t)
        return torch.autograd.grad(loss, [logits_tw])

    return Target(prepare=lambda: None, run=run, bytes=3 * _bytes(logits_tw))


def _stream(event: ComputeEvent, make: _Maker) -> Target:
    """Copy: half of the event's bytes are read, half written."""
    count = max(event.shape[0] // 2, 1)
    source = torch.ones(count, dtype=torch.uint8, device=make.device)
    goal = torch.empty_like(source)
    return Target(
        prepare=lambda: None, run=lambda _: goal.copy_(source), bytes=_bytes(source, goal)
    )


_BUILDERS: Mapping[str, Callable[[ComputeEvent, _Maker], Target]] = {
    "matmul": _matmul,
    "grouped_matmul": _matmul,
    "batched_matmul": _matmul,
    "flash_attention": _attention,
    "standard_attention": _standard_attention,
    "activation": _activation,
    "norm": _norm,
    "residual": _residual,
    "rope": _rope,
    "router": _router,
    "embedding": _embedding,
    "cross_entropy": _cross_entropy,
    "optimizer": _stream,
    "accumulate": _stream,
    "cast": _stream,
    "permute": _stream,
}
OPERATORS = frozenset(_BUILDERS)
