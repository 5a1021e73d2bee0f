"""Prices of a job's unique events, measured by all ranks side by side as they run in the job.

A module's event runs as a chain of several modules, each with weights of its own and the output of the one before as its
input, so that weights come from memory and activations from where the step finds them; gradients accumulate into existing ones.
What a part of PyTorch adds to a module (DTensor's dispatch, fully_shard's copies and hooks) belongs to the module's event.
Its collectives run between, where they cool the caches and make the ranks meet, and are events of their own
(profiler.validate.meetings).

Collectives that no module issues, and those of the root, are issued behind computation, as in the step, and not behind
a barrier, which wakes the threads and sockets that carry them.
"""

import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

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
from profiler.validate.meetings import Meeting, Pieces, Watched, lasted, watch
from profiler.validate.modules import Block, Stage, backward, loss_of, split_block, tokens
from profiler.validate.zero1 import ShardedModule

_CHAIN = 3
_PASSES = 2  # of the chain in a round
_LEAST, _MOST = 4, 24
Samples = dict[str, Pieces]
"""Seconds by event, in pieces that add up to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A collective and how often a round measures it: about as often as the iteration issues it."""

    act: Callable[[], object]
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything that measures one round of a job's events.

    Attributes:
        work: What runs before a collective.
    """

    job: Job
    blocks: list[Block]
    ends: Stage
    work: Block
    steps: dict[str, Callable[[], object]]
    comm: dict[CommEvent, Collective]

    def round(self) -> Samples:
        """Measure each event; all ranks call this together."""
        samples: Samples = {}
        seen = lasted(self._blocks(samples))
        self._ends(samples)
        for name, step in self.steps.items():
            samples[f"{name} step"] = watch(step).pieces
        for event, comm in self.comm.items():
            seconds = seen.get(event) or [self._behind_work(comm.act) for _ in range(comm.repeats)]
            samples[event.key] = [one / len(seconds) for one in seconds]
        return samples

    def _states(self) -> Tensor:
        shape, batch = self.job.shape, self.job.strategy.micro_batch
        return torch.randn(batch, shape.sequence, shape.hidden)

    def _blocks(self, samples: Samples) -> list[Meeting]:
        """Price the passes of a block; return the collectives inside."""
        meetings: list[Meeting] = []
        for _ in range(_PASSES):
            for name, seen in self._chain().items():
                meetings += seen.meetings
                pieces = [piece / _CHAIN / _PASSES for piece in seen.pieces]
                samples.setdefault(name, []).extend(pieces)
        return meetings

    def _chain(self) -> dict[str, Watched]:
        outputs = [self._states().requires_grad_()]

        def forward() -> None:
            for block in self.blocks:
                outputs.append(block(outputs[-1]))

        there = watch(forward)
        gradient = torch.randn_like(outputs[-1])
        back = watch(lambda: backward(outputs[-1], gradient))
        return {"block forward": there, "block backward": back}

    def _behind_work(self, act: Callable[[], object]) -> float:
        """Return the seconds of a collective from the last rank's start to the last one's end."""
        dist.barrier()
        with torch.no_grad():
            self.work(self._states())
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

        samples["embedding forward"] = watch(embed).pieces
        samples["head forward"] = watch(judge).pieces
        samples["head backward"] = watch(lambda: backward(made["loss"])).pieces
        gradient = torch.randn_like(made["x"])
        samples["embedding backward"] = watch(lambda: backward(made["x"], gradient)).pieces


def bench(job: Job, comm: Mapping[CommEvent, int]) -> Bench:
    """Return the bench of a job that issues ``comm`` so often; every rank builds the same."""
    shape = job.shape
    local = shape.split(job.strategy.tp)
    # the split block keeps the hidden width: only heads and MLP are cut
    plain, ends = Block(local, local), Stage(shape, local, 0, first=True, last=True)
    mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("ranks", "one"))
    one, ranks = mesh["one"], mesh["ranks"]
    blocks = [Block(shape if job.strategy.tp > 1 else local, local) for _ in range(_CHAIN)]
    _wrap(blocks, ends, job, ranks)
    modules: dict[str, nn.Module | None] = {
        "block": blocks[0],
        "embedding": ends.embedding,
        "head": ends.head,
    }
    return Bench(
        job=job,
        blocks=blocks,
        ends=ends,
        work=plain,
        steps={name: _step_of(module, job, one) for name, module in modules.items() if module},
        comm={
            event: Collective(
                act=_issued(event, job, ranks), repeats=min(max(count, _LEAST), _MOST)
            )
            for event, count in comm.items()
        },
    )


def _issued(event: CommEvent, job: Job, ranks: DeviceMesh) -> Callable[[], object]:
    """Return the collective as the job's parts issue it: DTensor and fully_shard into new memory, others in place."""
    given, made = buffers(event, "cpu", torch.float32)
    if job.strategy.tp > 1:
        return lambda: functional.wait_tensor(functional.all_reduce(given, "sum", ranks))  # type: ignore[no-untyped-call]
    if job.strategy.zero < 2:
        return call(event, "cpu", torch.float32)
    if event.collective == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(torch.empty_like(made), given)

    def gather() -> object:
        output = torch.empty_like(made)
        own = output[dist.get_rank() * given.numel() :][: given.numel()]
        return dist.all_gather_into_tensor(output, own)

    return gather


def _wrap(blocks: list[Block], ends: Stage, job: Job, ranks: DeviceMesh) -> None:
    """Give the modules what the job's modules have."""
    strategy = job.strategy
    if strategy.tp > 1:
        for block in blocks:
            split_block(block, ranks)
    if strategy.zero >= 2:
        for module in (*blocks, ends.embedding, ends.head):
            if module is not None:
                fully_shard(module, mesh=ranks, reshard_after_forward=strategy.zero == 3)


def _step_of(module: nn.Module, job: Job, one: DeviceMesh) -> Callable[[], object]:
    """Return the optimizer's step on one rank's share of copies of a module's parameters."""
    if job.strategy.zero == 1:
        return _sharded_step(ShardedModule(deepcopy(module), job.strategy.dp, 0))
    copies = []
    for parameter in module.parameters():
        part = local_part(parameter.detach()).clone()
        cut = isinstance(parameter, DTensor)
        value = DTensor.from_local(part, one, [Replicate()]) if cut else part
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
