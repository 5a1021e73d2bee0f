"""A line on the terminal while something takes longer than a second."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_QUIET_S = 1.0
"""Answers that come sooner show no line."""
_EVERY_S = 0.5
_CLEAR = "\r\x1b[K"  # to the start of the line, erase to its end (ECMA-48, EL)


class Progress:
    """What the line says; ``say`` changes the words behind the elapsed seconds."""

    def __init__(self, what: str) -> None:
        self._what, self._note = what, ""

    def say(self, note: str) -> None:
        """Show ``note`` from the next redraw on."""
        self._note = note

    def line(self, elapsed_s: float) -> str:
        """Return the line."""
        note = f", {self._note}" if self._note else ""
        return f"{self._what}: {elapsed_s:.0f} s{note}"


@contextmanager
def progress(what: str, stream: TextIO | None = None) -> Iterator[Progress]:
    """Show on ``stream`` (stderr) that ``what`` is going on, if it is a terminal and more than a second passes.

    The line is gone at the end, however that comes.
    """
    target = stream or sys.stderr
    shown = Progress(what)
    if not target.isatty():
        yield shown
        return
    done = threading.Event()
    thread = threading.Thread(target=_redraw, args=(shown, target, done), daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        done.set()
        thread.join()


def _redraw(shown: Progress, stream: TextIO, done: threading.Event) -> None:
    begun = time.monotonic()
    if done.wait(_QUIET_S):
        return
    while True:
        stream.write(_CLEAR + shown.line(time.monotonic() - begun))
        stream.flush()
        if done.wait(_EVERY_S):
            break
    stream.write(_CLEAR)
    stream.flush()
