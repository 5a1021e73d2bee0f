"""The recompute decision: what a scenario excludes never appears in a plan."""

import pytest

from planner.plans import Plan
from planner.search import plan
from tests.builders import make_scenario

TIGHT = "3.4GiB"


def recomputed(item: Plan) -> int:
    return sum(chunk.recomputed for chunk in item.placement.chunks)


def test_full_recomputation_is_used_where_memory_asks_for_it() -> None:
    plans = plan(make_scenario(layers=6, gpus=2, memory=TIGHT), top=30).plans
    assert any(recomputed(item) for item in plans)


@pytest.mark.parametrize("bound", ["none", {"exclude": ["full"]}, ["none", "selective"]])
def test_excluded_full_recomputation_never_appears(bound: object) -> None:
    plans = plan(
        make_scenario(layers=6, gpus=2, memory="6GiB", search={"recompute": bound}), top=30
    ).plans
    assert plans
    assert not any(recomputed(item) for item in plans)


def test_only_full_recomputes_every_layer() -> None:
    plans = plan(make_scenario(layers=6, gpus=2, search={"recompute": "full"}), top=30).plans
    assert plans
    assert all(recomputed(item) == 6 for item in plans)
