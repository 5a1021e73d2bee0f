"""What a rank does between collectives: the pieces of a run that lie outside of them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

# fully_shard calls the short names since PyTorch 2.13, where the long ones wrap them.
_SHORT = hasattr(dist, "all_gather_single")
_ISSUERS: tuple[tuple[ModuleType, str], ...] = (
    (functional, "all_reduce"),
    (dist, "all_gather_single" if _SHORT else "all_gather_into_tensor"),
    (dist, "reduce_scatter_single" if _SHORT else "reduce_scatter_tensor"),
)
"""What DTensor and fully_shard call: module and function."""
Pieces = list[float]


def outside(run: Callable[[], object]) -> Pieces:
    """Return the seconds of ``run`` before, between and behind its collectives, all ranks starting together."""
    inside: list[tuple[float, float]] = []
    dist.barrier()
    with _noted(inside):
        start = time.perf_counter()
        run()
        end = time.perf_counter()
    return gaps(start, inside, end)


def gaps(start: float, inside: Sequence[tuple[float, float]], end: float) -> Pieces:
    """Return what lies between ``start`` and ``end`` outside of ordered intervals."""
    begins, ends = [begin for begin, _ in inside], [ended for _, ended in inside]
    return [begin - ended for ended, begin in zip([start, *ends], [*begins, end], strict=True)]


@contextmanager
def _noted(inside: list[tuple[float, float]]) -> Iterator[None]:
    """Note begin and end of every collective; each is waited for at once, as its user does a little later."""
    kept = [(module, name, getattr(module, name)) for module, name in _ISSUERS]
    for module, name, inner in kept:
        setattr(module, name, _timed(inner, inside))
    try:
        yield
    finally:
        for module, name, inner in kept:
            setattr(module, name, inner)


def _timed(inner: Callable[..., Any], inside: list[tuple[float, float]]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = inner(*args, **kwargs)
        if hasattr(result, "wait"):
            result.wait()
        inside.append((begin, time.perf_counter()))
        return result

    return timed
