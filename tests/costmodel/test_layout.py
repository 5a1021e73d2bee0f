"""Tests of Megatron's layout string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.errors import InputError, UnsupportedError
from costmodel.layout import Layout, check_layout, layout_of, parse_layout, placed_counts

# Published for 80 layers on 8 ranks of 5 chunks each (NVIDIA-NeMo/Megatron-Bridge pull request 5391).
PUBLISHED = "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL"


def test_the_published_example_reads_and_prints_as_itself() -> None:
    layout = parse_layout(PUBLISHED)
    check_layout(layout, layers=80, pp=8)
    assert layout.layer_counts() == (2, *(2,) * 34, 3, 2, 2, 2, 1)
    assert layout.text == PUBLISHED


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("EttL", ("EttL",)),
        ("E,t|t,L", ("Et", "tL")),
        ("Ettt|(tt|)*2,m|L", ("Ettt", "tt", "tt", "m", "L")),
        ("E|t*3||L", ("E", "ttt", "", "L")),
        ("E(|tt)*2,L", ("E", "tt", "ttL")),
        ("Et|*3L", ("Et", "", "", "L")),
    ],
)
def test_a_string_unrolls_to_stages(text: str, stages: tuple[str, ...]) -> None:
    assert parse_layout(text).stages == stages


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    mtp=st.integers(0, 2),
)
def test_every_printed_layout_is_read_back(counts: list[int], mtp: int) -> None:
    layout = layout_of(counts, mtp)
    assert parse_layout(layout.text) == layout
    assert placed_counts(layout) == tuple(counts)


@pytest.mark.parametrize(
    "text",
    [
        "Ex|L",
        "E t|L",
        "E(t|L",
        "E(t|)L",
        "E((t|)*2)*2,L",
        "E()*2,L",
        "Et*0L",
        "Et**2L",
        "E(t*99999)*2,L",
    ],
)
def test_text_outside_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="pipeline_model_parallel_layout: must"):
        parse_layout(text)


@pytest.mark.parametrize("count", ["999999999999", "99999999"])
def test_a_huge_repetition_is_refused_before_it_is_built(count: str) -> None:
    with pytest.raises(InputError, match="must"):
        parse_layout(f"E(t|)*{count}L")


@pytest.mark.parametrize(
    ("text", "pp", "mtp", "rule"),
    [
        ("Ett|tt|L", 2, 0, "multiple of pp"),
        ("tEtt|tL", 2, 0, "start with the embedding"),
        ("Ett|Ltt", 2, 0, "end with the loss"),
        ("Ett|EttL", 2, 0, "embedding E once"),
        ("EttL|ttL", 2, 0, "loss L once"),
        ("Ett|tL", 2, 0, "hold 4 decoder layers"),
        ("Ett|ttmL", 2, 0, "hold 0 prediction layers"),
        ("Ettm|ttL", 2, 1, "before m"),
        ("Ett|tt|m|mL", 4, 2, "share one stage"),
        ("Ettttm|L", 2, 1, "share one stage"),
        ("Ett|ttm||L", 2, 1, "share one stage"),
    ],
)
def test_each_rule_of_megatron_is_named_when_broken(
    text: str, pp: int, mtp: int, rule: str
) -> None:
    with pytest.raises(InputError, match=rule):
        check_layout(parse_layout(text), layers=4, pp=pp, mtp_layers=mtp)


@pytest.mark.parametrize(
    ("text", "pp", "mtp"),
    [("Ett|ttL", 2, 0), ("Ett|tt|m|L", 4, 1), ("EttttmmL", 1, 2), ("Et|t|t|tmL", 2, 1)],
)
def test_a_layout_that_keeps_every_rule_passes(text: str, pp: int, mtp: int) -> None:
    check_layout(parse_layout(text), layers=4, pp=pp, mtp_layers=mtp)


@pytest.mark.parametrize("text", ["|EttL", "Ett|ttm|L", "Ett|ttL|"])
def test_ends_that_the_cost_model_does_not_describe_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match="embedding must stand"):
        placed_counts(parse_layout(text))


def test_equal_stages_are_folded_and_ends_kept_apart() -> None:
    assert Layout(stages=("Et", "t", "t", "tL")).text == "Et|(t|)*2,tL"
    assert layout_of((1,)).text == "EtL"
    assert layout_of((0, 0, 0, 2)).text == "E|(|)*2,t*2L"
