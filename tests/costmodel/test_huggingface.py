"""config.json files in old and new spellings: sizes, habits of the families, refusals."""

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel import catalog
from costmodel.errors import InputError
from costmodel.graph import build_graph
from costmodel.huggingface import known_types, model_from_config, read_model
from costmodel.spec import ModelSpec

Config = dict[str, Any]


def read(config: Config) -> ModelSpec:
    return model_from_config(config, name="m", file="config.json")


def parameters(config: Config) -> int:
    return build_graph(read(config)).parameters


def catalog_config(name: str) -> Config:
    return catalog.model_config(name)


def without(config: Config, *names: str) -> Config:
    return {key: value for key, value in config.items() if key not in names}


def test_a_folder_with_a_config_gives_the_model_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "Llama-2-7b-hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(catalog_config("llama-2-7b")))
    for path in (folder, folder / "config.json"):
        model = read_model(path)
        assert model.name == "Llama-2-7b-hf"
        assert build_graph(model).parameters == 6738415616
        assert model.source.endswith("config.json")


def test_a_file_of_another_name_gives_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(catalog_config("gpt2")))
    assert read_model(file).name == "mine"


@pytest.mark.parametrize(
    ("name", "omitted"),
    [
        ("llama-2-7b", ("num_key_value_heads", "head_dim", "tie_word_embeddings")),
        ("gpt2", ("n_inner", "n_positions", "tie_word_embeddings")),
        ("qwen2.5-7b", ("tie_word_embeddings",)),
        ("qwen3-8b", ("head_dim", "tie_word_embeddings")),
        ("qwen3-30b-a3b", ("head_dim", "decoder_sparse_step", "num_experts_per_tok")),
        ("mixtral-8x7b", ("num_local_experts", "num_experts_per_tok", "tie_word_embeddings")),
        ("gemma-7b", ("head_dim", "tie_word_embeddings")),
        ("gemma-2-9b", ("head_dim", "tie_word_embeddings")),
        (
            "gpt-oss-120b",
            ("attention_bias", "head_dim", "num_local_experts", "num_experts_per_tok"),
        ),
        ("gpt-neox-20b", ("attention_bias", "tie_word_embeddings")),
        ("falcon-40b", ("new_decoder_architecture", "tie_word_embeddings")),
        ("bert-base", ("max_position_embeddings", "type_vocab_size", "tie_word_embeddings")),
        ("vit-base-16", ("image_size", "patch_size", "num_channels")),
        ("t5-small", ("d_kv", "num_decoder_layers", "feed_forward_proj", "tie_word_embeddings")),
        ("bloom-176b", ("tie_word_embeddings",)),
        ("deepseek-v3", ("n_routed_experts", "n_shared_experts", "first_k_dense_replace")),
        ("glm-4.5-air", ("n_shared_experts", "first_k_dense_replace", "tie_word_embeddings")),
    ],
)
def test_fields_equal_to_the_class_default_may_be_left_out(
    name: str, omitted: tuple[str, ...]
) -> None:
    config = catalog_config(name)
    assert parameters(without(config, *omitted)) == parameters(config)
    nulled = config | dict.fromkeys(omitted)
    assert parameters(nulled) == parameters(config)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("qwen3-235b-a22b", "num_local_experts", "num_experts"),
        ("bloom-176b", "hidden_size", "n_embed"),
        ("bloom-176b", "n_layer", "num_hidden_layers"),
        ("falcon-40b", "num_hidden_layers", "n_layer"),
        ("falcon-40b", "num_attention_heads", "n_head"),
        ("gpt2", "n_embd", "hidden_size"),
        ("t5-large", "num_heads", "num_attention_heads"),
    ],
)
def test_old_and_new_spellings_mean_the_same(name: str, old: str, new: str) -> None:
    config = catalog_config(name)
    renamed = {new if key == old else key: value for key, value in config.items()}
    assert read(renamed) == read(config)


def test_new_names_of_type_and_rotation_are_read_over() -> None:
    config = catalog_config("llama-3.1-8b")
    modern = config | {"dtype": "bfloat16", "rope_parameters": {"rope_theta": 500000.0}}
    ancient = config | {"torch_dtype": "bfloat16", "rope_theta": 500000.0, "rope_scaling": None}
    assert read(modern) == read(ancient) == read(config)


def test_queries_of_qwen2_have_biases_although_no_field_says_so() -> None:
    attention = read(catalog_config("qwen2.5-7b")).kinds[0].attention
    assert attention is not None
    assert (attention.qkv_bias, attention.out_bias) == (True, False)


