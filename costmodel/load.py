"""The one room for YAML and JSON text: files from users become plain values, or an InputError names why not.

Files are hostile until proven otherwise: size, nesting and the size after alias expansion are bounded before
anything is built, duplicate keys are refused, and only plain values (no dates, no objects) come out. Numbers
such as ``1e9``, which YAML 1.1 reads as text, stay text; costmodel.units.parse_number accepts them.
"""

import json
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from costmodel.errors import InputError

if TYPE_CHECKING:
    from yaml import SafeLoader as _BaseLoader
else:
    _BaseLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# A thousand times the largest scenario or Hugging Face config seen; a bound against accidents and bombs.
MAX_BYTES = 1_000_000
MAX_NODES = 200_000
MAX_DEPTH = 64


def read_yaml(path: Path | str) -> object:
    """Read a YAML file into dicts, lists, text, numbers, booleans and None.

    Raises:
        InputError: If the file cannot be read, is larger than 1 MB, is no UTF-8 or no YAML, repeats a key,
            or expands to more than ``MAX_NODES`` values.
    """
    return parse_yaml(read_text(path), str(path))


def read_json(path: Path | str) -> object:
    """Read a JSON file; the same bounds hold as for YAML.

    Raises:
        InputError: As ``read_yaml``.
    """
    return parse_json(read_text(path), str(path))


def read_data(path: Path | str) -> object:
    """Read a file by its ending: ``.json`` as JSON, anything else as YAML.

    Raises:
        InputError: As ``read_yaml``.
    """
    return read_json(path) if Path(path).suffix == ".json" else read_yaml(path)


def read_text(path: Path | str) -> str:
    """Read a UTF-8 text file of at most ``MAX_BYTES``.

    Raises:
        InputError: If it is missing, unreadable, too large or not UTF-8.
    """
    file = Path(path)
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"cannot be read: {reason}", file=str(path)) from error
    if len(data) > MAX_BYTES:
        raise InputError(f"must be at most {MAX_BYTES} bytes", file=str(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        rule = f"must be UTF-8 text (byte {error.start} is not)"
        raise InputError(rule, file=str(path)) from error


def parse_yaml(text: str, file: str = "<text>") -> object:
    """Read YAML text; ``file`` is the name that errors show.

    Raises:
        InputError: As ``read_yaml``.
    """
    try:
        _check_shape(text, file)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _expanded_nodes(node, {}, file)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except InputError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"is not valid YAML: {_one_line(error)}", file=file) from error


def parse_json(text: str, file: str = "<text>") -> object:
    """Read JSON text; ``file`` is the name that errors show.

    Raises:
        InputError: As ``read_json``.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in items:
            if key in seen:
                raise InputError("appears twice", file=file, key=key)
            seen[key] = value
        return seen

    def constant(word: str) -> object:
        raise InputError("must be a finite number", file=file, value=word)

    try:
        value: object = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        rule = f"is not valid JSON: {error.msg} in line {error.lineno} column {error.colno}"
        raise InputError(rule, file=file) from error
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"is not valid JSON: {_one_line(error)}", file=file) from error
    except RecursionError as error:
        raise InputError("is nested too deeply", file=file) from error
    return value


def write_yaml(value: object) -> str:
    """Return plain values as YAML text in block style, keys in the given order."""
    text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=False, width=100)
    return text


class _Loader(_BaseLoader):
    """Safe loader that refuses duplicate keys and leaves dates as text."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                line = key.start_mark.line + 1
                raise yaml.YAMLError(f"the key {key.value!r} in line {line} appears twice")
            seen.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def _check_shape(text: str, file: str) -> None:
    """Bound nesting and number of events; the event parser keeps no tree and does not recurse."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise InputError(f"must nest at most {MAX_DEPTH} levels", file=file)
        if count > MAX_NODES:
            raise InputError(f"must hold at most {MAX_NODES} values", file=file)


def _expanded_nodes(node: yaml.Node, known: dict[int, int], file: str) -> int:
    """Return how many values ``node`` stands for once aliases are written out."""
    if id(node) in known:
        if known[id(node)] == 0:
            raise InputError("must not contain itself through an alias", file=file)
        return known[id(node)]
    known[id(node)] = 0
    count = 1
    for child in _children(node):
        count += _expanded_nodes(child, known, file)
        if count > MAX_NODES:
            raise InputError(f"must expand to at most {MAX_NODES} values", file=file)
    known[id(node)] = count
    return count


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
