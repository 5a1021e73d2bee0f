"""Reading of single values out of a mapping that came from a file, each with its key path in every error."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from costmodel.errors import InputError

# No published model has a dimension above this (vocabularies of 3e5, widths of 1e5); a bound against accidents.
MAX_INTEGER = 10**7


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping from a file, with the place it stands at.

    Attributes:
        values: The mapping itself.
        file: File name for errors.
        path: Dotted path of the mapping inside the file, empty at the top.
    """

    values: Mapping[str, object]
    file: str
    path: str = ""

    def key(self, name: str) -> str:
        """Return the dotted path of ``name``."""
        return f"{self.path}.{name}" if self.path else name

    def error(self, rule: str, name: str, *, nearest: object = None) -> InputError:
        """Return an error about the value of ``name``."""
        value = self.values.get(name)
        return InputError(rule, file=self.file, key=self.key(name), value=value, nearest=nearest)

    def optional_integer(self, *names: str, minimum: int = 1) -> int | None:
        """Return the first of ``names`` that is present and not null, or None.

        Raises:
            InputError: If it is no integer between ``minimum`` and ``MAX_INTEGER``.
        """
        name = next((name for name in names if self.values.get(name) is not None), None)
        if name is None:
            return None
        value = self.values[name]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error("must be a whole number", name)
        if not minimum <= value <= MAX_INTEGER:
            nearest = minimum if value < minimum else MAX_INTEGER
            raise self.error(f"must lie in {minimum}..{MAX_INTEGER}", name, nearest=nearest)
        return value

    def integer(self, *names: str, default: int | None = None, minimum: int = 1) -> int:
        """Return the first of ``names`` that is present, or ``default``.

        Raises:
            InputError: If none is present and there is no default, or the value is out of range.
        """
        value = self.optional_integer(*names, minimum=minimum)
        value = default if value is None else value
        if value is None:
            raise InputError(
                "is missing and has no default", file=self.file, key=self.key(names[0])
            )
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean, ``default`` if absent or null.

        Raises:
            InputError: If the value is no boolean.
        """
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error("must be true or false", name)
        return value

    def text(self, name: str, *, default: str | None = None) -> str:
        """Return a text.

        Raises:
            InputError: If the value is no text, or absent without a default.
        """
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            raise InputError("is missing", file=self.file, key=self.key(name))
        if not isinstance(value, str):
            raise self.error("must be text", name)
        return value

    def child(self, name: str) -> "Fields":
        """Return a nested mapping.

        Raises:
            InputError: If the value is no mapping.
        """
        return as_fields(self.values.get(name), self.file, self.key(name))

    def children(self, name: str) -> list["Fields"]:
        """Return a list of mappings, empty if absent.

        Raises:
            InputError: If the value is no list of mappings.
        """
        items = self.values.get(name)
        if items is None:
            return []
        if not isinstance(items, list):
            raise self.error("must be a list", name)
        key = self.key(name)
        return [as_fields(item, self.file, f"{key}[{i}]") for i, item in enumerate(items)]

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Refuse keys outside ``known``, naming the nearest legal one.

        Raises:
            InputError: If there is such a key.
        """
        for name in self.values:
            if name not in known:
                nearest = nearest_names(name, known)
                rule = "is not a key here"
                raise InputError(rule, file=self.file, key=self.key(name), nearest=nearest)


def as_fields(value: object, file: str, path: str = "") -> Fields:
    """Return ``value`` as Fields.

    Raises:
        InputError: If it is no mapping with text keys.
    """
    if not isinstance(value, Mapping):
        raise InputError("must be a mapping", file=file, key=path or None, value=value)
    for key in value:
        if not isinstance(key, str):
            raise InputError("must have text keys", file=file, key=path or None, value=key)
    return Fields(value, file, path)


def nearest_names(name: str, names: Iterable[str], count: int = 3) -> tuple[str, ...] | None:
    """Return the names most like ``name``, or all of them where there are few, or None."""
    known = tuple(names)
    close = difflib.get_close_matches(name.lower(), known, n=count, cutoff=0.5)
    return tuple(close) or (known if len(known) <= 2 * count else None)
