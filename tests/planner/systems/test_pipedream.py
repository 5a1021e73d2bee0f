"""PipeDream: its schedule without flush, its weight versions, its replicated partition."""

import itertools
import random

import pytest

from costmodel.schedules import Shape, in_flight
from costmodel.simulator import iteration_ns, simulate
from costmodel.timeline import PipelineWork
from planner.pipedream import LayerLoad, replicated_pipeline
from planner.search import plan
from planner.simulation import simulate_strategy
from tests.builders import make_scenario


def work(schedule_microbatches: int, forward: tuple[int, ...]) -> PipelineWork:
    ranks = len(forward)
    return PipelineWork(
        shape=Shape("no_flush", ranks, 1, schedule_microbatches),
        forward_ns=forward,
        backward_ns=tuple(2 * value for value in forward),
        weight_ns=(0,) * ranks,
        transfer_ns=(7,) * ranks,
        finish_ns=tuple(range(ranks)),
    )


def test_the_slowest_rank_sets_the_pace_and_there_is_no_bubble_on_it() -> None:
    pipeline = work(4, (10, 30, 20))
    assert iteration_ns(pipeline) == 4 * 90 + 1
    timeline = simulate(pipeline)
    assert timeline.iteration_ns == 4 * 90 + 1
    assert timeline.bubble_ns(1) == 0


def test_in_flight_falls_along_the_pipeline_however_few_micro_batches_an_update_has() -> None:
    assert in_flight(Shape("no_flush", 4, 1, 1)) == ((4,), (3,), (2,), (1,))
    timeline = simulate(work(2, (10, 10, 10, 10)))
    assert [timeline.peak_in_flight(rank) for rank in range(4)] == [4, 3, 2, 1]


def test_one_weight_version_is_kept_for_each_micro_batch_in_flight() -> None:
    scenario = make_scenario(layers=8, gpus=4, batch=4, framework="pipedream")
    simulated = simulate_strategy(scenario, "pp=4,micro_batch=4,schedule=no_flush", None).plan
    assert simulated
    for rank, stage in enumerate(simulated.stages):
        assert stage.memory.get("weight versions", 0.0) == pytest.approx(
            (3 - rank) * stage.memory["parameters"], abs=1
        )


def test_without_flush_a_pipeline_is_faster_and_needs_more_memory_than_with() -> None:
    scenario = make_scenario(layers=8, gpus=4, batch=4, framework="pipedream")
    flushed = make_scenario(layers=8, gpus=4, batch=4, framework="torchgpipe")
    free = simulate_strategy(scenario, "pp=4,micro_batch=4,schedule=no_flush", None).plan
    waits = simulate_strategy(flushed, "pp=4,micro_batch=4,schedule=gpipe", None).plan
    assert free
    assert waits
    assert free.iteration_s < waits.iteration_s
    assert free.peak_memory_bytes > waits.peak_memory_bytes


def test_the_planner_plans_it_only_when_asked() -> None:
    asked = plan(make_scenario(layers=8, gpus=8, search={"system": "pipedream"}), top=3)
    assert asked.plans
    assert {item.strategy.schedule for item in asked.plans} <= {"no_flush", "1f1b"}
    free = plan(make_scenario(layers=8, gpus=8), top=10)
    assert all(item.strategy.schedule != "no_flush" for item in free.plans)


def loads(rng: random.Random, count: int) -> list[LayerLoad]:
    return [
        LayerLoad(
            seconds=rng.uniform(1, 9),
            gradient_bytes=rng.choice((0.0, rng.uniform(0, 9))),
            output_bytes=rng.uniform(0, 3),
        )
        for _ in range(count)
    ]


def by_hand(layers: list[LayerLoad], workers: int) -> float:
    """Return the shortest period over all cuts and all shares of the workers."""
    best = float("inf")
    for parts in range(1, min(len(layers), workers) + 1):
        for inner in itertools.combinations(range(1, len(layers)), parts - 1):
            cuts = (0, *inner, len(layers))
            for shares in itertools.product(range(1, workers + 1), repeat=parts):
                if sum(shares) != workers:
                    continue
                times = [2 * layers[cut - 1].output_bytes for cut in inner]
                for (start, stop), own in zip(itertools.pairwise(cuts), shares, strict=True):
                    inside = layers[start:stop]
                    compute = sum(layer.seconds for layer in inside)
                    reduce = 2 * (own - 1) * sum(layer.gradient_bytes for layer in inside)
                    times.append(max(compute, reduce) / own)
                best = min(best, max(times))
    return best


def test_the_replicated_partition_is_the_best_of_all() -> None:
    rng = random.Random(5)
    for _ in range(25):
        layers = loads(rng, rng.randint(1, 5))
        workers = rng.randint(1, 5)
        found = replicated_pipeline(layers, workers, 1.0)
        assert found.period_s == pytest.approx(by_hand(layers, workers))
        assert sum(stage.replicas for stage in found.stages) == workers
        assert found.stages[-1].stop == len(layers)


def test_a_heavy_stage_without_gradients_gets_the_replicas() -> None:
    heavy = LayerLoad(seconds=9.0, gradient_bytes=0.0, output_bytes=0.1)
    wide = LayerLoad(seconds=3.0, gradient_bytes=50.0, output_bytes=0.1)
    found = replicated_pipeline([heavy, wide], 4, 1.0)
    assert [stage.replicas for stage in found.stages] == [3, 1]
    assert found.period_s == 3.0
    assert found.in_flight == 2
