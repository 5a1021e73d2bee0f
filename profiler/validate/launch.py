"""One rank of a strategy, built from PyTorch's own parts: DDP, fully_shard, DTensor, torch.distributed.pipelining."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.nn.parallel import DistributedDataParallel

from profiler.validate.job import Job
from profiler.validate.modules import Block, Stage, loss_of, split_block, tokens
from profiler.validate.zero1 import ShardedModule

BUCKET_BYTES = 25 << 20  # DistributedDataParallel's default bucket_cap_mb
Pass = Literal["F", "B"]
# The optimizer of every run; its step is one event per module.
LEARNING_RATE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One pass of one virtual stage, on the clock that all processes of a machine share."""

    kind: Pass
    stage: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A rank that is ready to step.

    Attributes:
        step: All micro-batches of one iteration.
        finish: What follows them: the optimizer's step, and the collectives of ZeRO-1 around it.
        modules: The stages it holds, unwrapped.
        spans: Filled by every step; cleared by the caller.
    """

    step: Callable[[], None]
    finish: Callable[[], None]
    modules: tuple[Stage, ...]
    optimizer: torch.optim.Optimizer
    spans: list[Span] = field(default_factory=list)

    def whole(self) -> None:
        """Run one iteration."""
        self.step()
        self.finish()

    def iterate(self) -> tuple[float, float]:
        """Run one iteration behind a barrier; return start and end of this rank."""
        self.spans.clear()
        dist.barrier()
        start = time.perf_counter()
        self.whole()
        return start, time.perf_counter()


def build(job: Job) -> Rank:
    """Return this rank of ``job``; torch.distributed is initialised."""
    spans: list[Span] = []
    if job.strategy.pp > 1:
        return _pipelined(job, spans)
    return _replicated(job, spans)


def optimizer_of(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return AdamW over ``parameters``, one tensor after the other as on a CPU."""
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE, foreach=False)


def step_and_clear(optimizer: torch.optim.Optimizer) -> None:
    """Step, and set the gradients to zero in place."""
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def _finish_of(job: Job, model: Stage) -> tuple[torch.optim.Optimizer, Callable[[], None]]:
    """Return the optimizer of a replica and what ends its iteration."""
    strategy = job.strategy
    if strategy.zero != 1:
        plain = optimizer_of(list(model.parameters()))
        return plain, partial(step_and_clear, plain)
    parts = [ShardedModule(part, strategy.dp, dist.get_rank()) for part in model.parts]
    sharded = optimizer_of([part.shard for part in parts])

    def finish() -> None:
        for part in parts:
            part.reduce()
            part.average()
        sharded.step()
        for part in parts:
            part.gather()
            part.clear()

    return sharded, finish


def _stage(job: Job, stage: int) -> Stage:
    shape = job.shape
    return Stage(
        shape,
        shape.split(job.strategy.tp),
        job.layers[stage],
        first=stage == 0,
        last=stage == len(job.layers) - 1,
    )


def _replicated(job: Job, spans: list[Span]) -> Rank:
    strategy = job.strategy
    plain = _stage(job, 0)
    model: nn.Module = plain
    if strategy.tp > 1:
        mesh = init_device_mesh("cpu", (strategy.tp,))
        for block in plain.blocks:
            split_block(cast("Block", block), mesh)
    elif strategy.zero >= 2:
        _shard(plain, whole=strategy.zero == 3)
    elif strategy.dp > 1 and not strategy.zero:
        model = DistributedDataParallel(
            plain, gradient_as_bucket_view=True, broadcast_buffers=False
        )
    batches = [_batch(job) for _ in range(strategy.microbatches)]

    def step() -> None:
        for number, (inputs, labels) in enumerate(batches, 1):
            quiet = isinstance(model, DistributedDataParallel) and number < len(batches)
            with model.no_sync() if quiet else nullcontext():  # type: ignore[operator]
                start = time.perf_counter()
                loss = loss_of(model(inputs), labels)
                middle = time.perf_counter()
                loss.backward()  # type: ignore[no-untyped-call]
            spans.append(Span(kind="F", stage=0, start_s=start, end_s=middle))
            spans.append(Span(kind="B", stage=0, start_s=middle, end_s=time.perf_counter()))

    optimizer, finish = _finish_of(job, plain)
    return Rank(step=step, finish=finish, modules=(plain,), optimizer=optimizer, spans=spans)


def _shard(model: Stage, *, whole: bool) -> None:
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=whole)
    fully_shard(model, reshard_after_forward=whole)


def _batch(job: Job) -> tuple[Tensor, Tensor]:
    batch = job.strategy.micro_batch
    return tokens(job.shape, batch), tokens(job.shape, batch)


def _pipelined(job: Job, spans: list[Span]) -> Rank:
    strategy, rank = job.strategy, dist.get_rank()
    numbers = job.stages_of(rank)
    modules = tuple(_stage(job, number) for number in numbers)
    stages = [
        _watched(PipelineStage(module, number, len(job.layers), torch.device("cpu")), spans)
        for module, number in zip(modules, numbers, strict=True)
    ]
    last = len(job.layers) - 1
    schedule = _schedule(job, stages, _timed_loss(spans, last))
    batch = strategy.micro_batch * strategy.microbatches
    inputs, labels = tokens(job.shape, batch), tokens(job.shape, batch)
    given = (inputs,) if 0 in numbers else ()
    wanted = {"target": labels} if last in numbers else {}
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = optimizer_of(parameters)
    return Rank(
        step=lambda: _ignore(schedule.step(*given, **wanted)),
        finish=partial(step_and_clear, optimizer),
        modules=modules,
        optimizer=optimizer,
        spans=spans,
    )


def _ignore(_: object) -> None:
    return None


def _schedule(job: Job, stages: list[PipelineStage], loss: Callable[..., Tensor]) -> Any:
    microbatches = job.strategy.microbatches
    if job.strategy.vpp > 1:
        return ScheduleInterleaved1F1B(stages, microbatches, loss_fn=loss, scale_grads=False)  # type: ignore[arg-type]
    kind = ScheduleGPipe if job.strategy.schedule == "gpipe" else Schedule1F1B
    return kind(stages[0], microbatches, loss_fn=loss, scale_grads=False)


def _timed_loss(spans: list[Span], stage: int) -> Callable[..., Tensor]:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        start = time.perf_counter()
        value = loss_of(logits, labels)
        spans.append(Span(kind="F", stage=stage, start_s=start, end_s=time.perf_counter()))
        return value

    return loss


def _watched(stage: PipelineStage, spans: list[Span]) -> PipelineStage:
    """Return the stage with its passes written into ``spans``."""

    def watch(name: str, kind: Pass) -> None:
        inner = getattr(stage, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = inner(*args, **kwargs)
            end = time.perf_counter()
            spans.append(Span(kind=kind, stage=stage.stage_index, start_s=start, end_s=end))
            return result

        setattr(stage, name, timed)

    watch("forward_one_chunk", "F")
    watch("backward_one_chunk", "B")
    return stage
