"""Host memory of offloaded state against measured nodes."""

import pytest

from costmodel import catalog
from costmodel.graph import build_graph
from costmodel.host_memory import host_memory_bytes
from costmodel.spec import TrainingSpec
from costmodel.strategy import Strategy
from planner.host import broken_host
from planner.scenario import Scenario

GRAPH = build_graph(catalog.model("qwen3-30b-a3b"))


def training(framework: str) -> TrainingSpec:
    return TrainingSpec(global_batch=8, sequence=2048, framework=framework)


def test_megatron_pins_two_copies_of_the_optimizer_state() -> None:
    # THUDM/slime issue 1851: 816 GB on one node.
    need = host_memory_bytes(
        GRAPH,
        catalog.cluster("dgx-h100", 8),
        training("megatron"),
        Strategy(dp=8, zero=1, offload_optimizer=1.0),
    )
    assert need == pytest.approx(816e9, rel=0.02)


def test_two_nodes_share_what_zero_shards() -> None:
    one, two = (
        host_memory_bytes(
            GRAPH,
            catalog.cluster("dgx-h100", gpus),
            training("deepspeed"),
            Strategy(dp=gpus, zero=3, offload_optimizer=1.0),
        )
        for gpus in (8, 16)
    )
    assert two == pytest.approx(one / 2)


@pytest.mark.parametrize(("model", "over"), [("llama-2-7b", False), ("llama-3.1-405b", True)])
def test_a_node_without_the_host_memory_is_refused_by_name(model: str, *, over: bool) -> None:
    cluster = catalog.cluster("dgx-h100", 8)
    scenario = Scenario(
        name="offload",
        graph=build_graph(catalog.model(model)),
        cluster=cluster,
        training=training("deepspeed"),
        memory_limit_bytes=cluster.device.usable_bytes,
        gpu_counts=(8,),
    )
    found = broken_host(Strategy(dp=8, zero=3, offload_optimizer=1.0), scenario)
    assert [violation.rule for violation in found] == (["host_ram"] if over else [])
