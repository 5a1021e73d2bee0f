"""The prediction of a job from the prices of its unique events: the hierarchy of DistSim (CF'23) on one machine.

Blocks make stages, stages a pipeline, the pipeline and what follows it an iteration. On a CPU a collective is done by the
cores that compute, so nothing of it hides behind a backward: it is added. torch's 1F1B sends and receives in one blocking call
(costmodel.recompose.rendezvous); its other schedules only wait for what they need (costmodel.simulator).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.events import CommEvent
from costmodel.recompose.rendezvous import Pipeline, run
from costmodel.schedules import Shape, rank_order
from costmodel.simulator import simulate
from costmodel.timeline import PipelineWork
from costmodel.units import NS_PER_S
from profiler.validate.expected import at_the_end, collectives, in_passes
from profiler.validate.job import FP32, Job

# Optimizer state of AdamW beside parameter and gradient, all fp32.
_STATES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePrediction:
    """One micro-batch on one virtual stage."""

    forward_s: float
    backward_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A predicted iteration.

    Attributes:
        stages: By virtual stage.
        busy_s: Seconds of passes on each rank.
        state_bytes: Parameters, gradients and moments on each rank.
        saved_bytes: Peak of what autograd keeps of activations on each rank; 0 where not predicted.
    """

    iteration_s: float
    stages: tuple[StagePrediction, ...]
    busy_s: tuple[float, ...]
    state_bytes: tuple[int, ...]
    saved_bytes: tuple[int, ...]


def predict(job: Job, prices: Mapping[str, float]) -> Prediction:
    """Return the prediction of a job from prices by event name or key."""
    stages = tuple(_stage(job, prices, stage) for stage in range(len(job.layers)))
    finish = [_finish(job, prices, rank) for rank in range(job.strategy.pp)]
    passes = _passes(job, prices, stages)
    ends = [passes_end + after for passes_end, after in zip(passes, finish, strict=True)]
    busy = [
        job.strategy.microbatches
        * sum(stages[s].forward_s + stages[s].backward_s for s in job.stages_of(rank))
        for rank in range(job.strategy.pp)
    ]
    copies = job.ranks // job.strategy.pp
    return Prediction(
        iteration_s=max(ends),
        stages=stages,
        busy_s=tuple(busy * copies),
        state_bytes=tuple([_state_bytes(job, rank) for rank in range(job.strategy.pp)] * copies),
        saved_bytes=tuple([_saved_bytes(job, rank) for rank in range(job.strategy.pp)] * copies),
    )


