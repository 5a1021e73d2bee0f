"""The survey's findings on VGG-16, traced from a module: batch 64 per GPU on Lassen and ThetaGPU."""

from dataclasses import replace
from functools import lru_cache

import pytest

from planner.compare import Comparison, compare
from planner.scenario_file import scenario_from_mapping
from planner.tracing import trace_builder
from tests.planner.networks import vgg16

COUNTS = (1, 2, 4, 8, 16, 64)
REPLICATING = ("ddp", "lbann", "zero-1", "zero-2")


@lru_cache
def surveyed(cluster: str) -> Comparison:
    question = scenario_from_mapping(
        {
            "model": "gpt2",  # replaced by the traced module
            "cluster": {"name": cluster, "gpus": 64},
            "training": {"global_batch": 64 * 64, "sequence": 1, "precision": "fp16"},
        }
    )
    graph = trace_builder(vgg16, "vgg16")
    assert graph.parameters == 138_357_544
    scenario = replace(question, graph=graph)
    return compare(scenario, (*REPLICATING, "zero-3", "gpipe", "pipedream"), COUNTS, "survey")


CLUSTERS = pytest.mark.parametrize("cluster", ["lassen", "thetagpu"])


@CLUSTERS
def test_ddp_memory_is_flat_and_zero_falls(cluster: str) -> None:
    comparison = surveyed(cluster)
    held = {
        name: [o.plan.peak_memory_bytes for o in comparison.of(name) if o.plan]
        for name in REPLICATING
    }
    assert len(set(held["ddp"][1:])) == 1
    for name in ("zero-1", "zero-2"):
        assert held[name][1:] == sorted(held[name][1:], reverse=True)
        assert held[name][-1] < held["ddp"][-1]


@CLUSTERS
def test_replicating_systems_scale_alike(cluster: str) -> None:
    comparison = surveyed(cluster)
    for name in REPLICATING:
        assert comparison.efficiency(comparison.at(name, 64)) > 0.7


@CLUSTERS
def test_zero_is_within_15_percent_of_ddp(cluster: str) -> None:
    comparison = surveyed(cluster)
    for name in ("zero-1", "zero-2"):
        for gpus in COUNTS[1:-1]:
            ratio = (
                comparison.at("ddp", gpus).samples_per_s / comparison.at(name, gpus).samples_per_s
            )
            assert 0.85 <= ratio <= 1.15


@CLUSTERS
def test_torchgpipe_is_slowest_on_one_gpu(cluster: str) -> None:
    alone = {o.system: o.samples_per_s for o in surveyed(cluster).outcomes if o.gpus == 1}
    assert min(alone, key=lambda name: alone[name]) == "gpipe"
    assert alone["ddp"] / alone["gpipe"] > 1.8


@CLUSTERS
def test_pipelines_scale_worse_than_replicas(cluster: str) -> None:
    comparison = surveyed(cluster)
    for gpus in (2, 4):
        piped = comparison.efficiency(comparison.at("gpipe", gpus))
        assert piped < comparison.efficiency(comparison.at("ddp", gpus))
