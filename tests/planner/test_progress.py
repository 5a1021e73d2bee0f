"""Tests of the line that shows progress."""

import io
import re

import pytest

from planner import progress as module
from planner.progress import progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_pipe_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_QUIET_S", 0.0)
    stream = io.StringIO()
    with progress("planning", stream):
        pass
    assert stream.getvalue() == ""


def test_a_quick_answer_shows_nothing() -> None:
    stream = Terminal()
    with progress("planning", stream):
        pass
    assert stream.getvalue() == ""


def wait_and_break(stream: Terminal) -> None:
    with progress("planning", stream) as shown:
        shown.say("3 steps")
        while "3 steps" not in stream.getvalue():
            pass
        raise KeyboardInterrupt


def test_a_terminal_shows_a_line_that_is_erased_whatever_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_QUIET_S", 0.0)
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt):
        wait_and_break(stream)
    assert re.search(r"planning: \d+ s, 3 steps", stream.getvalue())
    assert stream.getvalue().endswith("\r\x1b[K")
