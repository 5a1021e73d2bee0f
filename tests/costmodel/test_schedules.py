"""Orders and kept activations of the schedules, against torch's own where it has them."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from costmodel.schedules import Shape, check_shape, in_flight, rank_order
from costmodel.simulator import simulate
from costmodel.strategy import SCHEDULES, Schedule
from costmodel.timeline import PipelineWork

SHAPES = [
    Shape(schedule, ranks, 2 if schedule == "interleaved" else 1, microbatches)
    for schedule in SCHEDULES
    for ranks, microbatches in ((1, 3), (2, 2), (4, 8), (4, 4), (4, 2), (3, 12))
    if schedule != "interleaved" or microbatches % ranks == 0
]


def unit_work(shape: Shape) -> PipelineWork:
    """Return work in which every task lasts one nanosecond."""
    stages = shape.ranks * shape.chunks
    return PipelineWork(
        shape=shape,
        forward_ns=(1,) * stages,
        backward_ns=(2,) * stages,
        weight_ns=(1,) * stages,
        transfer_ns=(0,) * shape.ranks,
        finish_ns=(0,) * shape.ranks,
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_every_rank_does_every_task_once(shape: Shape) -> None:
    halves = 3 if shape.schedule == "zero_bubble" else 2
    for rank in range(shape.ranks):
        counts = Counter(rank_order(shape, rank))
        assert len(counts) == halves * shape.chunks * shape.microbatches
        assert set(counts.values()) == {1}


@pytest.mark.parametrize("shape", SHAPES)
def test_kept_activations_peak_where_the_order_says(shape: Shape) -> None:
    timeline = simulate(unit_work(shape))
    for rank, kept in enumerate(in_flight(shape)):
        assert timeline.peak_in_flight(rank) == sum(kept)
        if shape.schedule != "zero_bubble":
            assert kept in [after for _, after in timeline.in_flight(rank)]


def test_1f1b_keeps_as_many_micro_batches_as_there_are_stages_to_come() -> None:
    assert in_flight(Shape("1f1b", 4, 1, 8)) == ((4,), (3,), (2,), (1,))
    assert in_flight(Shape("1f1b", 4, 1, 2)) == ((2,), (2,), (2,), (1,))
    assert in_flight(Shape("gpipe", 2, 1, 8)) == ((8,), (8,))
    assert in_flight(Shape("zero_bubble", 4, 1, 8)) == ((4,),) * 4


@pytest.mark.parametrize(
    "shape",
    [
        Shape("1f1b", 4, 2, 8),
        Shape("interleaved", 4, 1, 8),
        Shape("interleaved", 4, 2, 6),
        Shape("1f1b", 4, 1, 0),
    ],
)
def test_shapes_without_an_order_are_refused(shape: Shape) -> None:
    with pytest.raises(ValueError, match=r"chunks|multiples"):
        check_shape(shape)


def torch_order(schedule: Schedule, rank: int, ranks: int, chunks: int, microbatches: int) -> Any:
    """Return torch's order of a rank as (kind, stage, micro-batch), built without process groups."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    name = {
        "interleaved": "ScheduleInterleaved1F1B",
        "zero_bubble": "ScheduleInterleavedZeroBubble",
    }
    plan = SimpleNamespace(
        n_local_stages=chunks,
        microbatches_per_round=microbatches // max(1, microbatches // ranks),
        pp_group_size=ranks,
        _n_microbatches=microbatches,
    )
    actions = getattr(schedules, name[schedule])._calculate_single_rank_operations(plan, rank)
    kinds = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}
    return [
        (kinds[action.computation_type.name], action.stage_index, action.microbatch_index)
        for action in actions
        if action is not None
    ]


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize(
    ("schedule", "chunks"), [("interleaved", 2), ("interleaved", 3), ("zero_bubble", 1)]
)
def test_the_order_is_that_of_torch(
    schedule: Schedule, chunks: int, rounds: int, ranks: int
) -> None:
    shape = Shape(schedule, ranks, chunks, ranks * rounds)
    for rank in range(ranks):
        ours = [(kind, chunk * ranks + rank, mb) for kind, chunk, mb in rank_order(shape, rank)]
        assert ours == torch_order(schedule, rank, ranks, chunks, ranks * rounds)
