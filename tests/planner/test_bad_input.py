"""Broken scenario files: each is refused with exit code 2 and one clear line, never a traceback."""

from pathlib import Path

import pytest

from costmodel.errors import InputError
from planner.scenario_file import load_scenario

GOOD = """
model: llama-3.1-8b
cluster: {name: dgx-h100, gpus: 8}
training: {global_batch: 64, sequence: 4096, framework: megatron, precision: bf16}
limits: {memory: 70GiB}
search: {tp: [1, 2]}
"""


def edited(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


TEXTS: dict[str, tuple[str, str]] = {
    # name: (file, words the message must hold)
    "empty": ("", "mapping"),
    "only_a_list": ("- 1\n- 2\n", "mapping"),
    "only_text": ("hello\n", "mapping"),
    "number": ("42\n", "mapping"),
    "no_model": (edited("model: llama-3.1-8b\n", ""), "model"),
    "no_cluster": (edited("cluster: {name: dgx-h100, gpus: 8}\n", ""), "cluster"),
    "unknown_key": (GOOD + "modle: x\n", "model"),
    "unknown_training_key": (edited("sequence:", "sequnce:"), "sequence"),
    "unknown_limit": (edited("memory:", "memroy:"), "memory"),
    "unknown_decision": (edited("tp:", "tpp:"), "tp"),
    "unknown_model": (edited("llama-3.1-8b", "llama-3.1-9b"), "llama-3.1-8b"),
    "model_is_a_number": (edited("llama-3.1-8b", "7"), "model"),
    "model_is_a_list": (edited("llama-3.1-8b", "[a, b]"), "model"),
    "missing_config": (edited("llama-3.1-8b", "no/such/config.json"), "existing file"),
    "unknown_cluster": (edited("dgx-h100", "dgx-h101"), "dgx-h100"),
    "cluster_is_a_number": (edited("{name: dgx-h100, gpus: 8}", "8"), "cluster"),
    "cluster_key": (edited("gpus: 8", "gpus: 8, speed: 3"), "speed"),
    "zero_gpus": (edited("gpus: 8", "gpus: 0"), "gpus"),
    "negative_gpus": (edited("gpus: 8", "gpus: -8"), "gpus"),
    "half_gpus": (edited("gpus: 8", "gpus: 7.5"), "gpus"),
    "text_gpus": (edited("gpus: 8", "gpus: many"), "number"),
    "true_gpus": (edited("gpus: 8", "gpus: true"), "gpus"),
    "huge_gpus": (edited("gpus: 8", "gpus: 99999999999"), "gpus"),
    "list_of_bad_gpus": (edited("gpus: 8", "gpus: [8, x]"), "gpus"),
    "zero_batch": (edited("global_batch: 64", "global_batch: 0"), "global_batch"),
    "negative_batch": (edited("global_batch: 64", "global_batch: -1"), "global_batch"),
    "half_batch": (edited("global_batch: 64", "global_batch: 1.5"), "global_batch"),
    "text_batch": (edited("global_batch: 64", "global_batch: big"), "global_batch"),
    "huge_batch": (edited("global_batch: 64", "global_batch: 1e99"), "global_batch"),
    "infinite_batch": (edited("global_batch: 64", "global_batch: .inf"), "global_batch"),
    "nan_batch": (edited("global_batch: 64", "global_batch: .nan"), "global_batch"),
    "null_batch": (edited("global_batch: 64", "global_batch: null"), "global_batch"),
    "list_batch": (edited("global_batch: 64", "global_batch: [1]"), "global_batch"),
    "zero_sequence": (edited("sequence: 4096", "sequence: 0"), "sequence"),
    "text_sequence": (edited("sequence: 4096", "sequence: 4k"), "sequence"),
    "unknown_framework": (edited("megatron", "megatorn"), "megatron"),
    "framework_number": (edited("framework: megatron", "framework: 3"), "framework"),
    "unknown_precision": (edited("bf16", "bf17"), "bf16"),
    "training_is_text": (
        edited("{global_batch: 64, sequence: 4096, framework: megatron, precision: bf16}", "fast"),
        "training",
    ),
    "training_is_a_list": (
        edited("{global_batch: 64, sequence: 4096, framework: megatron, precision: bf16}", "[1]"),
        "training",
    ),
    "zero_tokens": (edited("precision: bf16", "precision: bf16, tokens: 0"), "tokens"),
    "text_tokens": (edited("precision: bf16", "precision: bf16, tokens: lots"), "tokens"),
    "unknown_attention": (
        edited("precision: bf16", "precision: bf16, attention: slow"),
        "attention",
    ),
    "memory_without_sense": (edited("70GiB", "lots"), "memory"),
    "memory_unit": (edited("70GiB", "70GX"), "memory"),
    "memory_bits": (edited("70GiB", "70Gb/s"), "memory"),
    "negative_memory": (edited("70GiB", "-70GiB"), "memory"),
    "zero_memory": (edited("70GiB", "0"), "memory"),
    "more_memory_than_there_is": (edited("70GiB", "700GiB"), "memory"),
    "memory_list": (edited("70GiB", "[1, 2]"), "memory"),
    "batch_above_limit": (edited("memory: 70GiB", "max_global_batch: 32"), "max_global_batch"),
    "search_text": (edited("{tp: [1, 2]}", "all"), "search"),
    "tp_text": (edited("[1, 2]", "two"), "tp"),
    "tp_negative": (edited("[1, 2]", "-2"), "tp"),
    "tp_empty": (edited("[1, 2]", "[]"), "tp"),
    "tp_float": (edited("[1, 2]", "1.5"), "tp"),
    "zero_stage_4": (edited("tp: [1, 2]", "zero: 4"), "zero"),
    "unknown_schedule": (edited("tp: [1, 2]", "schedule: 2f2b"), "1f1b"),
    "unknown_recompute": (edited("tp: [1, 2]", "recompute: some"), "selective"),
    "sp_text": (edited("tp: [1, 2]", "sequence_parallel: maybe"), "sequence_parallel"),
    "unknown_system": (edited("tp: [1, 2]", "system: dpp"), "ddp"),
    "bound_key": (edited("tp: [1, 2]", "tp: {mn: 1}"), "min"),
    "offload_above_one": (edited("tp: [1, 2]", "offload_optimizer: 2"), "offload_optimizer"),
    "missing_table": (GOOD + "prices: [no/such/table.json]\n", "existing file"),
    "prices_text": (GOOD + "prices: table.json\n", "prices"),
    "missing_calibration": (GOOD + "calibration: cal.yaml\n", "existing file"),
    "wrong_schema": (GOOD + "schema: 2\n", "schema"),
    "duplicate_key": (GOOD + "model: llama-3.1-70b\n", "model"),
    "tab": ("model:\tllama\n\t- x\n", "YAML"),
    "unclosed": ("model: {a: [1, 2\n", "YAML"),
    "bomb": (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{c}: &{c} [{','.join([f'*{p}'] * 9)}]\n"
            for p, c in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "",
    ),
    "cycle": ("model: &m {x: *m}\n", ""),
    "tag": ("model: !!python/object/apply:os.system ['true']\n", ""),
    "two_documents": (GOOD + "---\n" + GOOD, ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_broken_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    text, words = TEXTS[name]
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    message = str(caught.value)
    assert words in message
    assert str(path) in message
    assert "\n" not in message.strip()


def test_binary_junk_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_bytes(bytes(range(256)) * 40)
    with pytest.raises(InputError):
        load_scenario(path)


def test_a_file_of_50_mb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    with pytest.raises(InputError, match="1000000 bytes"):
        load_scenario(path)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(InputError):
            load_scenario(path)


def test_the_good_file_loads(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(GOOD)
    scenario = load_scenario(path)
    assert scenario.cluster.gpus == 8
    assert scenario.bound("tp").allowed == (1, 2)


def test_numbers_that_yaml_reads_as_text_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(edited("precision: bf16", "precision: bf16, tokens: 1e12"))
    assert load_scenario(path).training.tokens == 1e12
