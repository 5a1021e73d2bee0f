"""Communication events with torch.distributed: NCCL on GPUs, gloo on CPUs, one process a rank.

``main`` is what torchrun starts on every rank: it measures a list of events of one group size and rank 0 prints a line of JSON
after each. Every repeat begins behind a barrier, and the slowest rank's time counts; of a transfer the shorter of send and
receive, since the receiver may have waited for the sender (DistSim, CF'23, section 4.2).
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

import torch
import torch.distributed as dist
from torch import Tensor

from costmodel.errors import InputError
from costmodel.events import CommEvent, parse_event
from profiler.timing import Timing, repeat


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
    reduce = dist.ReduceOp.MIN if event.collective == "send_recv" else dist.ReduceOp.MAX

    def once() -> float:
        dist.barrier()
        start = time.perf_counter()
        act()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = torch.tensor([time.perf_counter() - start], dtype=torch.float64, device=device)
        dist.all_reduce(seconds, op=reduce)
        return float(seconds)

    return repeat(once, budget_s, clock=_shared_clock)


def _shared_clock() -> float:
    """Return the latest clock of all ranks, so that they stop at the same repeat."""
    now = torch.tensor([time.perf_counter()], dtype=torch.float64, device=_device())
    dist.all_reduce(now, op=dist.ReduceOp.MAX)
    return float(now)


def _device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def main(budget_s: float, keys: list[str]) -> None:
    """Measure ``keys`` on the ranks that torchrun started; rank 0 prints one JSON line an event."""
    cuda = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"])
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        for key in keys:
            _report(key, budget_s)
    finally:
        dist.destroy_process_group()


def _report(key: str, budget_s: float) -> None:
    event = parse_event(key)
    if not isinstance(event, CommEvent):
        raise InputError("is no communication", key="event", value=key)
    timing = bench(event, _device(), budget_s)
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps({"event": key, **asdict(timing)}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