def test_latent_attention_ignores_the_head_dim_of_the_file() -> None:
    config = catalog_config("deepseek-v3")
    attention = read(config).kinds[0].attention
    assert attention is not None
    assert attention.latent
    assert (attention.qk_width, attention.value_width) == (128 * 192, 128 * 128)
    assert parameters(without(config, "head_dim")) == parameters(config)


def test_deepseek_starts_with_dense_layers() -> None:
    model = read(catalog_config("deepseek-v3"))
    assert [kind.name for kind in model.kinds] == ["dense", "moe"]
    assert model.layers == (0,) * 3 + (1,) * 58


def test_prediction_layers_are_noted_and_left_out() -> None:
    config = catalog_config("deepseek-v3")
    for spelling in ("num_nextn_predict_layers", "num_mtp_layers"):
        model = read(config | {spelling: 1})
        assert build_graph(model).parameters == 671026404352
        assert any("multi-token-prediction" in note for note in model.notes)


def test_qwen_mixes_dense_and_sparse_layers_by_step_and_list() -> None:
    config = catalog_config("qwen3-30b-a3b") | {"num_hidden_layers": 6}
    by_step = read(config | {"decoder_sparse_step": 2})
    assert [by_step.kinds[kind].name for kind in by_step.layers] == ["dense", "moe"] * 3
    by_list = read(config | {"mlp_only_layers": [0, 1]})
    assert [by_list.kinds[kind].name for kind in by_list.layers] == ["dense"] * 2 + ["moe"] * 4


def test_gemma_2_alternates_windows_and_gemma_3_slides_five_of_six() -> None:
    two = read(catalog_config("gemma-2-9b"))
    assert two.layers[:4] == (0, 1, 0, 1)
    assert [kind.attention.window for kind in two.kinds if kind.attention] == [4096, None]
    three = read(catalog_config("gemma-3-27b"))
    windows = [kind.attention.window for kind in three.kinds if kind.attention]
    assert windows == [1024, None]
    assert three.layers[:12] == ((0,) * 5 + (1,)) * 2


def test_layer_types_of_new_files_rule_over_the_pattern() -> None:
    config = catalog_config("gemma-2-9b") | {"num_hidden_layers": 3, "sliding_window": 512}
    types = ["full_attention", "sliding_attention", "full_attention"]
    model = read(config | {"layer_types": types})
    assert [model.kinds[kind].name for kind in model.layers] == ["dense", "dense-window", "dense"]


def test_gpt_oss_has_sinks_biases_and_alternating_windows() -> None:
    model = read(catalog_config("gpt-oss-20b"))
    first, second = (kind.attention for kind in model.kinds)
    assert first is not None
    assert second is not None
    assert (first.window, second.window) == (128, None)
    assert first.sinks
    assert first.out_bias


def test_windows_of_mistral_are_its_class_default_and_qwens_are_off() -> None:
    mistral = read(catalog_config("mistral-7b")).kinds[0].attention
    assert mistral is not None
    assert mistral.window == 4096
    config = catalog_config("qwen2.5-7b") | {"sliding_window": 131072, "max_window_layers": 28}
    qwen = read(config | {"use_sliding_window": False}).kinds[0].attention
    assert qwen is not None
    assert qwen.window is None
    slid = read(config | {"use_sliding_window": True, "max_window_layers": 20})
    assert slid.layers == (0,) * 20 + (1,) * 8


def test_multimodal_gemma_3_is_read_by_its_text_part_with_class_defaults() -> None:
    text: Config = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    text |= {"model_type": "gemma3_text", "sliding_window": 1024}
    model = read({"model_type": "gemma3", "text_config": text, "vision_config": {}})
    # 4B of Gemma 3: 3.88e9 text parameters (technical report, table 1: 675M embedding, 3209M others).
    assert build_graph(model).parameters == 3_880_263_168
    assert any("only the text part" in note for note in model.notes)


def test_t5_has_cross_attention_relative_bias_once_per_stack_and_its_own_head_width() -> None:
    model = read(catalog_config("t5-11b"))
    assert model.decoder_start == 24
    assert model.kinds[0].name == "encoder-first"
    decoder = next(kind for kind in model.kinds if kind.name == "decoder")
    assert decoder.cross_attention is not None
    assert decoder.cross_attention.head_dim * decoder.cross_attention.heads == 128 * 128
    buckets = [kind.attention.relative_buckets for kind in model.kinds if kind.attention]
    assert sum(bool(count) for count in buckets) == 2


