"""One traced run: blocks executed once each, operators counted, memory followed from block to block.

A block's inputs are cut off the autograd graph and copied, so that it runs backward by itself; copies stand for the
memory they were made from, which is how a tensor is recognised in later blocks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.flop_counter import flop_registry

from planner.traced_graph import TracedBlock, TracedOperator

# Flash attention's backward does five matmuls where the forward does two (Dao 2022, arXiv 2205.14135, appendix B).
FLASH_BACKWARD = 2.5
ATTENTION = "attention"


class _Shape(NamedTuple):
    """What makes two calls equal: module, parameters, arguments."""

    module: str
    parameters: tuple[tuple[torch.Size, torch.dtype], ...]
    arguments: str


class _View(NamedTuple):
    """Which part of its memory a tensor shows."""

    offset: int
    shape: torch.Size
    stride: tuple[int, ...]


@dataclass
class _Counts:
    """What was seen in one run of a block, for the whole batch."""

    operators: list[tuple[str, float, float]] = field(default_factory=list)
    rest: float = 0.0
    backward_flops: float = 0.0
    backward_rest: float = 0.0
    saved: float = 0.0

    def ratio(self, name: str) -> float:
        """Return backward over forward FLOPs of an operator; matmuls and convolutions share one."""
        forward = sum(flops for item, flops, _ in self.operators if item != ATTENTION)
        if name == ATTENTION:
            return FLASH_BACKWARD
        return self.backward_flops / forward if self.backward_flops else 2.0


@dataclass
class _Call:
    """One call of a block in order of execution; ``glue`` is what runs between it and the next block."""

    module: nn.Module
    counts: _Counts
    glue: _Counts = field(default_factory=_Counts)


class Trace:
    """State of one traced run."""

    def __init__(self, module: nn.Module, element_bytes: int) -> None:
        self.module, self.element_bytes = module, element_bytes
        self.calls: list[_Call] = []
        self.known: dict[_Shape, tuple[_Counts, Any]] = {}
        self.owned = {self.key(item) for item in (*module.parameters(), *module.buffers())}
        self.given: set[StorageWeakRef] = set()
        self.same: dict[StorageWeakRef, StorageWeakRef] = {}
        self.born: dict[StorageWeakRef, tuple[int, float]] = {}
        self.last_use: dict[StorageWeakRef, int] = {}
        self.saved: dict[StorageWeakRef, set[_View]] = {}
        self.counts = _Counts()
        self.backward = self.paused = False

    @staticmethod
    def key(tensor: Tensor) -> StorageWeakRef:
        """Return the identity of the memory behind a tensor; views share it."""
        return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]

    def size(self, tensor: Tensor) -> float:
        """Return the bytes of a tensor in training."""
        each = self.element_bytes if tensor.is_floating_point() else tensor.element_size()
        return float(tensor.numel() * each)

    def run(self, arguments: Sequence[Any], blocks: Sequence[nn.Module]) -> None:
        """Run the whole module once; ``blocks`` are the parts of it to tell apart."""
        self.given = {self.key(item) for item in tensors_in(arguments)}
        with ExitStack() as stack:
            for block in blocks:
                block.forward = self._wrapped(block, block.forward)
                stack.callback(block.__dict__.pop, "forward")
            stack.enter_context(_Attention(self))
            stack.enter_context(saved_tensors_hooks(self.save, lambda kept: kept))
            stack.enter_context(_Recorder(self))
            self.module(*arguments)

    def _wrapped(self, block: nn.Module, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*arguments: Any, **named: Any) -> Any:
            shape = _Shape(
                f"{type(block).__qualname__}{block.extra_repr()}{block!r}",
                tuple((item.shape, item.dtype) for item in block.parameters()),
                _description((arguments, named)),
            )
            stop = len(self.calls)
            if shape not in self.known:
                call = _Call(block, _Counts())
                self.calls.append(call)
                self.known[shape] = call.counts, self._measured(call, original, arguments, named)
            else:
                self.calls.append(_Call(block, self.known[shape][0]))
                for item in tensors_in((arguments, named)):
                    self.used(item, stop)
            output = self._continued(self.known[shape][1], stop)
            self.counts = self.calls[-1].glue
            return output

        return forward

    def _measured(
        self, call: _Call, original: Callable[..., Any], arguments: Any, named: Any
    ) -> Any:
        """Run a block forward and backward by itself and return its outputs."""
        self.counts = call.counts
        inputs = tree_map(self._input, (arguments, named))
        output = original(*inputs[0], **inputs[1])
        results = [item for item in tensors_in(output) if item.requires_grad]
        leaves = [item for item in tensors_in(inputs) if item.requires_grad]
        leaves += [item for item in call.module.parameters() if item.requires_grad]
        if results and leaves:
            self.backward = True
            seeds = [torch.ones_like(item) for item in results]
            torch.autograd.grad(results, leaves, seeds, allow_unused=True)
            self.backward = False
        return output

    def _input(self, value: Any) -> Any:
        """Cut an argument off the graph before it; gradients reach it unless it is an input of the network."""
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return self._copied(value, gradient=self.key(value) not in self.given)

    def _copied(self, value: Tensor, *, gradient: bool) -> Tensor:
        """Return a tensor that stands for the same memory; a copy, because leaves refuse in-place changes."""
        with self.quiet():
            twin = value.detach().requires_grad_(gradient).clone()
        self.same[self.key(twin)] = self.source(value)
        return twin

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Count nothing meanwhile."""
        self.paused = True
        try:
            yield
        finally:
            self.paused = False

    def _continued(self, output: Any, index: int) -> Any:
        """Return fresh outputs of a call for the blocks after it."""

        def fresh(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            with self.quiet():
                twin = torch.empty_like(value.detach())
                twin = twin.requires_grad_(value.is_floating_point()).clone()
            self.born[self.key(twin)] = index, self.size(twin)
            if self.source(value) in self.saved:
                self.saved[self.key(twin)] = {_view(twin)}
            return twin

        return tree_map(fresh, output)

    def source(self, tensor: Tensor) -> StorageWeakRef:
        """Return the memory that a tensor stands for."""
        key = self.key(tensor)
        return self.same.get(key, key)

    def used(self, tensor: Tensor, index: int) -> None:
        """Note that a block reads a tensor."""
        self.last_use[self.source(tensor)] = index

    def save(self, tensor: Tensor) -> Tensor:
        """Count a tensor kept for the backward pass once; parameters are kept anyway."""
        key = self.source(tensor)
        if not self.backward and not self.paused and key not in self.owned:
            part = _view(tensor)
            parts = self.saved.setdefault(key, set())
            whole = tensor.untyped_storage().nbytes() / tensor.element_size()
            kept = sum(view.shape.numel() for view in parts)
            if part not in parts:
                new = min(float(tensor.numel()), max(0.0, whole - kept))
                self.counts.saved += new * self.size(tensor) / max(1, tensor.numel())
                parts.add(part)
        return tensor

    def note(
        self, name: str, flops: float, reads: Sequence[Tensor], writes: Sequence[Tensor]
    ) -> None:
        """Count one operator; views and allocations move nothing."""
        index = max(0, len(self.calls) - 1)
        sources = {self.key(item) for item in reads}
        idle = "empty" in name or (
            not name.endswith("_") and any(self.key(x) in sources for x in writes)
        )
        large = [item for item in (*reads, *writes) if not self._per_batch(item)]
        moved = 0.0 if idle else sum(self.size(item) for item in large)
        if self.backward:
            self.counts.backward_flops += 0.0 if name == ATTENTION else flops
            self.counts.backward_rest += 0.0 if flops else moved
            return
        if flops:
            self.counts.operators.append((name, flops, moved))
        else:
            self.counts.rest += moved
        for item in reads:
            self.used(item, index)
        for item in writes:
            self.born.setdefault(self.source(item), (index, self.size(item)))

    def _per_batch(self, tensor: Tensor) -> bool:
        """Return whether a tensor is a parameter or its gradient: moved once, however many samples there are."""
        if self.backward and self.calls:
            return any(tensor.shape == item.shape for item in self.calls[-1].module.parameters())
        return self.key(tensor) in self.owned

    def blocks(self, samples: int) -> list[TracedBlock]:
        """Return what was seen, per sample; parameters count where they are first."""
        seen: set[int] = set()
        found = [self._block(index, call, samples, seen) for index, call in enumerate(self.calls)]
        left = sum(item.numel() for item in self.module.parameters() if id(item) not in seen)
        if left and found:
            found[0] = replace(found[0], biases=found[0].biases + left)
        return found

    def _block(self, index: int, call: _Call, samples: int, seen: set[int]) -> TracedBlock:
        counts, glue = call.counts, call.glue
        parts = [*counts.operators, *glue.operators]
        new = [item for item in call.module.parameters() if id(item) not in seen]
        old = [item for item in call.module.parameters() if id(item) in seen]
        seen.update(id(item) for item in new)
        trained = [item for item in new if item.requires_grad]
        return TracedBlock(
            name=type(call.module).__name__,
            table=isinstance(call.module, nn.Embedding),
            single=not any(True for _ in call.module.children()),
            operators=tuple(
                TracedOperator(
                    name=name,
                    flops=flops / samples,
                    traffic_bytes=moved / samples,
                    backward_ratio=counts.ratio(name),
                )
                for name, flops, moved in parts
            ),
            rest_traffic_bytes=(counts.rest + glue.rest) / samples,
            rest_ratio=counts.backward_rest / counts.rest if counts.rest else 2.0,
            saved_bytes=(counts.saved + glue.saved) / samples,
            output_bytes=self._alive(index) / samples,
            weights=sum(item.numel() for item in trained if item.ndim > 1),
            biases=sum(item.numel() for item in trained if item.ndim <= 1),
            frozen=sum(item.numel() for item in new if not item.requires_grad),
            tied_weights=sum(item.numel() for item in old if item.ndim > 1),
            batch_norms=tuple(
                item.num_features for item in call.module.modules() if isinstance(item, _BatchNorm)
            ),
        )

    def _alive(self, index: int) -> float:
        """Return the bytes made up to a block that a later one reads."""
        return sum(
            size
            for key, (born, size) in self.born.items()
            if born <= index < self.last_use.get(key, -1)
            and key not in self.owned
            and key not in self.given
        )


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands every operator that runs to the trace."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = trace

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        output = func(*args, **named)
        if self.trace.paused:
            return output
        packet = func.overloadpacket
        formula = flop_registry.get(packet)
        flops = float(formula(*args, **named, out_val=output)) if formula else 0.0
        reads, writes = tensors_in((args, named)), tensors_in(output)
        self.trace.note(packet.__name__, flops, reads, writes)
        return output


class _Flash(torch.autograd.Function):
    """Fused attention as training kernels do it: the scores are never kept."""

    @staticmethod
    def forward(ctx: Any, trace: Trace, causal: bool, *tensors: Tensor) -> Tensor:
        query, key, value = tensors
        *outer, rows, _ = query.shape
        # Kernels write a token's heads side by side, so that merging heads copies nothing.
        output = query.new_empty(*outer[:-1], rows, *outer[-1:], value.shape[-1])
        output = output.transpose(-2, -3) if outer else output
        pairs = query.shape[:-1].numel() * key.shape[-2] * (0.5 if causal else 1.0)
        flops = 2.0 * pairs * (query.shape[-1] + value.shape[-1])
        trace.note(ATTENTION, flops, tensors, (output,))
        ctx.trace, ctx.flops = trace, flops
        ctx.save_for_backward(*tensors, output, query.new_empty(query.shape[:-1]))
        return output

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        """Return gradients of query, key and value; the saved statistics are read along the way."""
        saved = ctx.saved_tensors
        ctx.trace.note(ATTENTION, FLASH_BACKWARD * ctx.flops, saved, saved[:3])
        return None, None, *(torch.empty_like(item) for item in saved[:3])


class _Attention(TorchFunctionMode):
    """Replaces torch's scaled_dot_product_attention, which on meta and fake tensors would be unfused."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if func is not nn.functional.scaled_dot_product_attention:
            return func(*args, **named)
        query, key, value = (
            *args[:3],
            *(named[x] for x in ("query", "key", "value") if x in named),
        )
        causal = bool(named.get("is_causal", len(args) > 5 and args[5]))
        return _Flash.apply(  # type: ignore[no-untyped-call]
            self.trace, causal, query, key, value
        )


def _view(tensor: Tensor) -> _View:
    return _View(int(tensor.storage_offset()), tensor.shape, tensor.stride())


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors anywhere in nested arguments."""
    return [item for item in tree_flatten(value)[0] if isinstance(item, Tensor)]


def _description(value: Any) -> str:
    """Return shapes and types of the tensors among arguments, and the other values as text."""
    leaves, structure = tree_flatten(value)
    words = [
        f"{tuple(item.shape)}{item.dtype}" if isinstance(item, Tensor) else repr(item)
        for item in leaves
    ]
    return f"{structure}{words}"
