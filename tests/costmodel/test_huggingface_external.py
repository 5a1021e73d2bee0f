"""The classes of Hugging Face transformers, built on meta, hold our parameters and FLOPs layer by layer."""

import importlib
from typing import Any

import pytest

from costmodel import catalog
from costmodel.graph import build_graph
from costmodel.huggingface import model_from_config

pytestmark = pytest.mark.external

# Not classes of transformers, or (MPT) without the learned positions of llm-foundry.
_FOREIGN = ("grok-1", "kimi-k2")
NAMES = [
    name for name in catalog.names("models") if name not in _FOREIGN and not name.startswith("mpt-")
]
_CLASSES = {
    "bert": "BertForPreTraining",
    "t5": "T5ForConditionalGeneration",
    "gemma3_text": "Gemma3ForCausalLM",
}
# Enough for every kind of layer: dense beginnings (3), window patterns (6).
_LAYERS = 6
_TOKENS = 8


@pytest.fixture(scope="module")
def torch() -> Any:
    pytest.importorskip("transformers")
    return pytest.importorskip("torch")


def build(config: dict[str, Any]) -> Any:
    """Return the transformers model of ``config`` with eager attention and experts of static shapes."""
    transformers = importlib.import_module("transformers")
    fields = {key: value for key, value in config.items() if key != "model_type"}
    kind = config["model_type"]
    if kind.startswith("deepseek"):
        fields.pop("head_dim", None)  # the class writes its own
    settings = transformers.CONFIG_MAPPING[kind](**fields)
    settings._attn_implementation = "eager"
    settings._experts_implementation = "batched_mm"
    if (
        kind == "vit"
    ):  # its initialisation reads values, which fake tensors have not; it ties nothing
        with importlib.import_module("transformers.initialization").no_init_weights():
            return transformers.ViTModel(settings)
    if kind in _CLASSES:
        return getattr(transformers, _CLASSES[kind])(settings)
    return transformers.AutoModelForCausalLM.from_config(settings)


def blocks(torch: Any, model: Any) -> dict[str, Any]:
    """Return the repeated blocks by module name, in order: the outermost module lists."""
    found: dict[str, Any] = {}
    stacks: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and not any(map(name.startswith, stacks)):
            stacks.append(name)
            found |= {f"{name}.{index}": block for index, block in enumerate(module)}
    return found


def numel(module: Any) -> int:
    return sum({id(weight): weight.numel() for weight in module.parameters()}.values())


def shallow(config: dict[str, Any]) -> dict[str, Any]:
    depths = ("num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers")
    return config | {key: min(config[key], _LAYERS) for key in depths if key in config}


@pytest.mark.parametrize("name", NAMES)
def test_parameters_of_every_layer_are_those_of_the_class(torch: Any, name: str) -> None:
    with torch.device("meta"):
        model = build(catalog.model_config(name))
    graph = build_graph(catalog.model(name))
    expected = [numel(block) for block in blocks(torch, model).values()]
    if graph.model.decoder_start:  # the encoder's last norm stands behind its blocks
        expected[graph.model.decoder_start - 1] += numel(model.encoder.final_layer_norm)
    assert [graph.kinds[kind].parameters for kind in graph.layers] == expected
    assert graph.parameters == numel(model)


@pytest.mark.parametrize("name", NAMES)
def test_matmul_flops_of_every_layer_are_those_of_the_class(torch: Any, name: str) -> None:
    config = shallow(catalog.model_config(name))
    fake = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode
    counter = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
    with fake():
        model = build(config).eval()
        with counter, torch.no_grad():
            model(**_inputs(torch, config))
    counted = counter.get_flop_counts()
    graph = build_graph(model_from_config(config, name=name, file=name))
    tokens = graph.model.positions if config["model_type"] == "vit" else _TOKENS
    flops = [
        tokens * sum(op.flops_per_token(tokens) for op in kind.operators) for kind in graph.kinds
    ]
    root = type(model).__name__
    seen = [sum(counted[f"{root}.{block}"].values()) for block in blocks(torch, model)]
    assert [flops[kind] for kind in graph.layers] == seen


def _inputs(torch: Any, config: dict[str, Any]) -> dict[str, Any]:
    if config["model_type"] == "vit":
        side = config["image_size"]
        return {"pixel_values": torch.zeros(1, config["num_channels"], side, side)}
    tokens = torch.zeros(1, _TOKENS, dtype=torch.long)
    if config["model_type"] == "t5":
        return {"input_ids": tokens, "decoder_input_ids": tokens}
    return {"input_ids": tokens}


@pytest.mark.parametrize("name", NAMES)
def test_windows_are_on_the_layers_where_the_class_has_them(torch: Any, name: str) -> None:
    with torch.device("meta"):
        settings = build(shallow(catalog.model_config(name))).config
    types = getattr(settings, "layer_types", None)
    if types is None:
        pytest.skip("the class knows no windows")
    graph = build_graph(catalog.model(name)).model
    ours = [graph.kinds[kind].attention for kind in graph.layers[: len(types)]]
    theirs = [kind == "sliding_attention" for kind in types]
    assert [spec is not None and spec.window is not None for spec in ours] == theirs
