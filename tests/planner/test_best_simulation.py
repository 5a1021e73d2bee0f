"""A strategy without a placement is judged on the placement that suits it best."""

from pathlib import Path

import pytest

from planner.best_simulation import simulate_best
from planner.scenario import Scenario
from planner.scenario_file import load_scenario
from planner.search import plan

FLAGSHIP = Path(__file__).parents[2] / "scenarios/examples/llama-3.1-70b-64xh100.yaml"


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario(FLAGSHIP)


def test_a_ranked_strategy_gets_the_placement_it_is_ranked_with(scenario: Scenario) -> None:
    for ranked in plan(scenario, top=10, tolerance=0.0).plans[:9:4]:
        strategy = ranked.strategy
        names = ("tp", "pp", "cp", "dp", "vpp", "micro_batch", "zero", "schedule")
        text = ",".join(f"{name}={getattr(strategy, name)}" for name in names)
        text += f",sequence_parallel={str(strategy.sequence_parallel).lower()}"
        found = simulate_best(scenario, text, None)
        assert found.plan
        assert found.plan.fits
        assert found.plan.iteration_s == pytest.approx(ranked.iteration_s, rel=1e-3)


def test_what_fits_nowhere_recomputes_everything(scenario: Scenario) -> None:
    found = simulate_best(scenario, "tp=8,dp=8", None)
    assert found.plan
    assert not found.plan.fits
    assert [chunk.recomputed for chunk in found.plan.placement.chunks] == [80]


def test_a_given_placement_and_an_illegal_strategy_stay_as_they_are(scenario: Scenario) -> None:
    given = simulate_best(scenario, "tp=8,pp=4,dp=2,zero=1", "23/19/19/19")
    assert given.plan
    assert given.plan.placement.layer_counts() == (23, 19, 19, 19)
    assert simulate_best(scenario, "tp=3,pp=4,dp=4", None).plan is None
