"""DistSim's search case and large case (Lu et al., CF 2023), shipped as scenarios."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import cli
from planner.degree_answers import grid_to_json, grid_to_text
from planner.degree_grid import DegreeGrid, degree_grid
from planner.scenario_file import load_scenario
from planner.simulation import simulate_strategy
from tests.builders import make_scenario

EXAMPLES = Path(__file__).parents[3] / "scenarios" / "examples"
CASE = EXAMPLES / "distsim-bert-exlarge.yaml"


@pytest.fixture(scope="module")
def grid() -> DegreeGrid:
    found = degree_grid(load_scenario(CASE))
    assert found
    return found


def test_the_grid_has_exactly_the_fifteen_configurations(grid: DegreeGrid) -> None:
    degrees = (1, 2, 4, 8, 16)
    expected = {f"{m}M{p}P{16 // (m * p)}D" for m in degrees for p in degrees if m * p <= 16}
    assert len(expected) == 15
    assert {item.label for item in grid.configurations} == expected


def test_configurations_are_ranked_and_the_spread_is_that_of_first_and_last(
    grid: DegreeGrid,
) -> None:
    times = [item.plan.iteration_s for item in grid.configurations]
    assert times == sorted(times)
    assert grid.spread == pytest.approx(times[-1] / times[0])
    assert 2 < grid.spread < 15  # DistSim: 7.4; the network and sequence it used are not known


def test_tensor_parallelism_over_all_nodes_is_worst_and_pure_data_parallelism_not_best(
    grid: DegreeGrid,
) -> None:
    labels = [item.label for item in grid.configurations]
    assert labels[-1] == "16M1P1D"
    assert labels.index("1M1P16D") > 5


def test_its_notation_names_the_same_prediction(grid: DegreeGrid) -> None:
    first = grid.configurations[0]
    text = f"tp={first.plan.strategy.tp},pp={first.plan.strategy.pp},micro_batch={first.plan.strategy.micro_batch}"
    plan = simulate_strategy(load_scenario(CASE), text, None).plan
    assert plan
    assert plan.iteration_s == first.plan.iteration_s
    noted = simulate_strategy(load_scenario(CASE), "2M4P2D", None).plan
    assert noted
    assert (noted.strategy.tp, noted.strategy.pp, noted.strategy.dp) == (2, 4, 2)


def test_every_gpu_has_a_utilisation_below_one_and_a_timeline(grid: DegreeGrid) -> None:
    for item in grid.configurations:
        assert len(item.utilisation) == item.plan.strategy.pp
        assert all(0 < share < 1 for share in item.utilisation)
        tasks = 2 * item.plan.strategy.microbatches
        assert all(len(rank) == tasks for rank in item.timeline.spans)


def test_unique_events_cost_far_less_than_running_every_configuration(grid: DegreeGrid) -> None:
    profiling = grid.profiling
    assert profiling.events < 15 * 48
    assert profiling.share < 0.1296  # DistSim: 12.96 %


def test_text_and_json_hold_the_whole_table(grid: DegreeGrid) -> None:
    text = grid_to_text(grid, load_scenario(CASE))
    assert all(item.label in text for item in grid.configurations)
    data = json.loads(json.dumps(grid_to_json(grid), allow_nan=False))
    assert len(data["configurations"]) == 15
    assert data["configurations"][0]["timeline"][0][0]["task"] == "F"


def test_the_command_prints_the_table() -> None:
    result = CliRunner().invoke(cli, ["compare", str(CASE), "--degrees"], standalone_mode=False)
    assert result.return_value == 0, result.output
    assert "2M4P2D" in result.output


def test_a_scenario_without_legal_degrees_has_no_grid() -> None:
    assert degree_grid(make_scenario(layers=4, gpus=4, search={"tp": 3})) is None


def test_gpt_145b_at_8m16p1d_reaches_what_megatron_published() -> None:
    plan = simulate_strategy(
        load_scenario(EXAMPLES / "distsim-gpt-145b.yaml"), "8M16P1D,recompute=full", None
    ).plan
    assert plan
    assert plan.strategy.gpus == 128
    # 148 TFLOP/s a GPU (arXiv 2104.04473, table 1): a count with the recomputed forward, 8/6 of the model's.
    assert plan.mfu * 312 * 8 / 6 == pytest.approx(148, rel=0.1)
