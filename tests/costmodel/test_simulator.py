"""The fast recurrences, the coded paths and the executed schedule are one simulator."""

import random
from dataclasses import replace

import pytest

from costmodel.recurrences import rank_ends
from costmodel.schedules import Shape
from costmodel.simulator import critical_path, iteration_ns, simulate
from costmodel.strategy import SCHEDULES, Schedule
from costmodel.timeline import PipelineWork
from costmodel.wide_interleaving import WideInterleaved, is_wide


def random_shape(rng: random.Random, schedule: Schedule) -> Shape:
    """Return a small shape, with few micro-batches as often as many."""
    ranks = rng.randint(1, 8)
    if schedule != "interleaved":
        return Shape(schedule, ranks, 1, rng.randint(1, rng.choice((3, 12, 60))))
    return Shape(schedule, ranks, rng.randint(2, 4), ranks * rng.randint(1, rng.choice((2, 12))))


def random_work(rng: random.Random, shape: Shape) -> PipelineWork:
    """Return work with independent, nearly equal or partly zero durations."""
    stages, low = shape.ranks * shape.chunks, rng.choice((0, 50, 95, 100))

    def values(count: int, scale: float = 1) -> tuple[int, ...]:
        return tuple(int(rng.randint(low, 100) * scale) for _ in range(count))

    backward = values(stages, 2)
    return PipelineWork(
        shape=shape,
        forward_ns=values(stages),
        backward_ns=backward,
        weight_ns=tuple(rng.randint(0, value) for value in backward),
        transfer_ns=values(shape.ranks, rng.choice((0, 0.05, 1))),
        finish_ns=values(shape.ranks, rng.choice((0, 1, 50))),
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_recurrence_equals_the_executed_schedule(schedule: Schedule) -> None:
    rng = random.Random(7)
    for _ in range(800):
        work = random_work(rng, random_shape(rng, schedule))
        timeline = simulate(work)
        assert rank_ends(work) == [timeline.end_ns(rank) for rank in range(work.shape.ranks)]
        assert iteration_ns(work) == timeline.iteration_ns


def test_arrays_simulate_interleaving_as_lists_do() -> None:
    rng = random.Random(9)
    for _ in range(200):
        shape = random_shape(rng, "interleaved")
        work = random_work(
            rng, shape._replace(ranks=shape.ranks + 1, microbatches=2 * shape.ranks + 2)
        )
        timeline = simulate(work)
        assert WideInterleaved(work).ends() == [
            timeline.end_ns(rank) for rank in range(work.shape.ranks)
        ]
    wide = random_work(rng, Shape("interleaved", 30, 2, 300))
    assert is_wide(wide)
    assert iteration_ns(wide) == simulate(wide).iteration_ns


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_critical_path_is_as_long_as_the_iteration_and_bounds_every_other_work(
    schedule: Schedule,
) -> None:
    rng = random.Random(11)
    for _ in range(250):
        shape = random_shape(rng, schedule)
        work, other = random_work(rng, shape), random_work(rng, shape)
        for path in (critical_path(work), simulate(work).path):
            assert path.length_ns(work) == iteration_ns(work)
            assert path.length_ns(other) <= iteration_ns(other)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_jumps_over_many_rounds_change_nothing(schedule: Schedule) -> None:
    rng = random.Random(13)
    for _ in range(4):
        chunks = 2 if schedule == "interleaved" else 1
        work = random_work(rng, Shape(schedule, 4, chunks, 400))
        assert iteration_ns(work) == simulate(work).iteration_ns
        assert critical_path(work).length_ns(work) == iteration_ns(work)


def test_equal_stages_without_transfers_follow_the_textbook() -> None:
    work = PipelineWork(
        shape=Shape("1f1b", 4, 1, 10),
        forward_ns=(10,) * 4,
        backward_ns=(20,) * 4,
        weight_ns=(10,) * 4,
        transfer_ns=(0,) * 4,
        finish_ns=(0,) * 4,
    )
    assert iteration_ns(work) == (10 + 4 - 1) * 30
    assert iteration_ns(replace(work, shape=Shape("gpipe", 4, 1, 10))) == (10 + 4 - 1) * 30
    # Bubble of ZB-H1: (p - 1)(f + b - w) with b the input gradient (arXiv 2401.10241, table 2).
    zero_bubble = replace(work, shape=Shape("zero_bubble", 4, 1, 10))
    assert iteration_ns(zero_bubble) == 10 * 30 + 3 * (10 + 10 - 10)


def test_interleaving_divides_the_bubble_by_the_chunks() -> None:
    work = PipelineWork(
        shape=Shape("interleaved", 4, 2, 8),
        forward_ns=(5,) * 8,
        backward_ns=(10,) * 8,
        weight_ns=(5,) * 8,
        transfer_ns=(0,) * 4,
        finish_ns=(0,) * 4,
    )
    assert iteration_ns(work) == 8 * 30 + 3 * 15


def test_busy_time_bubble_and_finish_fill_the_iteration() -> None:
    work = random_work(random.Random(3), Shape("interleaved", 3, 2, 6))
    timeline = simulate(work)
    for rank in range(3):
        parts = timeline.busy_ns(rank), timeline.bubble_ns(rank), work.finish_ns[rank]
        assert sum(parts) == timeline.iteration_ns
        assert min(parts) >= 0


def test_work_of_the_wrong_length_is_refused() -> None:
    work = random_work(random.Random(3), Shape("1f1b", 3, 1, 6))
    with pytest.raises(ValueError, match="3 ranks"):
        replace(work, forward_ns=(1, 2))
