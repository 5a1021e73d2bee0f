"""The page: sections under one heading, with style and script inside; opens from a file without network."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from planner.report.markup import Markup, join, tag
from planner.report.patterns import pattern_definitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page; its body is markup made by planner.report.markup."""

    heading: str
    body: Markup


def render(title: str, sections: Sequence[Section]) -> str:
    """Return the whole page.

    A content security policy admits only the page's own script, by its digest, and no address outside: even
    markup that slipped in could neither run nor load anything.
    """
    style, script = _asset("page.css"), _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        pattern_definitions(),
        tag("header", tag("h1", title), _contents(sections), _theme_switch()),
        tag("main", [_section(number, part) for number, part in enumerate(sections)]),
        tag("script", Markup(script)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _contents(sections: Sequence[Section]) -> Markup:
    links = [
        tag("li", tag("a", part.heading, href=f"#section-{number}"))
        for number, part in enumerate(sections)
    ]
    return tag("nav", tag("ul", links), aria_label="Contents") if len(links) > 1 else join(())


def _theme_switch() -> Markup:
    return tag("button", "light / dark", id="theme", type="button", class_="control")


def _section(number: int, part: Section) -> Markup:
    return tag("section", tag("h2", part.heading), part.body, id=f"section-{number}")


def _asset(name: str) -> str:
    return resources.files("planner.report").joinpath(name).read_text(encoding="utf-8")
