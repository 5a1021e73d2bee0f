"""Communication events with torch.distributed: NCCL on GPUs, gloo on CPUs, one process a rank.

``main`` is what torchrun starts on every rank: it measures a list of events of one group size and rank 0 prints a line of JSON
after each. Every repeat begins behind a barrier. On a CPU the slowest rank's time counts; of a transfer the shorter of send and
receive, since the receiver may have waited for the sender (DistSim, CF'23, section 4.2). On GPUs events on the stream time
it, as compute is timed, and the shortest rank's time counts: its rank came last and waited for nobody, as in an
iteration, where waiting is part of what the others do.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from costmodel.errors import InputError
from costmodel.events import CommEvent, parse_event
from profiler.compute_bench import cuda_timer
from profiler.failures import OUT_OF_MEMORY, reason
from profiler.timing import FEW_BUDGETS, Timing, repeat

_PATIENCE_S = 120.0  # setting up NCCL between eight GPUs takes tens of seconds


def buffers(
    event: CommEvent, device: str, dtype: torch.dtype = torch.bfloat16
) -> tuple[Tensor, Tensor]:
    """Return one rank's input and output of a collective."""
    elements = max(event.bytes // dtype.itemsize, event.group_size)
    share = -(-elements // event.group_size)
    whole = torch.zeros(share * event.group_size, dtype=dtype, device=device)
    part = torch.zeros(share, dtype=dtype, device=device)
    sides = {
        "all_gather": (part, whole),
        "reduce_scatter": (whole, part),
        "all_to_all": (whole, torch.empty_like(whole)),
    }
    return sides.get(event.collective, (whole, whole))


def call(
    event: CommEvent, device: str, dtype: torch.dtype = torch.bfloat16
) -> Callable[[], object]:
    """Return the collective of ``event`` on this rank."""
    given, made = buffers(event, device, dtype)
    match event.collective:
        case "all_reduce":
            return lambda: dist.all_reduce(given)
        case "all_gather":
            return lambda: dist.all_gather_into_tensor(made, given)
        case "reduce_scatter":
            return lambda: dist.reduce_scatter_tensor(made, given)
        case "all_to_all":
            return lambda: dist.all_to_all_single(made, given)
        case "send_recv":
            return lambda: dist.send(given, 1) if dist.get_rank() == 0 else dist.recv(made, 0)


def bench(event: CommEvent, device: str, budget_s: float) -> Timing:
    """Return the seconds of a collective; every rank calls this, and all return the same."""
    act = call(event, device)
    shortest = device == "cuda" or event.collective == "send_recv"
    reduce = dist.ReduceOp.MIN if shortest else dist.ReduceOp.MAX
    time_it = cuda_timer(_cache_bytes()) if device == "cuda" else _clocked

    def once() -> float:
        dist.barrier()
        seconds = torch.tensor([time_it(act)], dtype=torch.float64, device=device)
        dist.all_reduce(seconds, op=reduce)
        return float(seconds)

    return repeat(once, budget_s, clock=_shared_clock)


def _clocked(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _cache_bytes() -> int:
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)


def _shared_clock() -> float:
    """Return the latest clock of all ranks, so that they stop at the same repeat."""
    now = torch.tensor([time.perf_counter()], dtype=torch.float64, device=_device())
    dist.all_reduce(now, op=dist.ReduceOp.MAX)
    return float(now)


def _device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def main(budget_s: float, keys: list[str]) -> None:
    """Measure ``keys`` on the ranks that torchrun started; rank 0 prints one JSON line an event."""
    _join(budget_s)
    try:
        for key in keys:
            _report(key, budget_s)
    finally:
        dist.destroy_process_group()


def _join(budget_s: float) -> None:
    """Join the group; ranks that hear nothing from the others for long give up, so that the run goes on."""
    patience = timedelta(seconds=_PATIENCE_S + FEW_BUDGETS * budget_s)
    if torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"]):
        own = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(own)
        dist.init_process_group("nccl", device_id=own, timeout=patience)
        return
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=patience)


def _report(key: str, budget_s: float) -> None:
    event = parse_event(key)
    if not isinstance(event, CommEvent):
        raise InputError("is no communication", key="event", value=key)
    why = _does_not_fit(event)
    found = {"failed": why} if why else asdict(bench(event, _device(), budget_s))
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps({"event": key, **found}) + "\n")
        sys.stdout.flush()


def _does_not_fit(event: CommEvent) -> str:
    """Return why the buffers of ``event`` cannot be made on some rank, the same on all; empty if they can."""
    fits = torch.ones(1, device=_device())
    try:
        buffers(event, _device())
    except (MemoryError, RuntimeError) as error:
        if reason(error) != OUT_OF_MEMORY:
            raise
        fits.zero_()
    dist.all_reduce(fits, op=dist.ReduceOp.MIN)
    return "" if fits.item() else OUT_OF_MEMORY


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
