"""Finished tasks on disk, one line each, so that a killed batch goes on where it was."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from costmodel.errors import InputError
from planner.batch.tasks import Outcome


class Journal:
    """A file of finished outcomes by task key; without a path nothing is kept.

    A line is written in one call and flushed to the disk before the task counts as done, so a kill at any moment
    loses at most what was in work; a torn last line is skipped when reading and cut off before writing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.finished: Mapping[str, Outcome] = {} if path is None else _read(path)

    def record(self, key: str, outcome: Outcome) -> None:
        """Append one finished task.

        Raises:
            InputError: If the file cannot be written.
        """
        if self.path is None:
            return
        line = json.dumps({"key": key, **asdict(outcome)}) + "\n"
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, line.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", file=str(self.path)) from error


def _read(path: Path) -> dict[str, Outcome]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from error
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    return dict(_entry(line, number, path) for number, line in enumerate(whole.splitlines(), 1))


def _entry(line: bytes, number: int, path: Path) -> tuple[str, Outcome]:
    try:
        values = json.loads(line)
        return values.pop("key"), Outcome(**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        rule = "is not a journal of shardplan batch; delete it or name another file"
        raise InputError(rule, file=str(path), key=f"line {number}") from error
