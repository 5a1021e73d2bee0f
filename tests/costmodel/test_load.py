"""Tests of the room where files become plain values."""

from pathlib import Path

import pytest

from costmodel.errors import InputError
from costmodel.load import (
    MAX_BYTES,
    parse_json,
    parse_yaml,
    read_data,
    read_json,
    read_yaml,
    write_yaml,
)
from costmodel.units import parse_number

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(97 + i)}: &{chr(97 + i)} [{','.join(['*' + chr(96 + i)] * 10)}]\n" for i in range(1, 9)
)


def test_yaml_becomes_plain_values(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("model: gpt2\ntraining: {global_batch: 8}\nlist: [1, 2.5, true, null]\n")
    assert read_yaml(file) == {
        "model": "gpt2",
        "training": {"global_batch": 8},
        "list": [1, 2.5, True, None],
    }


def test_exponents_without_a_dot_stay_text_that_units_can_read() -> None:
    value = parse_yaml("tokens: 1e9")
    assert value == {"tokens": "1e9"}
    assert parse_number("1e9", "tokens") == 1e9


def test_dates_stay_text() -> None:
    assert parse_yaml("date: 2025-01-31") == {"date": "2025-01-31"}


def test_an_empty_file_is_none() -> None:
    assert parse_yaml("") is None


def test_merge_keys_and_small_aliases_work() -> None:
    text = "base: &b {x: 1, y: 2}\nderived: {<<: *b, y: 3}\n"
    assert parse_yaml(text) == {"base": {"x": 1, "y": 2}, "derived": {"x": 1, "y": 3}}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: 1\na: 2\n", "'a' in line 2 appears twice"),
        ("a: {b: 1, b: 2}", "'b' in line 1 appears twice"),
        ("a: [1, 2", "is not valid YAML"),
        ("a: !!python/object:os.system x", "is not valid YAML"),
        (BOMB, "must expand to at most"),
        ("a: &a [*a]", "must not contain itself"),
        ("[" * 500, "must nest at most"),
        ("a: 1\n---\nb: 2\n", "is not valid YAML"),
        ("a: " + "9" * 5000, "is not valid YAML"),
        ("a: !!int x", "is not valid YAML"),
        ("\x00", "is not valid YAML"),
        ("{[1]: 2, {a: b}: c}", "is not valid YAML"),
    ],
)
def test_wrong_yaml_is_refused_with_the_rule(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=r"^file\.yaml: ") as caught:
        parse_yaml(text, "file.yaml")
    assert rule in str(caught.value)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{"a": 1, "a": 2}', "a: appears twice"),
        ('{"a": NaN}', "must be a finite number"),
        ("9" * 5000, "is not valid JSON"),
        ('{"a": }', "is not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_wrong_json_is_refused_with_the_rule(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=r"^file\.json: ") as caught:
        parse_json(text, "file.json")
    assert rule in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.yaml: cannot be read: No such file"):
        read_yaml(tmp_path / "none.yaml")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_yaml(tmp_path)


def test_a_file_over_the_size_bound_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(InputError, match="must be at most"):
        read_yaml(file)


def test_bytes_that_are_no_utf8_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(InputError, match="must be UTF-8 text"):
        read_yaml(file)


def test_the_ending_selects_the_reader(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{\t"rate": 1e9}')
    assert read_data(file) == read_json(file) == {"rate": 1e9}


def test_what_is_written_is_read_back_in_order() -> None:
    value = {
        "zeta": 1,
        "alpha": ["1e9", 0.5, None, True],
        "inner": {"text": "yes", "date": "2025-01-31"},
    }
    text = write_yaml(value)
    assert parse_yaml(text) == value
    assert text.index("zeta") < text.index("alpha")
