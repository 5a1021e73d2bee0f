"""transformers builds every catalog model on the meta device; parameters and matmul FLOPs agree layer by layer."""

from collections.abc import Iterator
from typing import Any

import pytest

from costmodel import catalog
from costmodel.graph import Layer, build_graph

pytestmark = [pytest.mark.external, pytest.mark.filterwarnings("ignore")]

# Families of transformers whose class is not AutoModelForCausalLM.
CLASSES = {
    "bert": "BertForPreTraining",
    "t5": "T5ForConditionalGeneration",
    "vit": "ViTModel",
}
# llm-foundry's MPT has learned positions; the class of that name in transformers has none.
FOREIGN = {"mpt"}
# transformers keeps T5's norm behind the encoder outside the blocks, the catalog in the encoder's last layer.
CLOSING_NORM = "encoder-last"


def buildable() -> list[str]:
    return [
        name for name in catalog.names("models") if catalog.model_config(name).get("model_type")
    ]


def built(name: str) -> Any:
    """Return the model of transformers on the meta device."""
    transformers = pytest.importorskip("transformers")
    import torch

    config = dict(catalog.model_config(name))
    kind = str(config.pop("model_type"))
    if kind not in transformers.CONFIG_MAPPING or kind in FOREIGN:
        pytest.skip(f"transformers has no class for {kind}")
    settings = transformers.AutoConfig.for_model(kind, **config)
    with torch.device("meta"):
        if kind in CLASSES:
            return getattr(transformers, CLASSES[kind])(settings)
        return transformers.AutoModelForCausalLM.from_config(settings)


def blocks(module: Any) -> list[Any]:
    """Return the repeated blocks in order: those of every module list that holds the model's layers."""
    import torch

    lists = [
        item
        for name, item in module.named_modules()
        if isinstance(item, torch.nn.ModuleList) and len(item) > 1 and "expert" not in name
    ]
    outer = [
        item for item in lists if not any(item in list(other.modules())[1:] for other in lists)
    ]
    return [block for item in outer for block in item]


def matrices(block: Any) -> Iterator[tuple[str, Any]]:
    """Yield the matrices that tokens are multiplied with: no biases, norms or lookup tables."""
    import torch

    tables = {
        id(parameter)
        for item in block.modules()
        if isinstance(item, torch.nn.Embedding)
        for parameter in item.parameters()
    }
    for name, parameter in block.named_parameters():
        if parameter.ndim >= 2 and id(parameter) not in tables and not name.endswith("bias"):
            yield name, parameter


def matmul_flops(block: Any, share: float) -> float:
    """Return forward FLOPs of one token in the block's matmuls; experts are visited in ``share``."""
    terms = (
        2.0 * parameter.numel() * (share if ".experts." in name else 1.0)
        for name, parameter in matrices(block)
    )
    return float(sum(terms))


def our_flops(layer: Layer) -> float:
    return sum(op.flops_per_token(0.0) for op in layer.operators if op.kind in ("matmul", "router"))


@pytest.mark.parametrize("name", buildable())
def test_parameters_and_matmul_flops_of_every_layer_agree(name: str) -> None:
    module = built(name)
    graph = build_graph(catalog.model(name))
    assert sum(item.numel() for item in module.parameters()) == graph.parameters
    layers = blocks(module)
    assert len(layers) == len(graph.layers)
    for block, kind in zip(layers, graph.layers, strict=True):
        spec, layer = graph.model.kinds[kind], graph.kinds[kind]
        share = spec.mlp.topk / spec.mlp.experts if spec.mlp and spec.mlp.experts else 1.0
        outside = graph.model.hidden if spec.name == CLOSING_NORM else 0
        assert sum(item.numel() for item in block.parameters()) + outside == layer.parameters
        assert matmul_flops(block, share) == our_flops(layer)
