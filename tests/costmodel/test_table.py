"""Table files: format, look-up, appending."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.errors import InputError
from costmodel.events import CommEvent, ComputeEvent, Event, parse_event
from costmodel.table import Entry, Price, Source, Table, append, write, write_wanted

MATMUL = ComputeEvent(op="matmul", shape=(1024, 4096, 2048), dtype="bf16")
REDUCE = CommEvent(collective="all_reduce", bytes=1 << 20, group_size=8, per_node=8, level=0)
SOURCE = Source(device="toy", libraries={"torch": "2.13"}, date="2026-01-01", origin="test")


def _table(*pairs: tuple[Event, float]) -> Table:
    entries = tuple(Entry(event=event, seconds=seconds) for event, seconds in pairs)
    return Table(sources=(SOURCE,), entries=entries)


@pytest.mark.parametrize("event", [MATMUL, REDUCE, replace(MATMUL, direction="backward")])
def test_key_round_trip(event: Event) -> None:
    assert parse_event(event.key) == event


@pytest.mark.parametrize(
    "key", ["", "matmul", "a/1x2/bf16/sideways", "gather/1B/2ranks/2pernode/level0"]
)
def test_unknown_keys_are_refused(key: str) -> None:
    with pytest.raises(InputError, match="event"):
        parse_event(key)


def test_append_then_load_returns_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    append(path, SOURCE, [Entry(event=MATMUL, seconds=2e-3, samples=5, spread=0.01)])
    append(path, replace(SOURCE, device="other"), [Entry(event=REDUCE, seconds=1e-4)])
    append(path, SOURCE, [Entry(event=MATMUL, seconds=3e-3)])
    table = Table.load(path)
    assert table.lookup(MATMUL) == Price(seconds=3e-3, provenance="measured")
    assert [source.device for source in table.sources] == ["toy", "other"]
    assert {entry.event: entry.source for entry in table.entries} == {MATMUL: 0, REDUCE: 1}


def test_a_torn_last_line_is_ignored_and_mended(tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    append(path, SOURCE, [Entry(event=MATMUL, seconds=2e-3)])
    with path.open("a") as file:
        file.write('{"event": "all_red')
    assert len(Table.load(path).entries) == 1
    append(path, SOURCE, [Entry(event=REDUCE, seconds=1e-4)])
    assert len(Table.load(path).entries) == 2


def test_failed_events_have_no_price_and_are_not_missing(tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    append(path, SOURCE, [Entry(event=MATMUL, seconds=None, failed="out of memory")])
    table = Table.load(path)
    assert table.lookup(MATMUL) is None
    assert table.missing({MATMUL: 3, REDUCE: 2}) == {REDUCE: 2}


def test_wanted_events_keep_their_counts(tmp_path: Path) -> None:
    path = tmp_path / "wanted.json"
    write_wanted(path, {MATMUL: 96, REDUCE: 4})
    assert Table.load(path).wanted == {MATMUL: 96, REDUCE: 4}


def test_write_sorts_and_loads_the_same(tmp_path: Path) -> None:
    table = _table((REDUCE, 1e-4), (MATMUL, 2e-3))
    write(tmp_path / "t.json", table)
    assert {e.event for e in Table.load(tmp_path / "t.json").entries} == {MATMUL, REDUCE}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must begin"),
        ('{"format": "other"}\n', "must begin"),
        ('{"format": "shardplan-table", "version": 9}\n', "another version"),
        ('{"format": "shardplan-table", "version": 1}\nnonsense\n', "one JSON object"),
        ('{"format": "shardplan-table", "version": 1}\n[1]\n', "one JSON object"),
        (
            '{"format": "shardplan-table", "version": 1}\n{"event": "matmul/1x1x1/bf16/forward", "source": 0, "seconds": 1}\n',
            "index of a source",
        ),
        (
            (
                '{"format": "shardplan-table", "version": 1}\n{"source": 0, "device": "d"}\n'
                '{"event": "matmul/1x1x1/bf16/forward", "source": 0, "seconds": -1}\n'
            ),
            "positive number",
        ),
        (
            '{"format": "shardplan-table", "version": 1}\n{"device": "d", "color": 1}\n',
            "unknown key",
        ),
    ],
)
def test_broken_files_are_refused_with_the_rule(tmp_path: Path, text: str, rule: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=rule):
        Table.load(path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Table.load(tmp_path / "none.json")


def test_interpolation_is_linear_in_logarithms_inside_and_silent_outside() -> None:
    table = _table((REDUCE, 1e-4), (replace(REDUCE, bytes=1 << 24), 16e-4))
    inside = table.lookup(replace(REDUCE, bytes=1 << 22))
    assert inside is not None
    assert inside.provenance == "interpolated"
    assert inside.seconds == pytest.approx(4e-4)
    for size in (1 << 19, 1 << 25):
        assert table.lookup(replace(REDUCE, bytes=size)) is None
    assert table.lookup(replace(REDUCE, bytes=1 << 22, group_size=4)) is None


def test_operators_interpolate_along_one_size_only() -> None:
    table = _table((MATMUL, 1e-3), (replace(MATMUL, shape=(4096, 4096, 2048)), 4e-3))
    price = table.lookup(replace(MATMUL, shape=(2048, 4096, 2048)))
    assert price is not None
    assert price.seconds == pytest.approx(2e-3)
    assert table.lookup(replace(MATMUL, shape=(2048, 4096, 1024))) is None
    assert table.lookup(replace(MATMUL, shape=(2048, 4096, 2048), dtype="fp32")) is None


@given(
    st.integers(1, 1 << 30), st.lists(st.integers(1, 1 << 30), min_size=2, max_size=6, unique=True)
)
def test_interpolated_prices_lie_between_their_neighbours(size: int, measured: list[int]) -> None:
    table = _table(*((replace(REDUCE, bytes=n), 1e-6 + n * 1e-11) for n in measured))
    price = table.lookup(replace(REDUCE, bytes=size))
    if price is None:
        assert size < min(measured) or size > max(measured)
    else:
        assert (
            1e-6 + min(measured) * 1e-11
            <= price.seconds
            <= (1e-6 + max(measured) * 1e-11) * (1 + 1e-9)
        )


def test_larger_groups_follow_the_ring_law() -> None:
    table = _table((replace(REDUCE, bytes=1024), 1e-5), (REDUCE, 1.1e-4))
    price = table.scaled(replace(REDUCE, group_size=16, per_node=16))
    assert price is not None
    assert price.provenance == "analytic"
    assert price.seconds == pytest.approx(1e-5 * 15 / 7 + 1e-4 * (15 / 16) / (7 / 8))
    assert table.scaled(replace(REDUCE, group_size=4, per_node=4)) is None


def test_merge_lets_the_first_table_win() -> None:
    merged = Table.merge([_table((MATMUL, 1.0)), _table((MATMUL, 2.0), (REDUCE, 3.0))])
    prices = [merged.lookup(MATMUL), merged.lookup(REDUCE)]
    assert [price.seconds for price in prices if price] == [1.0, 3.0]
    assert [entry.source for entry in merged.entries] == [0, 1]
