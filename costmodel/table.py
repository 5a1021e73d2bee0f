"""Tables of measured prices: one file format, read, looked up and appended to.

A table is a text file of one JSON object a line, so that a diff shows each price on its own and a price is added by
one append::

    {"format": "shardplan-table", "version": 1}
    {"source": 0, "device": "A100-SXM4-40GB", "driver": "..", "libraries": {"torch": ".."}, "date": "..", "origin": ".."}
    {"event": "matmul/2048x6144x2048/fp16/forward", "source": 0, "seconds": 0.00021, "samples": 40, "spread": 0.004}
    {"event": "matmul/65536x65536x65536/fp16/forward", "source": 0, "failed": "out of memory"}
    {"event": "all_reduce/8388608B/2ranks/2pernode/level0", "wanted": 96}

``seconds`` is the median of ``samples`` repeats, ``spread`` the interquartile range over the median. A ``failed``
event was tried and has no price; a ``wanted`` one is to be measured, with its count in an iteration. A later line
of the same event replaces an earlier one. A last line without its end (a writer was killed) is ignored.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import exp, log
from pathlib import Path
from typing import Any, Literal, NamedTuple

from costmodel.errors import InputError
from costmodel.events import CommEvent, Event, parse_event

FORMAT = "shardplan-table"
VERSION = 1
Provenance = Literal["measured", "interpolated", "analytic"]


class Price(NamedTuple):
    """Seconds of one event and where they come from."""

    seconds: float
    provenance: Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a number was measured.

    Attributes:
        device: As the driver names it, for example ``A100-SXM4-40GB``.
        driver: Version of the driver, empty if unknown.
        libraries: Version by library.
        date: ISO date of the measurement, empty if unknown.
        origin: The command, or repository, commit and path the numbers were taken from.
        licence: Licence of the origin; empty for own measurements.
        note: What a reader has to know, for example what the clock included.
    """

    device: str
    driver: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    origin: str = ""
    licence: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One measured event.

    Attributes:
        seconds: Median; None if the measurement failed.
        samples: Number of repeats.
        spread: Interquartile range over the median; None if unknown.
        source: Index into the table's sources.
        failed: Why there is no price.
    """

    event: Event
    seconds: float | None
    samples: int = 1
    spread: float | None = None
    source: int = 0
    failed: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Measured prices, looked up by event.

    Attributes:
        sources: Where the entries were measured.
        entries: Last entry of each event.
        wanted: Events that are to be measured, with their count in an iteration.
    """

    sources: tuple[Source, ...] = ()
    entries: tuple[Entry, ...] = ()
    wanted: Mapping[Event, int] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> Table:
        """Read a table file.

        Raises:
            InputError: If the file is missing, is no table, or a line breaks the format; names file and line.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot be read ({error.strerror})", file=str(path)) from error
        return _parse(text, str(path))

    @classmethod
    def merge(cls, tables: Iterable[Table]) -> Table:
        """Return all entries of ``tables``; where two price the same event the first table wins."""
        sources: list[Source] = []
        entries: dict[Event, Entry] = {}
        wanted: dict[Event, int] = {}
        for table in tables:
            for entry in table.entries:
                moved = replace(entry, source=entry.source + len(sources))
                entries.setdefault(entry.event, moved)
            sources += table.sources
            wanted |= table.wanted
        return cls(sources=tuple(sources), entries=tuple(entries.values()), wanted=wanted)

    @cached_property
    def _seconds(self) -> dict[Event, float]:
        return {e.event: e.seconds for e in self.entries if e.seconds is not None}

    @cached_property
    def _families(self) -> dict[object, list[tuple[int, float]]]:
        families: dict[object, list[tuple[int, float]]] = {}
        for event, seconds in self._seconds.items():
            for family, size in _families_of(event):
                families.setdefault(family, []).append((size, seconds))
        return {family: sorted(points) for family, points in families.items()}

    def lookup(self, event: Event) -> Price | None:
        """Return the measured price of ``event``, or one interpolated between measured sizes, or None.

        Interpolation is linear in the logarithms of size and seconds, along one size (bytes of a collective, one
        dimension of an operator) with all else equal, and only between two measured sizes.
        """
        seconds = self._seconds.get(event)
        if seconds is not None:
            return Price(seconds=seconds, provenance="measured")
        between = [_bracket(self._families.get(f, []), size) for f, size in _families_of(event)]
        found = [item for item in between if item is not None]
        if not found:
            return None
        _, seconds = min(found)
        return Price(seconds=seconds, provenance="interpolated")

    def scaled(self, event: CommEvent) -> Price | None:
        """Return the price of a larger group than any measured, by the law of ring collectives, or None.

        DistSim (CF'23, section 4.2) measures up to 8 ranks and scales; as one ring over n ranks moves
        ``f(n) = (n - 1) / n`` of the buffer per direction in ``n - 1`` steps (all-reduce twice), the part of the
        time that is bytes grows by f(n) / f(m) and the latency part, the measured time of the smallest size, by
        (n - 1) / (m - 1). The group has to cross the same link level with the same number of ranks a node, or to
        be whole within one node.
        """
        smaller = [size for size in self._group_sizes(event) if size < event.group_size]
        if not smaller:
            return None
        largest = max(smaller)
        base = replace(event, group_size=largest, per_node=_per_node(event, largest))
        price = self.lookup(base)
        (family, _), *_ = _families_of(base)
        points = self._families.get(family, [])
        if price is None or not points:
            return None
        latency = min(points[0][1], price.seconds)
        ratio = (event.group_size - 1) / (largest - 1)
        volume = ratio * largest / event.group_size
        seconds = latency * ratio + (price.seconds - latency) * volume
        return Price(seconds=seconds, provenance="analytic")

    def _group_sizes(self, event: CommEvent) -> set[int]:
        return {
            other.group_size
            for other in self._seconds
            if isinstance(other, CommEvent)
            and (other.collective, other.level) == (event.collective, event.level)
            and other.per_node == _per_node(event, other.group_size)
            and other.group_size > 1
        }

    def missing(self, wanted: Mapping[Event, int]) -> dict[Event, int]:
        """Return those of ``wanted`` that were neither measured nor tried."""
        known = {entry.event for entry in self.entries}
        return {event: count for event, count in wanted.items() if event not in known}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledTable:
    """A table that also prices larger groups by law, as "analytic" prices based on measurement."""

    table: Table

    def lookup(self, event: Event) -> Price | None:
        """Return the measured or interpolated price, or that of a larger group by law, or None."""
        price = self.table.lookup(event)
        if price is None and isinstance(event, CommEvent):
            return self.table.scaled(event)
        return price


def append(path: str | Path, source: Source, entries: Iterable[Entry]) -> None:
    """Add measured entries to a table file, creating it if absent.

    All lines reach the file in one write behind a complete last line and are flushed to the disk before the call
    returns, so that a killed process loses nothing that was appended before.

    Raises:
        InputError: If the file exists and is no table.
    """
    path = Path(path)
    known = Table.load(path).sources if path.exists() and path.stat().st_size else ()
    lines = [] if known or path.exists() else [{"format": FORMAT, "version": VERSION}]
    index = known.index(source) if source in known else len(known)
    if source not in known:
        lines.append({"source": index, **_shortened(asdict(source))})
    lines += [_entry_line(replace(entry, source=index)) for entry in entries]
    _append_lines(path, lines)


def write_wanted(path: str | Path, wanted: Mapping[Event, int]) -> None:
    """Write a table without prices: the events to measure and their counts in an iteration."""
    lines: list[dict[str, Any]] = [{"format": FORMAT, "version": VERSION}]
    lines += [{"event": event.key, "wanted": count} for event, count in wanted.items()]
    Path(path).write_text(_text(lines), encoding="utf-8")


def write(path: str | Path, table: Table) -> None:
    """Write a whole table, entries in the order of their keys."""
    lines: list[dict[str, Any]] = [{"format": FORMAT, "version": VERSION}]
    lines += [{"source": i, **_shortened(asdict(s))} for i, s in enumerate(table.sources)]
    lines += [_entry_line(entry) for entry in sorted(table.entries, key=lambda e: e.event.key)]
    lines += [{"event": event.key, "wanted": count} for event, count in table.wanted.items()]
    partial = Path(f"{path}.partial")
    partial.write_text(_text(lines), encoding="utf-8")
    partial.replace(path)


def _families_of(event: Event) -> list[tuple[object, int]]:
    if isinstance(event, CommEvent):
        return [(replace(event, bytes=0), event.bytes)]
    return [
        ((replace(event, shape=(*event.shape[:i], 0, *event.shape[i + 1 :])), i), size)
        for i, size in enumerate(event.shape)
    ]


def _bracket(points: list[tuple[int, float]], size: int) -> tuple[float, float] | None:
    """Return how far apart the two measured sizes around ``size`` are (log), and the seconds between them."""
    above = bisect_left(points, (size, 0.0))
    if above == 0 or above == len(points) or size <= 0:
        return None
    (low, low_s), (high, high_s) = points[above - 1], points[above]
    if low <= 0 or min(low_s, high_s) <= 0:
        return None
    gap = log(high / low)
    weight = log(size / low) / gap
    return gap, exp((1 - weight) * log(low_s) + weight * log(high_s))


def _per_node(event: CommEvent, group_size: int) -> int:
    return group_size if event.per_node == event.group_size else min(event.per_node, group_size)


def _entry_line(entry: Entry) -> dict[str, Any]:
    line: dict[str, Any] = {"event": entry.event.key, "source": entry.source}
    if entry.seconds is None:
        return line | {"failed": entry.failed}
    line |= {"seconds": float(f"{entry.seconds:.6g}"), "samples": entry.samples}
    if entry.spread is not None:
        line["spread"] = float(f"{entry.spread:.3g}")
    return line


def _shortened(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def _text(lines: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def _append_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        content = os.read(handle, os.fstat(handle).st_size)
        end = content.rfind(b"\n") + 1
        os.ftruncate(handle, end)
        os.lseek(handle, end, os.SEEK_SET)
        os.write(handle, _text(lines).encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def _parse(text: str, file: str) -> Table:
    lines = text.split("\n")[:-1]
    records = [_record(line, file, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not records or records[0].get("format") != FORMAT:
        raise InputError(
            "must begin with the line of a table", file=file, key="format", nearest=FORMAT
        )
    if records[0].get("version") != VERSION:
        raise InputError(
            "is of another version of the format",
            file=file,
            key="version",
            value=records[0].get("version"),
            nearest=VERSION,
        )
    sources = tuple(_source(record, file) for record in records if "device" in record)
    entries: dict[Event, Entry] = {}
    wanted: dict[Event, int] = {}
    for number, record in enumerate(records, 1):
        if "event" in record:
            _read_event(record, len(sources), entries, wanted, f"{file}:{number}")
    return Table(sources=sources, entries=tuple(entries.values()), wanted=wanted)


def _record(line: str, file: str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InputError("must be one JSON object", file=f"{file}:{number}", value=line) from error
    if not isinstance(record, dict):
        raise InputError("must be one JSON object", file=f"{file}:{number}", value=line)
    return record


def _source(record: Mapping[str, Any], file: str) -> Source:
    known = {key: value for key, value in record.items() if key != "source"}
    try:
        return Source(**known)
    except TypeError as error:
        raise InputError("has an unknown key", file=file, key="source", value=known) from error


def _read_event(
    record: Mapping[str, Any],
    sources: int,
    entries: dict[Event, Entry],
    wanted: dict[Event, int],
    file: str,
) -> None:
    try:
        event = parse_event(str(record["event"]))
    except InputError as error:
        raise error.within(file) from error
    if "wanted" in record:
        wanted[event] = int(record["wanted"])
        return
    source = record.get("source")
    if not isinstance(source, int) or not 0 <= source < sources:
        raise InputError("must be the index of a source", file=file, key="source", value=source)
    entries[event] = Entry(
        event=event,
        seconds=None if "failed" in record else _positive(record, "seconds", file),
        samples=int(record.get("samples", 1)),
        spread=record.get("spread"),
        source=source,
        failed=str(record.get("failed", "")),
    )


def _positive(record: Mapping[str, Any], key: str, file: str) -> float:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise InputError("must be a positive number of seconds", file=file, key=key, value=value)
    return float(value)
