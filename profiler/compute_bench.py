"""Compute events on one device: events and flushed caches on CUDA, rotating tensors on a CPU.

A hot cache makes a block look 20 to 40 % faster than it is inside a step, so every repeat works on tensors that were not
touched since more than the last-level cache passed: CUDA writes over its L2 cache before each repeat, a CPU rotates over several
sets of tensors.
"""

import time
from collections.abc import Callable
from itertools import cycle

import torch

from costmodel.events import ComputeEvent
from profiler.device import Machine
from profiler.targets import Target, build
from profiler.timing import Timing, repeat

_MOST_SETS = 32
_MOST_BYTES = 2 << 30
_SHORT_S = 50e-6  # below this a clock call is a visible part: several calls make one sample
_SAMPLE_S = 500e-6
_LEAD = 4  # times the caches are written over: while it lasts the host launches ahead what is timed


def bench(event: ComputeEvent, machine: Machine, budget_s: float) -> Timing:
    """Return the seconds of a compute event.

    Raises:
        UnsupportedError: If no kernel is known for it.
        MemoryError, torch.OutOfMemoryError: If its tensors do not fit.
    """
    if machine.kind == "cuda":
        # "tf32" events are products of fp32 tensors on the tensor cores, "fp32" events are not
        torch.set_float32_matmul_precision("high" if event.dtype == "tf32" else "highest")
        return repeat(_on_cuda(build(event, "cuda"), machine.cache_bytes), budget_s)
    return repeat(_on_cpu(_sets(event, machine)), budget_s)


def _sets(event: ComputeEvent, machine: Machine) -> list[Target]:
    first = build(event, "cpu")
    wanted = 2 * machine.cache_bytes // max(first.bytes, 1) + 2
    count = max(1, min(wanted, _MOST_SETS, _MOST_BYTES // max(first.bytes, 1)))
    return [first, *(build(event, "cpu") for _ in range(count - 1))]


def _on_cpu(targets: list[Target]) -> Callable[[], float]:
    turn = cycle(targets)

    def one() -> float:
        target = next(turn)
        prepared = target.prepare()
        start = time.perf_counter()
        target.run(prepared)
        return time.perf_counter() - start

    def once() -> float:
        seconds, calls = one(), 1
        while seconds / calls < _SHORT_S and seconds < _SAMPLE_S:
            seconds, calls = seconds + one(), calls + 1
        return seconds / calls

    return once


def _on_cuda(target: Target, cache_bytes: int) -> Callable[[], float]:
    time_it = cuda_timer(cache_bytes)

    def once() -> float:
        prepared = target.prepare()
        return time_it(lambda: target.run(prepared))

    return once


def cuda_timer(cache_bytes: int) -> Callable[[Callable[[], object]], float]:
    """Return a function that times a call on the current GPU, caches written over and the launch ahead of the kernels."""
    flush = torch.empty(2 * cache_bytes, dtype=torch.uint8, device="cuda")
    start, end = _event(), _event()

    def time_it(run: Callable[[], object]) -> float:
        for _ in range(_LEAD):
            flush.zero_()
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    return time_it


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event
