"""Tests of tracing: networks of every sort, without weights, data or a GPU."""

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from costmodel.errors import InputError
from costmodel.graph import ModelGraph
from costmodel.operators import Layer
from planner.traced_graph import TracedBlock, graph_of
from planner.tracing import (
    find_blocks,
    load_builder,
    trace_builder,
    trace_module,
)
from planner.tracing_run import FLASH_BACKWARD
from tests.planner import networks


@cache
def graph(name: str) -> ModelGraph:
    return trace_builder(getattr(networks, name), name)


def chain(found: ModelGraph) -> list[Layer]:
    return [found.embedding, *(found.kinds[kind] for kind in found.layers), found.head]


def flops(layer: Layer) -> float:
    return sum(operator.flops for operator in layer.operators)


def saved(layer: Layer) -> float:
    return sum(operator.saved_bytes for operator in layer.operators)


# Published parameter counts; FLOPs are twice the multiply-adds usually given for one image of 224 pixels
# (VGG-16 15.47 G, ResNet-50 4.09 G) and, for GPT2-medium, of 24 blocks of 24 h^2 t + 2 h t^2 and a head of 2 h V t.
PUBLISHED = {
    "gpt2_medium": (354_823_168, 24, 24 * 27_917_287_424 + 2 * 1024 * 50257 * 1024),
    "vgg16": (138_357_544, 15, 30_940_528_640),
    "resnet50": (25_557_032, 17, 8_178_368_512),
    "clip": (151_277_313, 27, None),
    "unet": (31_030_658, 13, None),
    "mixture": (565_930, 8, None),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_layers_and_flops_are_the_published_ones(name: str) -> None:
    parameters, layers, total = PUBLISHED[name]
    found = graph(name)
    assert found.parameters == parameters
    assert len(found.layers) == layers
    if total is not None:
        assert sum(flops(layer) for layer in chain(found)) == pytest.approx(total, rel=1e-6)


def test_equal_blocks_are_one_kind_of_layer() -> None:
    found = graph("gpt2_medium")
    assert found.layers == (0,) * 24
    assert found.kinds[0].name == "Block"
    assert graph("resnet50").layers == (0, 1, 2, 2, 3, 4, 4, 4, 5, 6, 6, 6, 6, 6, 7, 8, 8)


def test_weights_tied_by_identity_count_once() -> None:
    found = graph("gpt2_medium")
    assert found.tied
    assert found.tied_weights == 50257 * 1024
    assert found.embedding.parameters == (50257 + 1024) * 1024


def test_a_block_saves_what_flash_attention_training_keeps() -> None:
    # 32 s b h bytes of 16-bit activations (Korthikanti et al. 2022, arXiv 2205.05198, equation 1, without dropout
    # masks and scores), and the statistics of two norms and of the softmax of 16 heads.
    block = graph("gpt2_medium").kinds[0]
    assert saved(block) == 32 * 1024 * 1024 + 2 * (2 * 2 * 1024 + 16 * 1024)


def test_backward_costs_twice_but_for_attention_and_first_inputs() -> None:
    block = graph("gpt2_medium").kinds[0]
    ratios = {op.name.split(".")[2]: op.backward_ratio for op in block.operators}
    assert ratios["addmm"] == pytest.approx(2.0)
    assert ratios["attention"] == FLASH_BACKWARD
    first = graph("vgg16").kinds[0].operators[0]
    assert first.backward_ratio == pytest.approx(1.0)  # images need no gradient


def test_a_cut_hands_on_skip_connections_too() -> None:
    found = graph("unet")
    layers = [found.kinds[kind] for kind in found.layers]
    pixels = 512 * 512
    skips = [64 * pixels * 2, 128 * pixels // 4 * 2, 256 * pixels // 16 * 2]
    pooled = [skip // 4 for skip in skips]
    live = [layer.output_bytes_per_sample for layer in layers[:3]]
    assert live == [skips[0] + pooled[0], sum(skips[:2]) + pooled[1], sum(skips) + pooled[2]]
    assert layers[-1].output_bytes_per_sample == 64 * pixels * 2


def test_behind_the_first_tower_its_features_wait_for_the_second() -> None:
    found = graph("clip")
    layers = [found.kinds[kind] for kind in found.layers]
    names = [layer.name for layer in layers]
    text = names.index("Embedding")
    features, tokens = 512 * 2, 77 * 512 * 2
    assert layers[text - 1].output_bytes_per_sample == features
    assert layers[text].output_bytes_per_sample == features + tokens


def test_costs_are_per_sample() -> None:
    one = trace_builder(lambda: (networks.Vgg16(), (torch.zeros(1, 3, 224, 224),)), "one")
    assert [flops(layer) for layer in chain(one)] == [flops(x) for x in chain(graph("vgg16"))]


def test_the_module_itself_is_left_alone() -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4), nn.Linear(4, 2))
    before = {name: item.clone() for name, item in module.named_parameters()}
    found = trace_module(module, (torch.zeros(3, 4),))
    assert found.parameters == sum(item.numel() for item in before.values())
    for name, item in module.named_parameters():
        assert torch.equal(item, before[name])
        assert item.grad is None
    assert all("forward" not in vars(item) for item in module.modules())


def test_frozen_parameters_are_marked() -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    module[0].requires_grad_(False)
    found = trace_module(module, (torch.zeros(2, 4),))
    frozen = [op for layer in chain(found) for op in layer.operators if not op.trainable]
    assert sum(op.parameters for op in frozen) == 4 * 8 + 8
    assert found.parameters == 4 * 8 + 8 + 8 * 8 + 8 + 8 * 2 + 2


def test_a_module_called_twice_has_its_weights_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.again, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.last(self.again(self.again(self.first(x))))
            return found

    found = trace_module(Twice(), (torch.zeros(2, 8),))
    assert found.parameters == 2 * 72 + 18
    assert len(found.layers) == 3


def test_parameters_outside_every_block_are_counted() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(8))
            self.body = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.body(x + self.shift)
            return found

    assert trace_module(Shifted(), (torch.zeros(2, 8),)).parameters == 8 + 2 * 72


