"""From a StrategyCost and a placement to the seconds of an iteration: exactly by the simulator, or in closed form.

The closed form takes lanes (arrays of trial constants), which the simulator's integers cannot; the fit uses it with
each run's ratio of simulation to closed form at the current constants.
"""

from collections.abc import Sequence

from costmodel.cost import StrategyCost
from costmodel.lanes import highest
from costmodel.linear import ChunkContent, StageTerm
from costmodel.schedules import Shape
from costmodel.simulator import iteration_ns
from costmodel.timeline import PipelineWork
from costmodel.units import NS_PER_S
from planner.plans import Placement


def contents(cost: StrategyCost, placement: Placement) -> tuple[ChunkContent, ...]:
    """Return what each virtual stage holds, in model order."""
    kinds = len(cost.forward[0].layer)
    last = len(placement.chunks) - 1
    result = []
    for index, chunk in enumerate(placement.chunks):
        held = cost.layer_kinds[chunk.first_layer : chunk.first_layer + chunk.layers]
        full = held[: chunk.recomputed]
        result.append(
            ChunkContent(
                layers=tuple(held.count(kind) for kind in range(kinds)),
                recomputed=tuple(full.count(kind) for kind in range(kinds)),
                first=index == 0,
                last=index == last,
            )
        )
    return tuple(result)


def _seconds(terms: Sequence[StageTerm], chunks: Sequence[ChunkContent]) -> float:
    total = 0.0
    for item in terms:
        total = total + item.value(chunks)
    return total


def _finish(cost: StrategyCost, chunks: Sequence[ChunkContent]) -> float:
    longest = 0.0
    for alternative in cost.finish:
        longest = highest(longest, _seconds(alternative.terms, chunks))
    return longest


def closed_form(cost: StrategyCost, stages: Sequence[ChunkContent]) -> float:
    """Return the iteration in closed form: slowest rank m times and the fill of the pipeline.

    Interleaving fills with one chunk per rank instead of the whole stage (Narayanan et al. 2021, section 2.2).
    """
    strategy = cost.strategy
    ranks = [stages[rank :: strategy.pp] for rank in range(strategy.pp)]
    passes = [_seconds((*cost.forward, *cost.backward), [stage]) for stage in stages]
    slowest = 0.0
    for rank in range(strategy.pp):
        slowest = highest(slowest, sum(passes[rank :: strategy.pp]))
    fill = sum(passes) / strategy.vpp
    hops = 2 * sum(cost.transfer_s[:-1]) if strategy.pp > 1 else 0.0
    end = 0.0
    for chunks in ranks:
        end = highest(end, _finish(cost, chunks))
    if strategy.vpp > 1:
        fill = fill - fill / strategy.pp + slowest
        return (strategy.microbatches - 1) * slowest + fill + hops + end + cost.fixed_s
    return (strategy.microbatches - 1) * slowest + fill + hops + end + cost.fixed_s


def simulated(cost: StrategyCost, stages: Sequence[ChunkContent]) -> float:
    """Return the iteration by the simulator, exact to a nanosecond per task."""
    strategy = cost.strategy
    shape = Shape(strategy.schedule, strategy.pp, strategy.vpp, strategy.microbatches)
    ranks = [stages[rank :: strategy.pp] for rank in range(strategy.pp)]
    work = PipelineWork(
        shape=shape,
        forward_ns=_ns(_seconds(cost.forward, [stage]) for stage in stages),
        backward_ns=_ns(_seconds(cost.backward, [stage]) for stage in stages),
        weight_ns=_ns(_seconds(cost.weight_gradient, [stage]) for stage in stages),
        transfer_ns=_ns(cost.transfer_s) if strategy.pp > 1 else (0,),
        finish_ns=_ns(_finish(cost, chunks) for chunks in ranks),
    )
    return iteration_ns(work) / NS_PER_S + cost.fixed_s


def _ns(seconds: object) -> tuple[int, ...]:
    return tuple(round(value * NS_PER_S) for value in seconds)  # type: ignore[attr-defined]
