"""HTML and SVG put together so that nothing a user named can become markup."""

import html
import json
from collections.abc import Iterable


class Markup(str):
    """Text that is markup already; every other text is escaped when it is put into an element."""

    __slots__ = ()


_VOID = frozenset({"meta", "br", "input"})
# Code points that end a script element, open a comment, or end a line in old JavaScript.
_UNSAFE_IN_SCRIPT = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def tag(name: str, /, *content: str | Iterable[str], **attributes: object) -> Markup:
    """Return an element; ``class_`` stands for class and ``data_value`` for data-value.

    Args:
        name: Element name.
        content: Texts (escaped unless they are Markup) or iterables of them.
        attributes: Values are escaped; None leaves the attribute out and True writes it bare.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(content)}</{name}>")


def join(content: Iterable[str | Iterable[str]]) -> Markup:
    """Return the contents one after the other, escaped unless they are Markup."""
    return Markup("".join(_escaped(part) for part in content))


def json_data(value: object, **attributes: object) -> Markup:
    """Return plain values as a script element that no value can end."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":")).translate(_UNSAFE_IN_SCRIPT)
    return tag("script", Markup(text), type="application/json", **attributes)


def _escaped(part: str | Iterable[str]) -> str:
    if isinstance(part, Markup):
        return part
    if isinstance(part, str):
        return html.escape(part)
    return "".join(_escaped(item) for item in part)


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {name}="{html.escape(text)}"'
