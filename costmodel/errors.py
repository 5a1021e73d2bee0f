"""The tree of errors that a user can meet.

    ShardplanError(ValueError)
    ├── InputError          a file, key or value is wrong: exit code 2
    ├── UnsupportedError    right, but beyond what the model describes: exit code 2
    └── TimeLimitError      the time ended before any plan was found: exit code 3

"No plan exists" is an answer, not an error: see planner.plans.SearchStatus.
"""

from collections.abc import Iterable


class ShardplanError(ValueError):
    """Anything the user can mend; the text is shown without a traceback."""

    exit_code = 2


class InputError(ShardplanError):
    """A wrong input, told as file, key path, value, rule and nearest legal value.

    Attributes:
        key: Dotted path of the offending key, for example ``training.sequence``.
        rule: What the value has to satisfy.
    """

    def __init__(
        self,
        rule: str,
        *,
        file: str | None = None,
        key: str | None = None,
        value: object = None,
        nearest: object = None,
    ) -> None:
        self.file = file
        self.key = key
        self.value = value
        self.rule = rule
        self.nearest = nearest
        super().__init__(self._text())

    def _text(self) -> str:
        where = ": ".join(part for part in (self.file, self.key) if part)
        text = f"{where}: {self.rule}" if where else self.rule
        if self.value is not None:
            text += f", got {_short(self.value)}"
        if self.nearest is not None:
            text += f" (nearest: {_listed(self.nearest)})"
        return text

    def within(self, file: str) -> "InputError":
        """Return the same error naming the file it was found in."""
        return InputError(
            self.rule, file=file, key=self.key, value=self.value, nearest=self.nearest
        )


class UnsupportedError(ShardplanError):
    """The request is well formed but the model does not describe it."""


class TimeLimitError(ShardplanError):
    """The time limit was reached before any plan was found."""

    exit_code = 3


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _listed(nearest: object) -> str:
    if isinstance(nearest, Iterable) and not isinstance(nearest, str):
        return ", ".join(str(item) for item in nearest)
    return str(nearest)
