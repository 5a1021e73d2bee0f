"""Classes of transformers, traced as a user would hand them over, agree with the catalog's analytic graphs."""

from typing import Any

import pytest

from costmodel import catalog
from costmodel.graph import build_graph
from planner.tracing import trace_builder

pytestmark = [pytest.mark.external, pytest.mark.filterwarnings("ignore")]

TOKENS = 256


def builder(name: str) -> Any:
    transformers = pytest.importorskip("transformers")
    import torch

    fields = dict(catalog.model_config(name))
    kind = str(fields.pop("model_type"))

    def build() -> Any:
        config = transformers.AutoConfig.for_model(kind, **fields, use_cache=False)
        module = transformers.AutoModelForCausalLM.from_config(config)
        return module, (torch.zeros(1, TOKENS, dtype=torch.long),)

    return build


@pytest.mark.parametrize("name", ["gpt2-medium", "llama-3.2-1b", "qwen3-0.6b", "gpt-neox-20b"])
def test_a_traced_class_has_the_catalogs_parameters_and_flops(name: str) -> None:
    traced = trace_builder(builder(name), name)
    known = build_graph(catalog.model(name))
    assert traced.parameters == known.parameters
    assert len(traced.layers) == len(known.layers)
    assert traced.tied == known.tied
    for ours, theirs in zip(known.layers, traced.layers, strict=True):
        layer = known.kinds[ours]
        matmuls = sum(
            op.flops_per_token(0.0) * TOKENS for op in layer.operators if op.kind == "matmul"
        )
        # With an explicit mask, which these classes pass, every pair of tokens is computed.
        cores = sum(
            op.flops_per_token(TOKENS) * TOKENS for op in layer.operators if op.kind == "attention"
        )
        found = {"attention": 0.0, "other": 0.0}
        for op in traced.kinds[theirs].operators:
            found["attention" if op.name.endswith(".attention") else "other"] += op.flops
        assert found == {"attention": cores, "other": pytest.approx(matmuls, rel=1e-4)}
