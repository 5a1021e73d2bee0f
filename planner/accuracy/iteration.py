"""Seconds of an iteration in closed form, for the fit.

The simulator counts integer nanoseconds and cannot take lanes (arrays of trial constants); the closed form can, and
differs from it by less than 0.1 % for all but a few of the measured runs (tests hold both against each other).
"""

from collections.abc import Sequence

from costmodel.cost import StrategyCost
from costmodel.lanes import highest
from costmodel.linear import ChunkContent, StageTerm
from planner.assemble import chunk_contents
from planner.plan import Placement


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


def closed_form(cost: StrategyCost, placement: Placement) -> float:
    """Return the iteration in closed form: the slowest rank for each micro-batch, and the fill of the pipeline.

    The fill of 1F1B is one pass of every other rank, that of an interleaved schedule one chunk of each
    (Narayanan et al. 2021, arXiv 2104.04473, section 2.2).
    """
    strategy = cost.strategy
    slowest = end = whole = 0.0
    for chunks in chunk_contents(cost, placement):
        # One chunk at a time: what is paid once per evaluation is paid for each chunk.
        passes = sum(_seconds((*cost.forward, *cost.backward), [chunk]) for chunk in chunks)
        slowest = highest(slowest, passes)
        whole = whole + passes
        end = highest(end, _finish(cost, chunks))
    hops = 2 * sum(cost.transfer_s[:-1]) if strategy.pp > 1 else 0.0
    steady = (strategy.microbatches - 1) * slowest
    interleaved = slowest + whole / strategy.vpp * (1 - 1 / strategy.pp)
    fill = interleaved if strategy.vpp > 1 else whole
    return steady + fill + hops + end + cost.fixed_s
