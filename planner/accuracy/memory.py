"""Predicted memory of measured runs, in the counter that the run reported."""

from dataclasses import dataclass

from costmodel.linear import ChunkContent
from costmodel.memory import MemoryModel, StageMemory, stage_memory
from costmodel.schedules import Shape, in_flight
from costmodel.verdict import Verdict, device_verdict
from planner.accuracy.runs import Run

# torchtitan logs torch's reserved peak, Megatron's logs and SimuMax's table likewise; every other source of rows with
# memory states what nvidia-smi shows, which holds context and communicators as well (scenarios/measured/README.md).
_FRAMEWORK_COUNTER = frozenset({"torchtitan", "megatron", "nemo"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPrediction:
    """Predicted peaks of a run and whether it fits its device.

    Attributes:
        allocated_bytes: What the framework's allocated counter would show.
        reserved_bytes: What the run's reserved counter would show; at most what the device has.
    """

    allocated_bytes: float
    reserved_bytes: float
    verdict: Verdict


def memory_of(run: Run, model: MemoryModel | None = None) -> MemoryPrediction:
    """Return the predicted memory of ``run``; runs of one model and training may share ``model``."""
    model = model or MemoryModel(run.graph, run.cluster, run.training)
    moments = model.moments(run.strategy)
    peaks = [stage_memory(moments, chunks) for chunks in held(run)]
    shown = peaks[-1:] if "last global rank" in run.row.get("notes", "") else peaks
    device = run.cluster.device
    return MemoryPrediction(
        allocated_bytes=max(peak.allocated_bytes for peak in shown),
        reserved_bytes=min(max(_reserved(run, peak) for peak in shown), device.memory_bytes),
        verdict=device_verdict(peaks, device),
    )


def _reserved(run: Run, peak: StageMemory) -> float:
    inside = run.training.framework in _FRAMEWORK_COUNTER
    return peak.framework_reserved_bytes if inside else peak.reserved_bytes


def held(run: Run) -> list[list[ChunkContent]]:
    """Return what each pipeline rank of ``run`` holds, with the micro-batches in flight of its schedule."""
    strategy, kinds = run.strategy, len(run.graph.kinds)
    shape = Shape(strategy.schedule, strategy.pp, strategy.vpp, strategy.microbatches)
    flying = in_flight(shape)
    last = len(run.placement.chunks) - 1
    ranks: list[list[ChunkContent]] = [[] for _ in range(strategy.pp)]
    for stage, chunk in enumerate(run.placement.chunks):
        order = run.graph.layers[chunk.first_layer : chunk.first_layer + chunk.layers]
        number, rank = divmod(stage, strategy.pp)
        ranks[rank].append(
            ChunkContent(
                layers=tuple(order.count(kind) for kind in range(kinds)),
                recomputed=tuple(order[: chunk.recomputed].count(kind) for kind in range(kinds)),
                first=stage == 0,
                last=stage == last,
                in_flight=flying[rank][number],
            )
        )
    return ranks
