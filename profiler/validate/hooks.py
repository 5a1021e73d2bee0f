"""What really happened: collectives as torch.distributed issued them, and bytes that autograd kept."""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from costmodel.events import Collective, CommEvent
from profiler.validate.job import FP32

_BACKEND = re.compile(r"^(?:gloo|nccl):(\w+)$")
_OPERATORS: dict[str, Collective] = {
    "c10d::allreduce_": "all_reduce",
    "c10d::_allgather_base_": "all_gather",
    "c10d::_reduce_scatter_base_": "reduce_scatter",
    "c10d::alltoall_base_": "all_to_all",
    "c10d::send": "send_recv",
}


def collectives(run: Callable[[], None], group_size: int) -> Counter[CommEvent]:
    """Return the collectives that one rank issues during ``run``; of transfers, what it sends.

    Every backend call is preceded by the operator that asked for it, which names the collective even where the backend
    does it by another (gloo reduces and scatters by an all-reduce).
    """
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as trace:
        run()
    return Counter(_issued(trace.events() or (), group_size))


def _issued(events: Iterable[Any], group_size: int) -> Iterator[CommEvent]:
    """Pair operators and backend calls in order: asynchronous calls may begin after the next operator was asked."""
    asked: deque[tuple[str, list[list[int]]]] = deque()
    for event in events:
        if event.name.startswith("c10d::"):
            asked.append((event.name, event.input_shapes))
        elif _BACKEND.match(event.name) and asked:
            name, shapes = asked.popleft()
            if name in _OPERATORS:
                yield _comm_event(name, [*shapes, *event.input_shapes], group_size)


def _comm_event(name: str, shapes: list[list[int]], group_size: int) -> CommEvent:
    ranks = 2 if name == "c10d::send" else group_size
    largest = max((prod(shape) for shape in shapes if shape), default=0)
    return CommEvent(
        collective=_OPERATORS[name],
        bytes=FP32 * largest,
        group_size=ranks,
        per_node=ranks,
        level=0,
    )


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor that DTensor may have cut."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


class SavedBytes:
    """Counts the storages that autograd keeps, parameters and inputs apart."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._parameters = {
            local(parameter).untyped_storage().data_ptr()
            for module in modules
            for parameter in module.parameters()
        }
        self._alive: Counter[int] = Counter()
        self._sizes: dict[int, int] = {}
        self.now = self.peak = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is saved inside; a tensor stops to count when autograd drops it."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            yield

    def _pack(self, tensor: Tensor) -> "_Kept":
        return _Kept(tensor, self)

    @staticmethod
    def _unpack(kept: "_Kept") -> Tensor:
        return kept.tensor

    def add(self, tensor: Tensor) -> int | None:
        """Count one more reference to a storage; return its address, None for parameters and integers."""
        storage = local(tensor).untyped_storage()
        address = storage.data_ptr()
        if address in self._parameters or not tensor.is_floating_point():
            return None
        self._alive[address] += 1
        if self._alive[address] == 1:
            self._sizes[address] = storage.nbytes()
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
        return address

    def drop(self, address: int) -> None:
        """Count one reference less."""
        self._alive[address] -= 1
        if not self._alive[address]:
            self.now -= self._sizes[address]


class _Kept:
    """A saved tensor that reports when autograd lets go of it."""

    def __init__(self, tensor: Tensor, counter: SavedBytes) -> None:
        self.tensor, self._counter = tensor.detach(), counter
        self._address = counter.add(tensor)

    def __del__(self) -> None:
        if self._address is not None:
            self._counter.drop(self._address)
