"""Logs of nccl-tests (`all_reduce_perf` and its siblings) as measured collectives.

The tests print one line a size; its columns are named by a comment line that has changed over the years (no root, no
redop, ``error`` for ``#wrong``, per-iteration columns), so columns are found by name. ``-J file.json`` of newer versions
holds the same as JSON, with the devices beside the results or inside ``config``. In every layout ``size`` is the larger of
what a rank sends and receives, which is what CommEvent.bytes means.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast

from costmodel.errors import InputError
from costmodel.events import Collective, CommEvent
from costmodel.table import Entry, Source

_PROGRAMS: Mapping[str, Collective] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
}
_PROGRAM = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|alltoall|sendrecv)_perf")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\b.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)")
_TAG = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:\s?")
_VERSION = re.compile(r"nccl-library=(\d+)")
_ITERATIONS = re.compile(r"(?<!warmup )(?<!agg )\biters: (\d+)")


def read_nccl_tests(
    text: str,
    file: str,
    collective: Collective | None = None,
    group_size: int | None = None,
    level: int | None = None,
) -> tuple[Source, tuple[Entry, ...]]:
    """Return the out-of-place times of a log, text or JSON.

    Args:
        text: Content of the log.
        file: Its name, for messages and provenance.
        collective: What was tested; None takes it from the log.
        group_size: Ranks; None counts the devices that the log lists.
        level: Link level the group crosses; None is 0 on one host and 1 on several.

    Raises:
        InputError: If the log holds no times, or does not say what was tested or on how many ranks.
    """
    log = _json_log(text) if text.lstrip().startswith("{") else _text_log(text, file)
    tested = collective or log["collective"]
    hosts = Counter(host for host, _ in log["devices"])
    ranks = group_size or sum(hosts.values())
    if tested is None:
        raise InputError("does not say which collective was tested", file=file, key="collective")
    if ranks < 2:
        raise InputError("does not list at least 2 devices", file=file, key="ranks", value=ranks)
    per_node = max(hosts.values(), default=ranks) if len(hosts) > 1 else ranks
    crossed = level if level is not None else int(len(hosts) > 1)
    entries = tuple(
        Entry(
            event=CommEvent(
                collective=tested, bytes=size, group_size=ranks, per_node=per_node, level=crossed
            ),
            seconds=microseconds * 1e-6,
            samples=log["iterations"],
        )
        for size, microseconds in log["times"]
        if size > 0 and microseconds > 0
    )
    if not entries:
        raise InputError("holds no line with a time", file=file)
    return _source(log, file), entries


def _source(log: Mapping[str, Any], file: str) -> Source:
    names = {name for _, name in log["devices"] if name}
    return Source(
        device=", ".join(sorted(names)) or "unknown",
        libraries={"nccl": log["nccl"]} if log["nccl"] else {},
        origin=f"nccl-tests log {file}",
        note="mean of the iterations, out of place",
    )


def _text_log(text: str, file: str) -> dict[str, Any]:
    lines = [_TAG.sub("", line) for line in text.splitlines()]
    program = _PROGRAM.search(text)
    version, iterations = _VERSION.search(text), _ITERATIONS.search(text)
    return {
        "collective": _PROGRAMS[program[1]] if program else None,
        "devices": [(m[2], m[3].strip()) for line in lines if (m := _RANK.match(line))],
        "nccl": version[1] if version else "",
        "iterations": int(iterations[1]) if iterations else 1,
        "times": list(_rows(lines, file)),
    }


def _rows(lines: list[str], file: str) -> Iterator[tuple[int, float]]:
    columns: list[str] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if line.startswith("#") and "size" in words and "busbw" in words:
            columns = [word for word in words if word != "#"]
        elif columns and words and words[0].isdigit() and len(words) >= len(columns) - 1:
            yield _row(words, columns, f"{file}:{number}")


def _row(words: list[str], columns: list[str], file: str) -> tuple[int, float]:
    time = columns.index("time" if "time" in columns else "cputime")
    try:
        return int(words[columns.index("size")]), float(words[time])
    except ValueError as error:
        raise InputError("has no time where the header names it", file=file) from error


def _json_log(text: str) -> dict[str, Any]:
    data = cast("dict[str, Any]", json.loads(text))
    config = data.get("config", {})
    devices = data.get("devices") or config.get("devices") or []
    program = _PROGRAM.search(json.dumps({k: v for k, v in data.items() if k != "results"}))
    return {
        "collective": _PROGRAMS[program[1]] if program else None,
        "devices": [
            (str(d.get("hostname", "")), str(d.get("device_info") or d.get("name") or ""))
            for d in devices
        ],
        "nccl": str(data.get("nccl_version", "")),
        "iterations": int(config.get("iterations", 1)),
        "times": [
            (int(row["size"]), float(body.get("time", body.get("cpu_time", 0))))
            for row in data.get("results", [])
            if (body := row.get("out_of_place") or row.get("in_place"))
        ],
    }
