"""Small scenarios one can compute by hand; each builder names only what a test cares about."""

from typing import Any

from planner.scenario import Scenario
from planner.scenario_file import scenario_from_mapping

TINY_MODEL = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}


def make_mixed_scenario(
    *, layers: int = 6, batch: int = 16, memory: str | None = None, **search: object
) -> Scenario:
    """Return a llama-like model of small layers on two nodes: 4 of 8 A100 and 4 of 8 V100."""
    data: dict[str, Any] = {
        "model": {**TINY_MODEL, "num_hidden_layers": layers},
        "cluster": {
            "groups": [{"name": "dgx-a100-80gb", "gpus": 4}, {"name": "dgx-1-32gb", "gpus": 4}]
        },
        "training": {"global_batch": batch, "sequence": 1024},
        "search": search,
    }
    if memory:
        data["limits"] = {"memory": memory}
    return scenario_from_mapping(data)


def make_scenario(
    *,
    layers: int = 4,
    gpus: int = 4,
    cluster: str = "dgx-a100-80gb",
    batch: int = 8,
    sequence: int = 1024,
    framework: str = "megatron",
    memory: str | None = None,
    search: dict[str, Any] | None = None,
    **training: Any,
) -> Scenario:
    """Return a llama-like model of ``layers`` small layers on ``gpus`` GPUs of one node type."""
    data: dict[str, Any] = {
        "model": {**TINY_MODEL, "num_hidden_layers": layers},
        "cluster": {"name": cluster, "gpus": gpus},
        "training": {
            "global_batch": batch,
            "sequence": sequence,
            "framework": framework,
            **training,
        },
        "search": search or {},
    }
    if memory:
        data["limits"] = {"memory": memory}
    return scenario_from_mapping(data)
