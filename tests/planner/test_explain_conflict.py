"""What cannot be, explained: the smallest set of bounds that no legal strategy keeps together."""

import pytest

from costmodel.errors import TimeLimitError
from planner.explain import conflicting_bounds, with_gpus
from planner.search import plan
from planner.space import _divisors_of_any, enumerate_space
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


def test_a_budget_too_large_for_the_batch_names_the_largest_power_of_two_that_has_a_plan() -> None:
    scenario = make_scenario(gpus=10**6, cluster="dgx-h100")
    answer = plan(scenario)
    assert not answer.plans
    (lever,) = (text for text in answer.levers if text.startswith("GPUs: "))
    gpus = int(lever.split()[1])
    assert plan(with_gpus(scenario, gpus), top=1).plans
    assert not enumerate_space(with_gpus(scenario, 2 * gpus)).columns


@pytest.mark.parametrize(
    ("numbers", "limit"), [((1,), 1), ((36,), 36), ((64, 96), 20), ((97, 49), 97)]
)
def test_divisors_are_those_of_any_number_up_to_the_limit(
    numbers: tuple[int, ...], limit: int
) -> None:
    expected = [n for n in range(1, limit + 1) if any(number % n == 0 for number in numbers)]
    assert _divisors_of_any(numbers, limit) == tuple(expected)


def test_a_time_limit_too_short_for_any_plan_says_what_to_do() -> None:
    with pytest.raises(TimeLimitError, match=r"give more time, or bound decisions"):
        plan(make_scenario(), time_limit_s=1e-9)
