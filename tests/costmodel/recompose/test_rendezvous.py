"""The blocking 1F1B pipeline against cases computed by hand and against its laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.recompose.rendezvous import Pipeline, Run, run


def _run(
    forward: list[float], backward: list[float], transfer: float, microbatches: int
) -> tuple[Run, Pipeline]:
    boundaries = len(forward) - 1
    pipeline = Pipeline(
        forward_s=tuple(forward),
        backward_s=tuple(backward),
        transfer_s=(transfer,) * boundaries,
        exchange_s=(2 * transfer,) * boundaries,
        microbatches=microbatches,
    )
    return run(pipeline), pipeline


def test_one_stage_only_works() -> None:
    result, _ = _run([1.0], [2.0], 0.0, 4)
    assert result == Run(end_s=(12.0,), waited_s=(0.0,))


def test_two_stages_two_microbatches_by_hand() -> None:
    # stage 0: F1 1, send 1.5, F2 2.5, exchange with stage 1 (B1 done at 4.5): 5.5, B1 7.5, take back B2
    # stage 1: receive 1.5, F1 2.5, B1 4.5, exchange 5.5, F2 6.5, B2 8.5, return 9.0; stage 0: 9.0, B2 11.0
    result, _ = _run([1.0, 1.0], [2.0, 2.0], 0.5, 2)
    assert result.end_s == pytest.approx((11.0, 9.0))
    assert result.waited_s == pytest.approx((5.0, 3.0))


def test_equal_stages_without_transfers_reach_the_known_bubble() -> None:
    stages, microbatches = 4, 8
    result, _ = _run([1.0] * stages, [2.0] * stages, 0.0, microbatches)
    assert result.end_s[0] == pytest.approx(3.0 * (microbatches + stages - 1))


@given(
    st.lists(st.tuples(st.floats(0.1, 5), st.floats(0.1, 5)), min_size=1, max_size=5),
    st.integers(1, 12),
    st.floats(0, 1),
)
def test_time_is_no_less_than_work_and_waiting_accounts_for_the_rest(
    stages: list[tuple[float, float]], microbatches: int, transfer: float
) -> None:
    forward, backward = [s[0] for s in stages], [s[1] for s in stages]
    result, _ = _run(forward, backward, transfer, microbatches)
    for stage, end in enumerate(result.end_s):
        work = microbatches * (forward[stage] + backward[stage])
        assert end == pytest.approx(work + result.waited_s[stage])
    slower, _ = _run(forward, backward, transfer + 0.1, microbatches)
    assert slower.end_s[0] >= result.end_s[0] - 1e-9
