"""The rate at which a plan reads its samples, against the storage."""

from dataclasses import replace

import pytest

from planner.answer_text import simulation_to_text
from planner.input_rate import input_sentences, read_bytes_per_s, sample_bytes
from planner.scenario_file import scenario_from_mapping
from planner.simulation import simulate_strategy
from tests.builders import make_scenario


def test_tokens_are_read_as_integers_and_images_as_pixels() -> None:
    assert sample_bytes(make_scenario(sequence=1024)) == 4096
    image = scenario_from_mapping(
        {
            "model": "vit-large-16",
            "cluster": {"name": "p4d", "gpus": 8},
            "training": {"global_batch": 64, "sequence": 196},
        }
    )
    assert sample_bytes(image) == 224 * 224 * 3


def test_the_rate_is_samples_times_bytes_and_is_compared_with_the_storage() -> None:
    scenario = make_scenario(sequence=1024, batch=8)
    simulation = simulate_strategy(scenario, "dp=4", None)
    plan = simulation.plan
    assert plan
    rate = read_bytes_per_s(plan, scenario)
    assert rate == pytest.approx(8 / plan.iteration_s * 4096)
    slow = replace(scenario, cluster=replace(scenario.cluster, storage_bytes_per_s=rate / 2))
    assert "holds the plan back" in next(input_sentences(plan, slow))
    fast = replace(scenario, cluster=replace(scenario.cluster, storage_bytes_per_s=rate * 4))
    assert "25.00% of what the storage reads" in next(input_sentences(plan, fast))
    assert "samples/s" in simulation_to_text(simulation, scenario)
