"""Lower bounds of an iteration whose stage times are known, for many placements at once: 1F1B and interleaving.

Megatron's order is the same on every rank, so tasks of one rank and hops to the next make paths through the schedule.
With f_cr, b_cr chunk c on rank r, v chunks, p ranks, m micro-batches, F_r, B_r the forwards of rank r before its first
backward and its backwards after its last forward (equally many), c the hops:

    there   sum_{j<r} f_0j + c: when rank r starts
    ready   first forward of the last chunk: max_r (there_r + p sum_{c<v-1} f_cr + f_{v-1,r} + sum_{j>r} f_{v-1,j} + c),
            and the forwards of all stages in a row; then back to rank r by the backwards of the last chunk
    rest    the same in reverse, from the last forward of rank r to the end of the last rank's finish
    home    from the last backward of rank r back to some rank e <= r that ends with its finish

    there_r + m busy_r + home_r, and with ready_r - F_r in the place of there_r, rest_r - B_r in that of home_r, or both
    (both only where rank r has backwards before its last forward)
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
"""Integers, or floats that are integers."""


def even_rows(
    forward: Numbers, backward: Numbers, finish: Numbers, hops: Numbers, microbatches: Numbers
) -> Numbers:
    """Return the largest row of each placement.

    Args:
        forward: Nanoseconds by placement (any leading axes), chunk and rank.
        backward: The same.
        finish: By placement and rank.
        hops: By placement and boundary, the last one from the last rank to the first.
        microbatches: By placement.
    """
    chunks, ranks = forward.shape[-2:]
    m = np.asarray(microbatches)[..., None]
    between, wrap = hops[..., :-1], hops[..., -1:]
    lead = warmup_chunks(chunks, ranks, m)
    busy = m * (forward.sum(axis=-2) + backward.sum(axis=-2))
    there = _before(forward[..., 0, :-1] + between)
    back = _before(backward[..., 0, :-1] + between)
    home = back + np.maximum.accumulate(finish - back, axis=-1)
    onward, returning = _after(forward, between), _after(backward, between)
    crossings = chunks * between.sum(axis=-1, keepdims=True) + (chunks - 1) * wrap
    ready = there + _through(forward) + onward
    straight = forward.sum(axis=(-2, -1))[..., None] + crossings
    ready = returning + np.maximum(ready.max(axis=-1, keepdims=True), straight)
    rest = returning + _through(backward) + home
    straight = backward.sum(axis=(-2, -1))[..., None] + crossings + (home - back)[..., -1:]
    rest = onward + np.maximum(rest.max(axis=-1, keepdims=True), straight)
    early, late = ready - (lead * forward).sum(axis=-2), rest - (lead * backward).sum(axis=-2)
    apart = lead.sum(axis=-2) < m * chunks
    best = busy + np.maximum(np.maximum(there, early) + home, there + late)
    best = np.where(apart, np.maximum(best, busy + early + late), best)
    return np.asarray(best.max(axis=-1))


def _before(values: Numbers) -> Numbers:
    """Return the sums over the ranks before each, which has one rank more than ``values``."""
    nothing = np.zeros_like(values, shape=(*values.shape[:-1], 1))
    return np.concatenate([nothing, values.cumsum(axis=-1)], axis=-1)


def _after(values: Numbers, between: Numbers) -> Numbers:
    """Return the last chunk of the ranks behind each, with the hops to them."""
    steps = values[..., -1, 1:] + between
    return _before(steps[..., ::-1])[..., ::-1]


def _through(values: Numbers) -> Numbers:
    """Return what a rank does up to its first task of the last chunk, counted from the first chunk."""
    ranks = values.shape[-1]
    return np.asarray(ranks * values[..., :-1, :].sum(axis=-2) + values[..., -1, :])


def warmup_chunks(chunks: int, ranks: int, microbatches: Numbers) -> Numbers:
    """Return the forwards of each rank before its first backward, by chunk and rank (costmodel.schedules.in_flight)."""
    rank = np.arange(ranks)
    if chunks == 1:
        return np.asarray(np.minimum(microbatches, ranks - rank))[..., None, :]
    total = np.minimum(microbatches * chunks, 2 * (ranks - 1 - rank) + (chunks - 1) * ranks + 1)
    rounds, rest = np.divmod(total, ranks * chunks)
    offset = rest[..., None, :] - ranks * np.arange(chunks)[:, None]
    return np.asarray(rounds[..., None, :] * ranks + np.clip(offset, 0, ranks))
