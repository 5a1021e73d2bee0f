"""What cannot be, explained: the smallest set of bounds that no legal strategy keeps together."""

from planner.explain import conflicting_bounds
from planner.search import plan
from tests.builders import make_scenario


def test_two_degrees_whose_product_exceeds_the_gpus_conflict() -> None:
    scenario = make_scenario(layers=8, gpus=8, search={"tp": 4, "pp": 4, "micro_batch": 1})
    assert conflicting_bounds(scenario) == ("search.tp", "search.pp")
    answer = plan(scenario)
    assert not answer.plans
    assert answer.levers[0].startswith("search.tp and search.pp: ")


def test_bounds_that_some_strategy_keeps_do_not_conflict() -> None:
    assert conflicting_bounds(make_scenario(gpus=8, search={"tp": 4, "pp": 2})) == ()


def test_a_bound_that_is_illegal_by_itself_stands_alone() -> None:
    scenario = make_scenario(gpus=8, search={"tp": 3, "micro_batch": 1})
    assert conflicting_bounds(scenario) == ("search.tp",)
