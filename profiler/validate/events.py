"""Prices of a job's unique events, measured by all ranks side by side as they run in the job.

What a part of PyTorch adds to a module (DTensor's dispatch, fully_shard's copies and hooks) belongs to the module's event: it is
measured with that part over a group of one rank; the collectives over several ranks are events of their own. A module's event runs as a chain of several modules, each with weights of its own and the output of the one before as its
input, so that weights come from memory and activations from where the step finds them; gradients accumulate into existing ones.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate

from costmodel.events import CommEvent
from profiler.comm_bench import call
from profiler.validate.hooks import local as local_part
from profiler.validate.job import Job
from profiler.validate.launch import optimizer_of
from profiler.validate.modules import Block, Stage, backward, loss_of, split_block, tokens

_CHAIN = 3
_REPEATS = 3
Prices = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything that measures one round of a job's events."""

    job: Job
    blocks: list[Block]
    ends: Stage
    steps: dict[str, torch.optim.Optimizer]
    comm: dict[CommEvent, Callable[[], object]]

    def round(self) -> Prices:
        """Measure each event once; all ranks call this together."""
        prices: Prices = {}
        self._blocks(prices)
        self._ends(prices)
        for name, optimizer in self.steps.items():
            prices[f"{name} step"] = _alone(partial(_step, optimizer))
        for event, act in self.comm.items():
            prices[event.key] = statistics.median(_together(act) for _ in range(_REPEATS))
        return prices

    def _blocks(self, prices: Prices) -> None:
        shape, batch = self.job.shape, self.job.strategy.micro_batch
        x = torch.randn(batch, shape.sequence, shape.hidden, requires_grad=True)
        outputs: list[Tensor] = [x]

        def forward() -> None:
            for block in self.blocks:
                outputs.append(block(outputs[-1]))

        prices["block forward"] = _alone(forward) / len(self.blocks)
        gradient = torch.randn_like(outputs[-1])
        prices["block backward"] = _alone(lambda: backward(outputs[-1], gradient)) / len(
            self.blocks
        )

    def _ends(self, prices: Prices) -> None:
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

        prices["embedding forward"] = _alone(embed)
        prices["head forward"] = _alone(judge)
        prices["head backward"] = _alone(lambda: backward(made["loss"]))
        gradient = torch.randn_like(made["x"])
        prices["embedding backward"] = _alone(lambda: backward(made["x"], gradient))


def bench(job: Job, comm: set[CommEvent]) -> Bench:
    """Return the bench of a job; every rank builds the same."""
    shape = job.shape
    local = shape.split(job.strategy.tp)
    # the split block keeps the hidden width: only heads and MLP are cut
    blocks = [Block(local, local) for _ in range(_CHAIN)]
    ends = Stage(shape, local, 0, first=True, last=True)
    alone = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("ranks", "one"))
    _wrap(blocks, ends, job, alone["one"])
    shards = job.strategy.dp if job.strategy.zero >= 2 else 1
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
            name: _optimizer(module, shards, _mesh_of(name, job, alone))
            for name, module in modules.items()
            if module
        },
        comm={event: call(event, "cpu", torch.float32) for event in sorted(comm, key=str)},
    )


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


def _optimizer(module: nn.Module, shards: int, mesh: DeviceMesh | None) -> torch.optim.Optimizer:
    """Return AdamW over copies of one rank's shards of a module's parameters, with gradients."""
    copies = []
    for parameter in module.parameters():
        whole = local_part(parameter.detach())
        part = whole[: -(-whole.shape[0] // shards)].clone()
        value = part if mesh is None else DTensor.from_local(part, mesh, [Replicate()])
        copy = nn.Parameter(value)
        copy.grad = torch.randn_like(value)
        copies.append(copy)
    return optimizer_of(copies)


def _step(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def _alone(run: Callable[[], object]) -> float:
    """Return the seconds of ``run`` on this rank while the others do the same."""
    dist.barrier()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _together(act: Callable[[], object]) -> float:
    """Return the seconds of a collective on the slowest rank."""
    dist.barrier()
    start = time.perf_counter()
    act()
    seconds = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return float(seconds)
