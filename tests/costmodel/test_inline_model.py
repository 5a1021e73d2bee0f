"""Models written into scenarios: a catalog model changed, Hugging Face fields, own keys; and what is refused."""

from typing import Any

import pytest

from costmodel import catalog
from costmodel.errors import InputError
from costmodel.graph import build_graph
from costmodel.inline_model import model_from_mapping
from costmodel.spec import ModelSpec


def read(**mapping: Any) -> ModelSpec:
    return model_from_mapping(mapping, "s.yaml")


def parameters(**mapping: Any) -> int:
    return build_graph(read(**mapping)).parameters


def test_a_base_alone_is_the_catalog_model() -> None:
    model = read(base="llama-3.1-70b")
    assert model.kinds == catalog.model("llama-3.1-70b").kinds
    assert model.name == "llama-3.1-70b"


def test_a_base_may_be_cut_to_fewer_layers() -> None:
    model = read(base="llama-3.1-405b", layers=21)
    assert len(model.layers) == 21
    assert model.name == "llama-3.1-405b num_hidden_layers=21"
    assert len(read(base="gpt2", layers=3).layers) == 3
    assert read(base="t5-small", layers=4).decoder_start == 4
    assert read(base="deepseek-v3", layers=4, name="short").name == "short"


def test_fields_of_a_base_may_change_and_others_are_refused() -> None:
    assert read(base="llama-2-7b", vocab_size=32016).vocab == 32016
    with pytest.raises(InputError, match="nearest: vocab_size") as caught:
        read(base="llama-2-7b", vocab_sise=1)
    assert caught.value.key == "model.vocab_sise"
    with pytest.raises(InputError, match="nearest: llama-3"):
        read(base="llama-3-70", layers=2)


def test_hugging_face_fields_are_read_like_a_file() -> None:
    config = catalog.model_config("qwen3-30b-a3b")
    assert parameters(**config) == catalog.expected_parameters("qwen3-30b-a3b")
    unknown = {key: value for key, value in config.items() if key != "model_type"}
    assert "llama's field names" in read(**unknown, name="mine").notes[0]


def test_own_keys_default_to_gpt_2s_style() -> None:
    # Megatron's count 12 l h^2 (1 + 13/(12 h)) + (V + s) h and the last norm (arXiv 2104.04473, equation 2).
    assert parameters(layers=12, hidden=768, heads=12, vocab=50257, positions=1024) == 124439808


def test_a_gate_brings_llamas_style() -> None:
    own = parameters(layers=32, hidden=4096, heads=32, vocab=32000, ffn=11008, gated=True)
    assert own == catalog.expected_parameters("llama-2-7b")
    default = read(layers=2, hidden=4096, heads=32, vocab=32000, gated=True)
    assert default.kinds[0].mlp is not None
    assert default.kinds[0].mlp.ffn == 10880  # int(8 h / 3 / 64) * 64


def test_own_keys_describe_mixtures_and_grouped_attention() -> None:
    own = parameters(
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        vocab=32000,
        gated=True,
        ffn=14336,
        experts=8,
        topk=2,
    )
    assert own == catalog.expected_parameters("mixtral-8x7b")
    model = read(
        layers=4, hidden=64, heads=4, vocab=100, experts=4, topk=1, dense_layers=1, shared_ffn=32
    )
    assert [model.kinds[kind].name for kind in model.layers] == ["dense", "moe", "moe", "moe"]


def test_frozen_layers_come_first() -> None:
    model = read(layers=4, hidden=64, heads=4, vocab=100, frozen_layers=3)
    assert [model.kinds[kind].frozen for kind in model.layers] == [True, True, True, False]


def test_qwen_like_own_keys() -> None:
    own = parameters(
        layers=28,
        hidden=1024,
        heads=16,
        kv_heads=8,
        head_dim=128,
        ffn=3072,
        gated=True,
        qk_norm=True,
        tied=True,
        vocab=151936,
    )
    assert own == catalog.expected_parameters("qwen3-0.6b")


@pytest.mark.parametrize(
    ("change", "key", "text"),
    [
        ({"layer": 2}, "model.layer", "nearest: layers"),
        ({"layers": 0}, "model.layers", "must lie in"),
        ({"layers": 20000}, "model.layers", "at most 10000"),
        ({"layers": "two"}, "model.layers", "whole number"),
        ({"heads": 5}, "model.heads", "must divide the width 64"),
        ({"kv_heads": 3}, "model.kv_heads", "must divide the 4 heads"),
        ({"vocab": None}, "model.vocab", "is missing"),
        ({"norm": "batchnorm"}, "model.norm", "kind of norm"),
        ({"gated": 1}, "model.gated", "true or false"),
        ({"experts": 4, "topk": 8}, "model.topk", "must not exceed the 4 experts"),
        ({"experts": 4}, "model.topk", "is missing"),
        ({"window": -1}, "model.window", "must lie in"),
    ],
)
def test_faults_are_told_by_key(change: dict[str, Any], key: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        read(**{"layers": 2, "hidden": 64, "heads": 4, "vocab": 100} | change)
    assert text in str(caught.value)
    assert caught.value.key == key
    assert caught.value.file == "s.yaml"


def test_faults_of_fields_are_told_below_the_models_key() -> None:
    with pytest.raises(InputError) as caught:
        read(model_type="llama", hidden_size=64)
    assert caught.value.key == "model.num_hidden_layers"
