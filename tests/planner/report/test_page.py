"""The page as text: whole, without network, and deaf to names that try to become markup."""

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.schedules import Shape
from costmodel.simulator import simulate
from costmodel.timeline import PipelineWork
from planner.batch.answer import BatchResult, Row
from planner.batch.tasks import Outcome
from planner.pool.model import BatchMode
from planner.report.axes import Scale, shortened
from planner.report.batch import batch_sections
from planner.report.markup import Markup, join, json_data, tag
from planner.report.page import render
from planner.report.plans import plans_sections
from planner.report.timeline import timeline_section
from planner.report.whatif import whatif_section
from tests.planner.report.pages import HOSTILE, answer, plan_json, sweep, whole_page


class Reader(HTMLParser):
    """Checks that elements close in order, and collects them with their texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


def test_the_page_is_well_formed_and_names_no_address() -> None:
    page = whole_page()
    reader = Reader(page)
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "http" not in page.replace("http-equiv", "")
    assert "url(" not in re.sub(r"url\(#fill-\d+\)", "", page)
    assert len(reader.named("script")) == 2
    assert all(svg.get("aria-label") or svg.get("aria-hidden") for svg in reader.named("svg"))


def test_a_hostile_name_stays_text() -> None:
    page = whole_page(HOSTILE)
    reader = Reader(page)
    plain = Reader(whole_page())
    assert [name for name, _ in reader.elements] == [name for name, _ in plain.elements]
    assert not reader.named("img")
    assert not any("onload" in attributes for _, attributes in reader.elements)
    assert any(HOSTILE in text for text in reader.texts)


@given(st.text(max_size=60))
def test_any_text_comes_back_unchanged_from_content_and_attributes(text: str) -> None:
    text = text.replace("\r", "").replace("\0", "")
    reader = Reader(tag("p", text, title=text))
    assert "".join(reader.texts) == text
    assert reader.elements == [("p", {"title": text})]


@given(st.recursive(st.text(max_size=20), lambda inner: st.lists(inner, max_size=3)))
def test_any_data_comes_back_unchanged_from_its_script(value: object) -> None:
    reader = Reader(json_data(value))
    assert json.loads("".join(reader.texts)) == value
    assert "<" not in "".join(reader.texts)


def test_markup_is_joined_as_it_is_and_text_is_not() -> None:
    assert join([Markup("<b>"), "<b>", ["&"]]) == "<b>&lt;b&gt;&amp;"
    assert tag("br") == "<br>"
    assert (
        tag("i", class_="a", data_x=None, hidden=True, width=1.50)
        == '<i class="a" hidden width="1.5"></i>'
    )


def test_the_policy_admits_only_the_script_of_the_page() -> None:
    page = render("empty", [])
    policy = next(
        str(meta["content"]) for meta in Reader(page).named("meta") if "http-equiv" in meta
    )
    assert policy.startswith("default-src 'none'")
    assert "'unsafe-inline'" not in policy.split("script-src")[1]


def test_each_plan_has_its_row_and_its_bar() -> None:
    page = render("plans", plans_sections(answer()))
    for label in ("tp2 pp2 dp2", "tp4 pp2 dp2", "tp8 pp2 dp2"):
        assert page.count(label) >= 3
    assert "within 0.00% of that" in page
    assert "limit 40.0 GiB" in page


def test_no_plan_shows_what_would_help() -> None:
    empty = answer() | {"plans": [], "levers": ["4 GiB more per GPU"]}
    page = render("none", plans_sections(empty))
    assert "4 GiB more per GPU" in page
    assert "more memory block" in page


def test_a_sweep_draws_one_step_per_plan() -> None:
    body = whatif_section(sweep()).body
    path = re.search(r'<path d="([^"]+)" class="curve"', body)
    assert path
    assert (path[1].count("H"), path[1].count("V")) == (3, 2)
    assert body.count("<circle") == 3
    assert "limit now" in body


def test_variants_show_what_has_no_plan() -> None:
    variants = [
        {"label": "16", "iteration_s": 9.0, "plan": plan_json(1, 9.0, 2), "efficiency": 0.5},
        {"label": "8", "iteration_s": None, "plan": None, "error": None},
    ]
    body = whatif_section({"variants": variants}).body
    assert "no plan fits" in body
    assert "50%" in body
    assert "Nothing fits" in whatif_section({"steps": []}).body


def test_a_long_timeline_keeps_both_ends_and_says_so() -> None:
    work = PipelineWork(
        shape=Shape(schedule="1f1b", ranks=1, chunks=1, microbatches=40_000),
        forward_ns=(1,),
        backward_ns=(2,),
        weight_ns=(0,),
        transfer_ns=(0,),
        finish_ns=(5,),
    )
    body = timeline_section(simulate(work)).body
    assert "20,000 tasks of the steady middle are left out" in body
    data = json.loads(re.findall(r'class="timeline-data">(.*?)</script>', body)[0])
    assert len(data["ranks"][0]) == 5 * 60_000
    assert data["ranks"][0][:5] == [0, 0, 0, 0, 1]
    assert data["ranks"][0][-2:] == [119_998, 2]


def test_a_batch_shows_its_errors_in_their_rows() -> None:
    good = Outcome(answer=answer() | {"plans": [plan_json(1, 2.0, 2) | {"gpus": 64}]})
    rows = (
        Row(name="good", scenario="a.yaml", outcome=good, hours=3.0),
        Row(
            name=HOSTILE, scenario="b.yaml", outcome=Outcome(answer=None, error="bad"), error="bad"
        ),
    )
    page = render("batch", batch_sections(BatchResult(mode=BatchMode.EACH, rows=rows)))
    reader = Reader(page)
    assert {"good", "bad", HOSTILE} <= set(reader.texts)


def test_scales_give_round_ticks() -> None:
    scale = Scale(low=0.0, high=76.6, first=0.0, last=100.0)
    assert scale.ticks() == [0, 20, 40, 60]
    assert scale(38.3) == pytest.approx(50.0)
    assert shortened("a long name", 40.0) == "a lo…"
    assert shortened("a long name", 20.0) == ""


def test_plans_that_are_not_launched_as_they_are_carry_a_mark_that_is_explained() -> None:
    first, *others = answer()["plans"]
    marked = answer() | {"plans": [first | {"launches": False}, *others]}
    page = render("x", plans_sections(marked))
    assert "1*" in page
    assert "does not launch this plan as it is" in page
    assert "does not launch" not in render("x", plans_sections(answer()))
