"""Synchronised batch normalisation adds its collectives to data parallelism, and to nothing else."""

from dataclasses import replace

import pytest

from costmodel.strategy import Strategy
from planner.compare import best_plan
from planner.scenario import Scenario
from planner.scenario_file import scenario_from_mapping
from planner.scenario_pricer import make_pricer
from planner.simulation import simulate_strategy
from planner.systems import SYSTEMS, apply_system
from planner.tracing import trace_builder
from tests.planner.networks import resnet50


def asked(synchronised: str, gpus: int = 16) -> Scenario:
    question = scenario_from_mapping(
        {
            "model": "gpt2",  # replaced by the traced module
            "cluster": {"name": "p4d", "gpus": gpus},
            "training": {
                "global_batch": 64 * gpus,
                "sequence": 1,
                "framework": "ddp",
                "options": {"sync_batch_norm": synchronised},
            },
        }
    )
    return replace(question, graph=trace_builder(resnet50, "resnet50"))


def seconds(synchronised: str, gpus: int = 16) -> float:
    plan = simulate_strategy(asked(synchronised, gpus), f"dp={gpus},micro_batch=64", None).plan
    assert plan
    return plan.iteration_s


def test_a_trace_counts_the_53_batch_norms_of_resnet_50() -> None:
    graph = asked("on").graph
    layers = [graph.embedding, *(graph.kinds[kind] for kind in graph.layers), graph.head]
    norms = [channels for layer in layers for channels in layer.batch_norms]
    assert len(norms) == 53
    assert sum(norms) == 26_560


def test_synchronising_costs_two_collectives_a_norm_between_replicas_only() -> None:
    assert seconds("on", gpus=1) == seconds("off", gpus=1)
    assert seconds("on") > seconds("off")


def test_each_norm_gathers_forward_and_reduces_backward() -> None:
    strategy = Strategy(dp=16, micro_batch=64)
    with_norms, without = (make_pricer(asked(text)).block(strategy) for text in ("on", "off"))
    for direction in (0, 1):
        synchronised = {term.name for term in with_norms[direction]}
        plain = {term.name for term in without[direction]}
        assert "dp_comm" in synchronised
        assert "dp_comm" not in plain


def test_pipelines_without_replicas_have_nothing_to_synchronise() -> None:
    times = []
    for text in ("on", "off"):
        scenario = apply_system(replace(asked(text, gpus=4), system="gpipe"))
        plan, reason = best_plan(scenario, SYSTEMS["gpipe"])
        assert plan, reason
        times.append(plan.iteration_s)
    assert times[0] == pytest.approx(times[1])