def predicted_spans(
    job: Job, prices: Mapping[str, float]
) -> list[list[tuple[str, int, float, float]]]:
    """Return the predicted passes of each rank: kind, virtual stage, start and end in seconds."""
    stages = [_stage(job, prices, stage) for stage in range(len(job.layers))]
    forward = tuple(stage.forward_s for stage in stages)
    backward = tuple(stage.backward_s for stage in stages)
    timeline = simulate(_work(job, forward, backward, _hop(job, prices)))
    rows = [
        [
            (
                "F" if span.kind == "F" else "B",
                span.chunk * job.strategy.pp + rank,
                span.start_ns / NS_PER_S,
                span.end_ns / NS_PER_S,
            )
            for span in spans
        ]
        for rank, spans in enumerate(timeline.spans)
    ]
    return rows * (job.ranks // job.strategy.pp)


def _stage(job: Job, prices: Mapping[str, float], stage: int) -> StagePrediction:
    forward_s = job.layers[stage] * prices["block forward"]
    backward_s = job.layers[stage] * prices["block backward"]
    for name in _ends(job, stage):
        forward_s += prices[f"{name} forward"]
        backward_s += prices[f"{name} backward"]
    beside = [_comm_s(part, prices) for part in in_passes(job)]
    return StagePrediction(forward_s=forward_s + beside[0], backward_s=backward_s + beside[1])


def _ends(job: Job, stage: int) -> tuple[str, ...]:
    names = ("embedding",) if stage == 0 else ()
    return (*names, "head") if stage == len(job.layers) - 1 else names


def _comm_s(events: Mapping[CommEvent, int], prices: Mapping[str, float]) -> float:
    return sum(prices[event.key] * count for event, count in events.items())


def _finish(job: Job, prices: Mapping[str, float], rank: int) -> float:
    stages = job.stages_of(rank)
    step = sum(job.layers[stage] for stage in stages) * prices["block step"]
    step += sum(prices[f"{name} step"] for stage in stages for name in _ends(job, stage))
    return step + _comm_s(at_the_end(job), prices)


def _passes(
    job: Job, prices: Mapping[str, float], stages: tuple[StagePrediction, ...]
) -> tuple[float, ...]:
    """Return when each pipeline rank ends its last backward."""
    strategy = job.strategy
    forward = tuple(stage.forward_s for stage in stages)
    backward = tuple(stage.backward_s for stage in stages)
    hop = _hop(job, prices)
    if strategy.schedule == "1f1b":
        pipeline = Pipeline(
            forward_s=forward,
            backward_s=backward,
            transfer_s=(hop,) * (strategy.pp - 1),
            exchange_s=(2 * hop,) * (strategy.pp - 1),
            microbatches=strategy.microbatches,
        )
        return run(pipeline).end_s
    timeline = simulate(_work(job, forward, backward, hop))
    return tuple(spans[-1].end_ns / NS_PER_S for spans in timeline.spans)


def _hop(job: Job, prices: Mapping[str, float]) -> float:
    if job.strategy.pp == 1:
        return 0.0
    (event,) = collectives(job, 0)
    return prices[event.key]


def _work(
    job: Job, forward: tuple[float, ...], backward: tuple[float, ...], hop: float
) -> PipelineWork:
    strategy = job.strategy

    def whole(seconds: tuple[float, ...]) -> tuple[int, ...]:
        return tuple(round(value * NS_PER_S) for value in seconds)

    return PipelineWork(
        shape=Shape(strategy.schedule, strategy.pp, strategy.vpp, strategy.microbatches),
        forward_ns=whole(forward),
        backward_ns=whole(backward),
        weight_ns=(0,) * len(forward),
        transfer_ns=whole((hop,) * strategy.pp),
        finish_ns=(0,) * strategy.pp,
    )


def _modules(job: Job, rank: int) -> list[int]:
    """Return the elements of each block, embedding and head on ``rank``."""
    shape, stages = job.shape, job.stages_of(rank)
    ends = {"embedding": shape.embedding_parameters, "head": shape.head_parameters}
    blocks = sum(job.layers[stage] for stage in stages)
    local = shape.split(job.strategy.tp)
    return [
        *[local.block_parameters] * blocks,
        *(ends[name] for stage in stages for name in _ends(job, stage)),
    ]


def _state_bytes(job: Job, rank: int) -> int:
    """Return parameters and gradients, and the moments of what this rank steps on.

    fully_shard cuts all four over the replicas, ZeRO-1 the moments alone, each module padded to equal shares.
    """
    modules, ranks, zero = _modules(job, rank), job.strategy.dp, job.strategy.zero
    if zero >= 2:
        return FP32 * _STATES * sum(modules) // ranks
    shards = ranks if zero else 1
    moments = sum(-(-elements // shards) for elements in modules)
    return FP32 * (_STATES // 2) * (sum(modules) + moments)


def _saved_bytes(job: Job, rank: int) -> int:
    """Return the peak of kept activations over the order of the rank's passes.

    fully_shard also keeps the gathered parameters as autograd sees them, which are no activations: not predicted.
    """
    if job.strategy.zero >= 2:
        return 0
    strategy, stages = job.strategy, job.stages_of(rank)
    sizes = [_chunk_saved_bytes(job, stage) for stage in stages]
    shape = Shape(strategy.schedule, strategy.pp, strategy.vpp, strategy.microbatches)
    if strategy.pp == 1:
        return sizes[0]
    alive = peak = 0
    for task in rank_order(shape, rank):
        alive += sizes[task.chunk] * (1 if task.kind == "F" else -1)
        peak = max(peak, alive)
    return peak


def _chunk_saved_bytes(job: Job, stage: int) -> int:
    local, batch = job.shape.split(job.strategy.tp), job.strategy.micro_batch
    head = local.head_saved_bytes(batch) if "head" in _ends(job, stage) else 0
    return job.layers[stage] * local.block_saved_bytes(batch) + head
