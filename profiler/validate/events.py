"""Prices of a job's unique events, measured by all ranks side by side as they run in the job.

What a part of PyTorch adds to a module (DTensor's dispatch, fully_shard's copies and hooks) belongs to the module's event: it is
measured with that part over a group of one rank; the collectives over several ranks are events of their own.

A module's event runs as a chain of several modules, each with weights of its own and the output of the one before as its
input, so that weights come from memory and activations from where the step finds them; gradients accumulate into existing ones.

A collective is issued behind computation, as in the step, and not behind a barrier: a barrier wakes the threads and
sockets that carry it, and leaves the buffers in the caches. It lasts from when the last rank has come to when the last has gone;
what the earlier ranks wait belongs to the computation before it (profiler.validate.report.prices_of).
"""

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate

from costmodel.events import CommEvent
from profiler.comm_bench import buffers, call
from profiler.validate.hooks import local as local_part
from profiler.validate.job import Job
from profiler.validate.launch import optimizer_of, step_and_clear
from profiler.validate.modules import Block, Stage, backward, loss_of, split_block, tokens
from profiler.validate.zero1 import ShardedModule

_CHAIN = 3
_REPEATS = 6
Samples = dict[str, list[float]]
"""Seconds by event: of modules those of this rank, of collectives those of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything that measures one round of a job's events."""

    job: Job
    blocks: list[Block]
    ends: Stage
    steps: dict[str, Callable[[], object]]
    comm: dict[CommEvent, Callable[[], object]]

    def round(self) -> Samples:
        """Measure each event; all ranks call this together."""
        samples: Samples = {}
        self._blocks(samples)
        self._ends(samples)
        for name, step in self.steps.items():
            samples[f"{name} step"] = [_alone(step)]
        for event, act in self.comm.items():
            samples[event.key] = [self._behind_work(act) for _ in range(_REPEATS)]
        return samples

    def _states(self) -> Tensor:
        shape, batch = self.job.shape, self.job.strategy.micro_batch
        return torch.randn(batch, shape.sequence, shape.hidden)

    def _blocks(self, samples: Samples) -> None:
        """Time the passes of a chain block by block."""
        outputs: list[Tensor] = [self._states().requires_grad_()]
        dist.barrier()
        marks = [time.perf_counter()]

        def mark(_: object = None) -> None:
            marks.append(time.perf_counter())

        for block in self.blocks:
            outputs.append(block(outputs[-1]))
            mark()
        samples["block forward"] = _gaps(marks)
        for inner in outputs[1:-1]:
            inner.register_hook(mark)  # type: ignore[no-untyped-call]
        gradient = torch.randn_like(outputs[-1])
        dist.barrier()
        marks[:] = [time.perf_counter()]
        backward(outputs[-1], gradient)
        mark()
        samples["block backward"] = _gaps(marks)

    def _behind_work(self, act: Callable[[], object]) -> float:
        """Return the seconds of a collective from the last rank's start to the last one's end."""
        dist.barrier()
        with torch.no_grad():
            self.blocks[0](self._states())
        start = time.perf_counter()
        act()
        times = torch.tensor([start, time.perf_counter()], dtype=torch.float64)
        dist.all_reduce(times, op=dist.ReduceOp.MAX)
        return float(times[1] - times[0])

    def _ends(self, samples: Samples) -> None:
        """Price embedding and head with loss; the gradient stops at the head's input, as a block takes it on."""
        shape, batch = self.job.shape, self.job.strategy.micro_batch
        inputs, labels = tokens(shape, batch), tokens(shape, batch)
        embedding, head = self.ends.embedding, self.ends.head
        made: dict[str, Tensor] = {}

        def embed() -> None:
            made["x"] = embedding(inputs) if embedding is not None else torch.empty(0)

        def judge() -> None:
            made["leaf"] = made["x"].detach().requires_grad_()
            logits = head(made["leaf"]) if head is not None else made["leaf"]
            made["loss"] = loss_of(logits, labels)

        samples["embedding forward"] = [_alone(embed)]
        samples["head forward"] = [_alone(judge)]
        samples["head backward"] = [_alone(lambda: backward(made["loss"]))]
        gradient = torch.randn_like(made["x"])
        samples["embedding backward"] = [_alone(lambda: backward(made["x"], gradient))]


def bench(job: Job, comm: set[CommEvent]) -> Bench:
    """Return the bench of a job; every rank builds the same."""
    shape = job.shape
    local = shape.split(job.strategy.tp)
    # the split block keeps the hidden width: only heads and MLP are cut
    blocks = [Block(local, local) for _ in range(_CHAIN)]
    ends = Stage(shape, local, 0, first=True, last=True)
    alone = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("ranks", "one"))
    _wrap(blocks, ends, job, alone["one"])
    modules: dict[str, nn.Module | None] = {
        "block": blocks[0],
        "embedding": ends.embedding,
        "head": ends.head,
    }
    return Bench(
        job=job,
        blocks=blocks,
        ends=ends,
        steps={
            name: _step_of(module, job, _mesh_of(name, job, alone))
            for name, module in modules.items()
            if module
        },
        comm={event: _issued(event, job, alone["ranks"]) for event in sorted(comm, key=str)},
    )


def _issued(event: CommEvent, job: Job, ranks: DeviceMesh) -> Callable[[], object]:
    """Return the collective as the job's parts issue it: DTensor out of place, all others in place."""
    if job.strategy.tp == 1:
        return call(event, "cpu", torch.float32)
    part, _ = buffers(event, "cpu", torch.float32)

    def reduce() -> object:
        return functional.wait_tensor(functional.all_reduce(part, "sum", ranks))  # type: ignore[no-untyped-call]

    return reduce


def _wrap(blocks: Sequence[Block], ends: Stage, job: Job, mesh: DeviceMesh) -> None:
    """Give the modules what the job's modules have, over ``mesh`` of one rank."""
    strategy = job.strategy
    if strategy.tp > 1:
        for block in blocks:
            split_block(block, mesh)
    if strategy.zero >= 2:
        for module in (*blocks, ends.embedding, ends.head):
            if module is not None:
                fully_shard(module, mesh=mesh, reshard_after_forward=strategy.zero == 3)


def _mesh_of(name: str, job: Job, meshes: DeviceMesh) -> DeviceMesh | None:
    """Return the mesh over which a module's parameters are DTensors, None where they are plain."""
    cut = job.strategy.zero >= 2 or (job.strategy.tp > 1 and name == "block")
    return meshes["one"] if cut else None


def _step_of(module: nn.Module, job: Job, mesh: DeviceMesh | None) -> Callable[[], object]:
    """Return the optimizer's step on one rank's share of copies of a module's parameters."""
    if job.strategy.zero == 1:
        return _sharded_step(ShardedModule(deepcopy(module), job.strategy.dp, 0))
    shards = job.strategy.dp if job.strategy.zero else 1
    copies = []
    for parameter in module.parameters():
        whole = local_part(parameter.detach())
        part = whole[: -(-whole.shape[0] // shards)].clone()
        value = part if mesh is None else DTensor.from_local(part, mesh, [Replicate()])
        copy = nn.Parameter(value)
        copy.grad = torch.randn_like(value)
        copies.append(copy)
    return partial(step_and_clear, optimizer_of(copies))


def _sharded_step(part: ShardedModule) -> Callable[[], object]:
    optimizer = optimizer_of([part.shard])

    def step() -> None:
        part.average()
        optimizer.step()
        part.clear()

    return step


def _alone(run: Callable[[], object]) -> float:
    """Return the seconds of ``run`` on this rank while the others do the same."""
    dist.barrier()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _gaps(marks: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(marks)]
