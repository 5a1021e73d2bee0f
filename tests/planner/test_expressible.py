"""A plan that a target cannot express names one of the list that it can."""

from pathlib import Path

import pytest

from costmodel.errors import InputError
from planner.deliver import expressible_rank
from planner.export import target
from planner.nearest import launchable
from planner.search import plan
from planner.wanted import Wanted
from tests.builders import make_scenario


def test_the_first_plan_that_the_target_can_express_is_found() -> None:
    scenario = make_scenario(layers=6, gpus=2, memory="3.4GiB")
    plans = plan(scenario, top=40).plans
    rank = expressible_rank(Wanted(exports=(("megatron", Path("x")),)), scenario, plans)
    assert rank is not None
    assert not launchable(target("megatron"), scenario, plans[rank - 1], exact=True).notice
    for other in plans[: rank - 1]:
        with pytest.raises(InputError, match="cannot express"):
            launchable(target("megatron"), scenario, other, exact=True)


def test_no_rank_is_named_where_no_plan_can_be_expressed() -> None:
    scenario = make_scenario(layers=4, gpus=4, search={"pp": 4})
    plans = plan(scenario, top=5).plans
    assert expressible_rank(Wanted(exports=(("accelerate", Path("x")),)), scenario, plans) is None