def test_gated_t5_has_three_matrices_and_untied_embeddings() -> None:
    config = catalog_config("t5-small") | {"feed_forward_proj": "gated-gelu"}
    config |= {"tie_word_embeddings": False}
    grown = 12 * 512 * 2048 + 32128 * 512
    assert parameters(config) == 60506624 + grown


def test_vision_models_count_tokens_from_the_image_and_keep_pooler_or_classifier() -> None:
    model = read(catalog_config("vit-base-16"))
    assert model.positions == 14 * 14 + 1
    labels = {str(index): "label" for index in range(1000)}
    config = catalog_config("vit-base-16")
    config |= {"architectures": ["ViTForImageClassification"], "id2label": labels}
    assert parameters(config) == 86567656  # the published ViT-B/16 with its 1000-class head


def test_masked_bert_alone_has_neither_pooler_nor_sentence_head() -> None:
    config = catalog_config("bert-base") | {"architectures": ["BertForMaskedLM"]}
    assert parameters(config) == 109514298  # BertForMaskedLM of bert-base-uncased


def test_small_falcons_share_one_key_and_one_norm() -> None:
    model = read(catalog_config("falcon-7b"))
    attention = model.kinds[0].attention
    assert attention is not None
    assert attention.kv_heads == 1
    norms = [op for op in build_graph(model).kinds[0].operators if op.kind == "norm"]
    assert len(norms) == 1


def test_an_unknown_type_is_read_by_llamas_names_and_says_so() -> None:
    config = catalog_config("llama-3.1-8b") | {"model_type": "brandnew"}
    model = read(config)
    assert build_graph(model).parameters == 8030261248
    assert "'brandnew' is unknown" in model.notes[0]


def test_an_unknown_mixture_is_read_by_the_usual_names() -> None:
    config = catalog_config("mixtral-8x7b") | {"model_type": "brandnew"}
    assert parameters(config) == 46702792704


@pytest.mark.parametrize(
    "missing", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"]
)
def test_a_missing_size_is_refused_by_name(missing: str) -> None:
    config = catalog_config("llama-3.1-8b") | {"model_type": "brandnew"}
    with pytest.raises(InputError, match="unknown and read by llama's") as caught:
        read(without(config, missing, "head_dim"))
    assert caught.value.key == missing
    with pytest.raises(InputError, match="has no default") as known:
        read(without(catalog_config("llama-2-7b"), missing, "head_dim"))
    assert known.value.key == missing


@pytest.mark.parametrize(
    ("change", "key", "rule"),
    [
        ({"hidden_size": 0}, "hidden_size", "must lie in"),
        ({"hidden_size": -4096}, "hidden_size", "must lie in"),
        ({"hidden_size": 10**12}, "hidden_size", "must lie in"),
        ({"hidden_size": "4096"}, "hidden_size", "whole number"),
        ({"hidden_size": 4096.5}, "hidden_size", "whole number"),
        ({"hidden_size": True}, "hidden_size", "whole number"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers", "at most 10000"),
        (
            {"num_attention_heads": 33, "num_key_value_heads": None, "head_dim": None},
            "num_attention_heads",
            "must divide",
        ),
        ({"num_key_value_heads": 3}, "num_key_value_heads", "must divide"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings", "true or false"),
        ({"model_type": 7}, "model_type", "must be text"),
        ({"layer_types": ["full_attention"]}, "layer_types", "every layer"),
    ],
)
def test_impossible_values_are_refused_with_their_key(change: Config, key: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule) as caught:
        read({**catalog_config("llama-2-13b"), "num_key_value_heads": 40} | change)
    assert caught.value.key == key
    assert caught.value.file == "config.json"


def test_more_visits_than_experts_are_refused() -> None:
    with pytest.raises(InputError, match="must not exceed"):
        read(catalog_config("mixtral-8x7b") | {"num_experts_per_tok": 9})


def test_a_list_is_no_config() -> None:
    with pytest.raises(InputError, match="must be a mapping"):
        model_from_config([1], name="m", file="config.json")


def test_every_family_of_the_contract_has_a_reader() -> None:
    wanted = {"gpt2", "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "falcon"}
    wanted |= {"deepseek_v2", "deepseek_v3", "gemma", "gemma2", "gemma3", "phi3", "gpt_neox"}
    wanted |= {"bloom", "gpt_oss", "glm4_moe", "bert", "t5", "vit"}
    assert wanted <= set(known_types())
