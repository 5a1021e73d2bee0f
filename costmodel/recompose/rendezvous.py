"""The 1F1B pipeline with blocking transfers: every transfer is a meeting that holds up both of its ends.

Megatron's non-interleaved schedule (Narayanan et al. 2021, arXiv 2104.04473, section 2.2) as it runs with synchronised point-to-point
calls: receive, forward, send in the warm-up; one call that sends an activation and receives a gradient, and its mirror image, in the
steady state. Neither side goes on before both have come and the data has passed, so a stage waits for its slower neighbour even
where a buffered send would let it run ahead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["forward", "backward", "send", "receive", "exchange", "return", "take back"]
_PARTNER: dict[Kind, Kind] = {
    "send": "receive",
    "receive": "send",
    "exchange": "exchange",
    "return": "take back",
    "take back": "return",
}
Step = tuple[Kind, int]
"""What a stage does, and the boundary it does it on (boundary b lies behind stage b)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Prices of a pipeline, one entry a stage or boundary.

    Attributes:
        forward_s, backward_s: Of one micro-batch on each stage.
        transfer_s: One direction, by boundary.
        exchange_s: Both directions in one call, by boundary.
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    transfer_s: tuple[float, ...]
    exchange_s: tuple[float, ...]
    microbatches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Seconds from the start to each stage's last step, and how much of it the stage spent in transfers."""

    end_s: tuple[float, ...]
    waited_s: tuple[float, ...]


def run(pipeline: Pipeline) -> Run:
    """Play the schedule; time and memory are linear in stages times micro-batches."""
    stages = len(pipeline.forward_s)
    steps = [list(_steps(stage, stages, pipeline.microbatches)) for stage in range(stages)]
    end, waited, position = [0.0] * stages, [0.0] * stages, [0] * stages
    ready = list(range(stages))
    while ready:
        stage = ready.pop()
        while position[stage] < len(steps[stage]):
            kind, boundary = steps[stage][position[stage]]
            if kind in ("forward", "backward"):
                end[stage] += _busy(pipeline, kind, stage)
                position[stage] += 1
                continue
            peer = boundary + 1 if stage == boundary else boundary
            if not _meets(steps[peer], position[peer], kind, boundary):
                break
            _pass(pipeline, kind, boundary, (stage, peer), end, waited)
            position[stage] += 1
            position[peer] += 1
            ready.append(peer)
    return Run(end_s=tuple(end), waited_s=tuple(waited))


def _steps(stage: int, stages: int, microbatches: int) -> Iterator[Step]:
    first, last = stage == 0, stage == stages - 1
    warmup = min(stages - 1 - stage, microbatches)
    steady = microbatches - warmup
    before, behind = stage - 1, stage
    for _ in range(warmup):
        yield from _unless(first, ("receive", before))
        yield ("forward", stage)
        yield ("send", behind)
    if steady:
        yield from _unless(first, ("receive", before))
    for index in range(steady):
        yield ("forward", stage)
        yield from _unless(last, ("exchange", behind))
        yield ("backward", stage)
        more = index < steady - 1
        yield from _unless(first, ("exchange" if more else "return", before))
    for _ in range(warmup):
        yield ("take back", behind)
        yield ("backward", stage)
        yield from _unless(first, ("return", before))


def _unless(absent: bool, step: Step) -> tuple[Step, ...]:
    return () if absent else (step,)


def _busy(pipeline: Pipeline, kind: Kind, stage: int) -> float:
    return pipeline.forward_s[stage] if kind == "forward" else pipeline.backward_s[stage]


def _meets(steps: Sequence[Step], position: int, kind: Kind, boundary: int) -> bool:
    return position < len(steps) and steps[position] == (_PARTNER[kind], boundary)


def _pass(
    pipeline: Pipeline,
    kind: Kind,
    boundary: int,
    pair: tuple[int, int],
    end: list[float],
    waited: list[float],
) -> None:
    prices = pipeline.exchange_s if kind == "exchange" else pipeline.transfer_s
    done = max(end[pair[0]], end[pair[1]]) + prices[boundary]
    for stage in pair:
        waited[stage] += done - end[stage]
        end[stage] = done
