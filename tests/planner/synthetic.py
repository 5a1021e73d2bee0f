"""Random small strategies, as integers, and every placement of them."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from costmodel.schedules import Shape
from costmodel.simulator import iteration_ns
from costmodel.strategy import SCHEDULES, Schedule, Strategy
from planner.coefficients import Arrangement, Coefficients, Linear, MemoryRow
from planner.even_placements import even_placements
from planner.priced_rows import LinearColumns, TimeRows

FREE = 1 << 40
"""A memory limit in KiB that nothing reaches."""


def linear(
    rng: random.Random, kinds: int, scale: int, *, ends: int = 0, recomputed: int = 0
) -> Linear:
    """Return an affine function of about ``scale`` per layer, with ends up to ``ends`` layers."""
    layer = tuple(rng.randint(scale // 2, 2 * scale) for _ in range(kinds))
    again = tuple(rng.randint(0, recomputed) if recomputed >= 0 else -value for value in layer)
    first, last = (rng.randint(0, ends * scale) for _ in range(2))
    return Linear(rng.choice((0, scale // 3)), first, last, layer, again)


def memory_row(rng: random.Random, kinds: int) -> MemoryRow:
    """Return a moment in which recomputation saves nearly all that is in flight."""
    kept = linear(rng, kinds, 20, ends=2)._replace(recomputed=(0,) * kinds)
    flight = linear(rng, kinds, 30, ends=1)
    saved = tuple(-(9 * value) // 10 for value in flight.layer)
    return MemoryRow("backward", kept, flight._replace(recomputed=saved), rng.choice((0, 30)))


def random_coefficients(
    rng: random.Random,
    schedule: Schedule,
    *,
    ranks: int,
    chunks: int = 1,
    layers: int,
    kinds: int = 1,
    microbatches: int | None = None,
) -> Coefficients:
    """Return a strategy with random prices and a free memory limit."""
    sequence = tuple(rng.randrange(kinds) for _ in range(layers))
    if rng.random() < 0.5:
        sequence = tuple(sorted(sequence))
    m = microbatches or rng.randint(1, 4 * ranks)
    if schedule == "interleaved":
        m = ranks * -(-m // ranks)
    backward = linear(rng, kinds, 200, ends=2, recomputed=100)
    weight = Linear(0, backward.first // 2, 0, tuple(v // 3 for v in backward.layer), (0,) * kinds)
    hop = rng.choice((0, 5, 400))
    strategy = Strategy(pp=ranks, vpp=chunks, microbatches=m, schedule=schedule)
    return Coefficients(
        strategy=strategy,
        shape=Shape(schedule, ranks, chunks, m),
        layer_kinds=sequence,
        forward=linear(rng, kinds, 100, ends=2),
        backward=backward,
        weight=weight,
        transfer_ns=tuple(hop + rng.choice((0, 0, 3)) for _ in range(ranks)),
        finish=tuple(
            linear(rng, kinds, rng.choice((0, 100, 2000))) for _ in range(rng.randint(1, 2))
        ),
        memory=(memory_row(rng, kinds), memory_row(rng, kinds)._replace(name="step")),
        fixed_ns=rng.choice((0, 77)),
        recompute_all=rng.random() < 0.1,
        limit_kib=FREE,
    )


def tightened(rng: random.Random, given: Coefficients) -> Coefficients:
    """Return the strategy with a limit between the needs of two of its placements."""
    demands = sorted(given.peak_kib(item) for item in _sample(rng, given, 12))
    low, high = demands[0], demands[len(demands) // 2]
    return replace(given, limit_kib=rng.randint(low - low // 20, high))


def _sample(rng: random.Random, given: Coefficients, count: int) -> Iterator[Arrangement]:
    layers, stages = len(given.layer_kinds), given.shape.ranks * given.shape.chunks
    for _ in range(count):
        inner = sorted(rng.sample(range(1, layers), stages - 1))
        cuts = (0, *inner, layers)
        again = tuple(
            rng.randint(0, b - a) if not given.recompute_all else b - a
            for a, b in itertools.pairwise(cuts)
        )
        yield Arrangement(cuts, again)


def all_cuts(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to cut ``layers`` into ``stages`` non-empty runs."""
    for inner in itertools.combinations(range(1, layers), stages - 1):
        yield (0, *inner, layers)


def all_arrangements(given: Coefficients) -> Iterator[Arrangement]:
    """Yield every placement with every recomputation of a one-chunk strategy that fits."""
    for cuts in all_cuts(len(given.layer_kinds), given.shape.ranks):
        sizes = [b - a for a, b in itertools.pairwise(cuts)]
        ranges = [(size,) if given.recompute_all else range(size + 1) for size in sizes]
        for again in itertools.product(*ranges):
            arrangement = Arrangement(cuts, again)
            if given.fits(arrangement):
                yield arrangement


def brute_force(given: Coefficients) -> int | None:
    """Return the fastest simulated iteration over all placements; None if none fits."""
    times = (iteration_ns(given.work(arrangement)) for arrangement in all_arrangements(given))
    return min(times, default=None)


def one_row(given: Coefficients) -> TimeRows:
    """Return a single strategy as columns."""
    return TimeRows(
        ranks=np.array([given.shape.ranks]),
        chunks=np.array([given.shape.chunks]),
        microbatches=np.array([given.shape.microbatches]),
        schedule=np.array([SCHEDULES.index(given.shape.schedule)]),
        recompute_all=np.array([given.recompute_all]),
        kinds=given.layer_kinds,
        forward=LinearColumns.of([given.forward]),
        backward=LinearColumns.of([given.backward]),
        weight=LinearColumns.of([given.weight]),
        hop=np.array([float(min(given.transfer_ns[:-1], default=0))]),
        finish=tuple(LinearColumns.of([item]) for item in given.finish),
    )


def with_recomputation(given: Coefficients, cuts: Sequence[int]) -> Arrangement | None:
    """Return the placement with the fewest recomputed layers that fits; None if none does."""
    found = even_placements(given, [cuts])
    return found[0].arrangement if found else None
