"""What torchrun starts on every rank: rounds of events and iterations, interleaved; rank 0 writes what all saw."""

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from costmodel.events import CommEvent
from profiler.validate.events import bench
from profiler.validate.expected import collectives as expected_collectives
from profiler.validate.hooks import SavedBytes, collectives, local
from profiler.validate.job import Job, load_jobs
from profiler.validate.launch import Rank, build

_WARMUP = 2


def main(job_file: str, result_file: str) -> None:
    """Run one rank of the jobs, one after the other."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    try:
        results = [_gathered(_run(job)) for job in load_jobs(Path(job_file))]
        if dist.get_rank() == 0:
            Path(result_file).write_text(json.dumps(results), encoding="utf-8")
    finally:
        dist.destroy_process_group()


def _gathered(own: object) -> list[Any]:
    """Return what every rank has."""
    everything: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everything, own)
    return everything


def _run(job: Job) -> dict[str, Any]:
    expected = expected_collectives(job, _pp_rank(job))
    measure = bench(job, _of_all(expected))
    rank = build(job)
    for _ in range(_WARMUP):
        measure.round()
        rank.iterate()
    issued, saved = _watch(job, rank)
    rounds = []
    for _ in range(job.rounds):
        prices = measure.round()
        start, end = rank.iterate()
        spans = [asdict(span) for span in rank.spans]
        rounds.append({"prices": prices, "start_s": start, "end_s": end, "spans": spans})
    return {
        "rounds": rounds,
        "issued": {event.key: count for event, count in issued.items()},
        "expected": {event.key: count for event, count in expected.items()},
        "saved_bytes": saved,
        "state_bytes": _state_bytes(rank),
    }


def _pp_rank(job: Job) -> int:
    return dist.get_rank() if job.strategy.pp > 1 else 0


def _of_all(expected: Counter[CommEvent]) -> dict[CommEvent, int]:
    """Return the largest counts of any rank, in one order: all ranks measure them together."""
    counts: Counter[CommEvent] = Counter()
    for one in _gathered(expected):
        counts |= one
    return dict(sorted(counts.items(), key=lambda item: item[0].key))


def _watch(job: Job, rank: Rank) -> tuple[Counter[CommEvent], int]:
    """Return the collectives of one iteration and the peak of saved activations of another."""
    group = job.strategy.dp if job.strategy.dp > 1 else job.strategy.tp
    dist.barrier()
    issued = collectives(rank.whole, max(group, 2))
    counter = SavedBytes(rank.modules)
    dist.barrier()
    with counter.counting():
        rank.whole()
    return issued, counter.peak


def _state_bytes(rank: Rank) -> int:
    """Return parameters and gradients of the modules and the moments of what the optimizer steps on."""
    parameters = [local(p) for module in rank.modules for p in module.parameters()]
    moments = [
        local(value)
        for state in rank.optimizer.state.values()
        for name, value in state.items()
        if name.startswith("exp_avg")
    ]
    return sum(part.numel() * part.element_size() for part in (*parameters, *parameters, *moments))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