def test_blocks_are_elements_of_containers_and_not_their_insides() -> None:
    with torch.device("meta"):
        module, _ = networks.resnet50()
        clip, _ = networks.clip()
    assert [type(item).__name__ for item in find_blocks(module)].count("Bottleneck") == 16
    assert [type(item).__name__ for item in find_blocks(clip)].count("Block") == 24


def test_a_builder_is_loaded_by_its_name() -> None:
    builder = load_builder("tests.planner.networks:mixture")
    assert trace_builder(builder, "mixture").parameters == PUBLISHED["mixture"][0]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("no.such.module:f", "cannot be imported"),
        ("tests.planner.networks:nothing", r"package\.module:function"),
        ("tests.planner.networks", r"package\.module:function"),
    ],
)
def test_what_cannot_be_loaded_is_refused(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        load_builder(text)


def test_what_cannot_be_traced_is_refused_with_the_reason() -> None:
    class Curious(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.body(x) if float(x.sum()) > 0 else x
            return found

    with pytest.raises(InputError, match="cannot run on tensors without data"):
        trace_module(Curious(), (torch.zeros(2, 4),))
    with pytest.raises(InputError, match="must hold a tensor"):
        trace_module(nn.Linear(2, 2), ())
    with pytest.raises(InputError, match="must return a module"):
        trace_builder(lambda: nn.Linear(2, 2), "x")  # type: ignore[arg-type, return-value]


def test_a_single_block_is_a_layer_and_nothing_else_is_refused() -> None:
    found = graph_of("x", [TracedBlock(name="Linear", single=True, weights=4, operators=())], 2)
    assert found.layers == (0,)
    with pytest.raises(InputError, match="at least one layer"):
        graph_of("x", [TracedBlock(name="Embedding", single=True, table=True, weights=4)], 2)


def test_the_folder_of_the_caller_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_network_file.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(4, 4), (torch.zeros(2, 4),)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert trace_builder(load_builder("my_network_file:make"), "mine").parameters == 20
