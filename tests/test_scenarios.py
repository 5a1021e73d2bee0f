"""Every example scenario is answered: with plans that the solver-free check accepts, or with the reason why not."""

from pathlib import Path

import pytest

from costmodel.errors import TimeLimitError
from planner.check import check_plan
from planner.plans import SearchResult
from planner.scenario import Scenario
from planner.scenario_file import load_scenario
from planner.scenario_search import open_session
from planner.search import plan
from planner.systems import apply_system

FOLDER = Path(__file__).parents[1] / "scenarios" / "examples"
SCENARIOS = sorted(path for path in FOLDER.glob("*.yaml") if "models:" not in path.read_text())

REFUSED = {"does-not-fit"}
"""Questions whose answer is no, on purpose."""


def answer(scenario: Scenario) -> SearchResult:
    """Return an answer soon; on a busy machine with more time."""
    for limit_s in (2.0, 20.0):
        try:
            return plan(scenario, top=2, tolerance=0.05, time_limit_s=limit_s, explain=False)
        except TimeLimitError:
            continue
    return plan(scenario, top=1, tolerance=1.0, explain=False)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_an_example_scenario_has_a_valid_plan_or_an_explained_refusal(path: Path) -> None:
    scenario = load_scenario(path)
    result = answer(scenario)
    assert bool(result.plans) == (path.stem not in REFUSED)
    if not result.plans:
        assert result.rejected
        assert all(item.nearest for item in result.rejected)
        return
    used = apply_system(scenario)
    session = open_session(used)
    for found in result.plans:
        cost = session.cost(found.strategy, found.placement.device_groups)
        assert check_plan(found, cost, used) == ()
        assert found.fits
        assert found.iteration_s >= result.lower_bound_s
