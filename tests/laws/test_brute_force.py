"""The search against exhaustive enumeration: every strategy, every placement, every recomputation, simulated."""

import itertools
import random
from collections.abc import Iterator

import pytest

from costmodel.simulator import iteration_ns
from planner.coefficients import Arrangement, Coefficients, coefficients
from planner.even_cuts import balanced_cuts
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.search import plan
from planner.space import enumerate_space
from tests.builders import make_scenario

SCENARIOS = 200
TOP = 5


def random_scenario(number: int) -> Scenario:
    """Return a scenario of at most 8 GPUs and 8 layers whose memory limit is tight as often as not."""
    draw = random.Random(number)
    gpus = draw.choice([1, 2, 2, 4, 4, 8])
    framework = draw.choice(["megatron", "megatron", "torchtitan", "nanotron"])
    search = {
        "micro_batch": draw.choice([[1], [1, 2], [2]]),
        "tp": draw.choice([[1], [1, 2]]),
        "cp": 1,
        "pp": {"max": 4},
        "vpp": {"max": 2},
        "zero": draw.choice([[0], [0, 1, 2, 3]]),
    }
    return make_scenario(
        layers=draw.choice([2, 3, 4, 5, 6, 8] if gpus < 8 else [2, 3, 4, 5]),
        gpus=gpus,
        batch=draw.choice([4, 8, 16]),
        sequence=draw.choice([512, 1024, 2048]),
        framework=framework,
        cluster=draw.choice(["dgx-a100-80gb", "dgx-h100", "p4d"]),
        memory=f"{draw.uniform(2.6, 9.0):.2f}GiB",
        search=search,
        attention=draw.choice(["flash", "standard"]),
    )


def placements(given: Coefficients) -> Iterator[Arrangement]:
    """Yield every placement with every number of recomputed layers.

    Chunks of an interleaved rank are balanced and recompute equally many layers each, as frameworks run them.
    """
    layers, stages = len(given.layer_kinds), given.shape.ranks * given.shape.chunks
    interleaved = given.shape.chunks > 1
    inner = itertools.combinations(range(1, layers), stages - 1)
    every = balanced_cuts(layers, stages) if interleaved else ((0, *cut, layers) for cut in inner)
    for cuts in every:
        sizes = [stop - start for start, stop in itertools.pairwise(cuts)]
        for again in recomputations(given, sizes):
            yield Arrangement(tuple(cuts), again)


def recomputations(given: Coefficients, sizes: list[int]) -> Iterator[tuple[int, ...]]:
    """Yield how many layers each virtual stage recomputes."""
    if given.recompute_all:
        yield tuple(sizes)
        return
    ranks = given.shape.ranks
    per_rank = [range(max(sizes[rank::ranks]) + 1) for rank in range(ranks)]
    for counts in itertools.product(*per_rank):
        yield tuple(min(counts[v % ranks], size) for v, size in enumerate(sizes))


def best_ns(given: Coefficients) -> int | None:
    """Return the fastest placement that fits, by trying all."""
    fitting = (item for item in placements(given) if given.fits(item))
    return min((iteration_ns(given.work(item)) for item in fitting), default=None)


def exhaustive(scenario: Scenario) -> list[int]:
    """Return the best time of every strategy that fits, in order."""
    pricer = make_pricer(scenario)
    columns = enumerate_space(scenario).columns
    found = [
        best_ns(coefficients(pricer.cost(columns.strategy(row)), scenario.memory_limit_bytes))
        for row in range(len(columns))
    ]
    return sorted(time for time in found if time is not None)


@pytest.mark.parametrize("number", range(SCENARIOS))
def test_the_first_plans_are_those_of_exhaustive_enumeration(number: int) -> None:
    scenario = random_scenario(number)
    expected = exhaustive(scenario)[:TOP]
    answer = plan(scenario, top=TOP, tolerance=0.0)
    assert [round(item.iteration_s * 1e9) for item in answer.plans] == expected
    assert answer.gap == 0
