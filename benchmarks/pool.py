"""Shared pools: gap after a time limit, and what each bound contributes.

Run: ``python benchmarks/pool.py [--limit 60] [--only 30]``. The targets are a gap of 2 % for 100 models on 4,096
GPUs and of 3 % for 30 models of large granularity, in 60 s.
"""

import argparse
import math
import random
import time
from dataclasses import dataclass

from planner.pool.bound import energy_bound
from planner.pool.instance import Instance, build_instance, value_of
from planner.pool.model import FrontPoint, GpuGroup, Job, Objective
from planner.pool.solver_bound import makespan_bound
from planner.pool.solver_search import search

GPUS = 4096
EFFICIENCY_PER_DOUBLING = 0.93


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Random pools: ``models`` of ``kinds`` different ones whose fewest GPUs are 2^low to 2^high."""

    models: int
    kinds: int
    low: int
    high: int
    seed: int


FAMILIES = (
    Family(models=10, kinds=10, low=3, high=9, seed=1),
    Family(models=30, kinds=30, low=3, high=9, seed=1),
    Family(models=30, kinds=30, low=3, high=9, seed=2),
    Family(models=30, kinds=6, low=3, high=9, seed=3),
    Family(models=30, kinds=30, low=6, high=10, seed=4),
    Family(models=30, kinds=6, low=6, high=10, seed=5),
    Family(models=100, kinds=100, low=3, high=9, seed=1),
    Family(models=100, kinds=20, low=3, high=9, seed=2),
)


def make_pool(family: Family) -> Instance:
    """Return a pool whose models run on doubling numbers of GPUs with 93 % scaling each."""
    rng = random.Random(family.seed)
    fronts = [_front(rng, family) for _ in range(family.kinds)]
    jobs = [
        Job(name=f"model {place}", front=fronts[place % family.kinds])
        for place in range(family.models)
    ]
    group = GpuGroup(name="h100", cluster="dgx-h100", gpus=GPUS)
    return build_instance([group], jobs, Objective.MAKESPAN, 1 / 60)


def _front(rng: random.Random, family: Family) -> tuple[FrontPoint, ...]:
    fewest = 2 ** rng.randint(family.low, family.high)
    doublings = rng.randint(2, 4)
    work = fewest * rng.lognormvariate(0, 0.7) * 33
    points = []
    for doubling in range(doublings + 1):
        gpus = fewest * 2**doubling
        if gpus <= GPUS:
            hours = work / (gpus * EFFICIENCY_PER_DOUBLING ** math.log2(gpus / fewest))
            points.append(
                FrontPoint(group="h100", gpus=gpus, iteration_s=1.0, hours=hours, cost=0.0)
            )
    return tuple(points)


def report(family: Family, limit_s: float, gap: float) -> None:
    """Print one line for one pool."""
    instance = make_pool(family)
    begun = time.perf_counter()
    answer = search(instance, gap, limit_s)
    seconds = time.perf_counter() - begun
    if answer.blocks is None:
        print(family, "no schedule")
        return
    value = value_of(instance, answer.blocks)
    rows = makespan_bound(instance, value, cuts=0).value
    print(
        f"{family.models:4d} models of {family.kinds:3d} kinds, 2^{family.low}-2^{family.high} GPUs: "
        f"bounds: energy {energy_bound(instance)}, families {rows}, all {answer.bound}; "
        f"schedule {value}; gap {1 - answer.bound / value:.2%}; {seconds:.1f} s",
        flush=True,
    )


def main() -> None:
    """Run all families, or those with ``--only`` models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each pool")
    parser.add_argument("--gap", type=float, default=0.01, help="where to stop")
    parser.add_argument("--only", type=int, help="only pools of so many models")
    arguments = parser.parse_args()
    for family in FAMILIES:
        if arguments.only in (None, family.models):
            report(family, arguments.limit, arguments.gap)


if __name__ == "__main__":
    main()
