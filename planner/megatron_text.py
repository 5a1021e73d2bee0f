"""Megatron arguments as people keep them: argument files, shell scripts, functional-test YAML.

Nothing here is a shell: the text is scanned for ``--flag value`` pairs after continuation lines, comments and
quotes are resolved, and variables are substituted from the assignments in the same file.
"""

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from costmodel.errors import InputError
from costmodel.load import parse_yaml, read_text

_SHELL_ENDINGS = frozenset({".sh", ".bash", ".slurm", ".sbatch"})
_YAML_ENDINGS = frozenset({".yaml", ".yml"})
MEGATRON_ENDINGS = _SHELL_ENDINGS | _YAML_ENDINGS | {".args"}
_SHELL_TOKEN = re.compile(
    r"""(?:\$\(\(.*?\)\)|\$\([^()]*\)|\$\{[^}]*\}|"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])+""",
    re.DOTALL,
)
_PIECE = re.compile(
    r"""\$\(\((?P<sum>[^()]*(?:\([^()]*\)[^()]*)*)\)\)|\$\{(?P<braced>\w+)(?::?[-=](?P<default>[^}]*))?\}|\$(?P<bare>\w+)"""
)
_ASSIGNMENT = re.compile(r"^(?:export\s+)?(?P<name>[A-Za-z_]\w*)=(?P<value>.*)$", re.DOTALL)
_ARITHMETIC = re.compile(r"^[\d\s+*/()-]+$")
_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: int(left / right),
}
_MAX_SUBSTITUTIONS = 20  # deeper than any script seen; ends mutual references


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Arguments by flag, in the order found; a flag without value maps to an empty tuple.

    Attributes:
        file: Where they come from, for messages.
        values: Values of each flag; the last occurrence counts.
        variables: Shell variables and ENV_VARS of the same text.
        repeated: Flags that occur with different values.
    """

    file: str
    values: Mapping[str, tuple[str, ...]]
    variables: Mapping[str, str] = field(default_factory=dict)
    repeated: tuple[str, ...] = ()

    def has(self, *names: str) -> bool:
        """Return whether any of the flags occurs."""
        return any(name in self.values for name in names)

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return the first value of a flag with variables resolved, or ``default`` where it is absent.

        Raises:
            InputError: If the flag has no value or one that rests on an unknown variable.
        """
        if name not in self.values:
            return default
        if not self.values[name]:
            raise InputError("must have a value", file=self.file, key=name)
        return self._known(name, self.values[name][0])

    def integer(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number.

        Raises:
            InputError: If the value is none.
        """
        value = self.text(name)
        if value is None:
            return default
        try:
            return int(value)
        except ValueError as error:
            rule = "must be a whole number"
            raise InputError(rule, file=self.file, key=name, value=value) from error

    def number(self, name: str, default: float) -> float:
        """Return a number.

        Raises:
            InputError: If the value is none.
        """
        value = self.text(name)
        if value is None:
            return default
        try:
            return float(value)
        except ValueError as error:
            raise InputError("must be a number", file=self.file, key=name, value=value) from error

    def need(self, name: str) -> int:
        """Return a whole number that has no default.

        Raises:
            InputError: If the flag is missing or its value is no whole number.
        """
        value = self.integer(name)
        if value is None:
            raise InputError("must be given", file=self.file, key=name)
        return value

    def _known(self, name: str, value: str) -> str:
        resolved = substitute(value, self.variables)
        if "$" in resolved:
            rule = "rests on a variable that the file does not set"
            raise InputError(rule, file=self.file, key=name, value=resolved)
        return resolved


def read_flags(path: Path, variables: Mapping[str, str] | None = None) -> Flags:
    """Read a file by its ending: shell script, YAML with ``MODEL_ARGS``, or plain arguments.

    Args:
        path: The file.
        variables: Values for variables that the file expects from outside.

    Raises:
        InputError: If the file cannot be read or is not of that form.
    """
    text, file = read_text(path), str(path)
    if path.suffix in _YAML_ENDINGS:
        return yaml_flags(text, file)
    if path.suffix in _SHELL_ENDINGS or text.startswith("#!"):
        return shell_flags(text, file, variables)
    return plain_flags(text, file)


def plain_flags(text: str, file: str = "<text>") -> Flags:
    """Read arguments as they stand on a command line or one per line; ``#`` starts a comment.

    Raises:
        InputError: If a quote is not closed.
    """
    try:
        tokens = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise InputError(f"cannot be split into arguments: {error}", file=file) from error
    world = re.search(r"(?m)^# world size (\d+)$", text)
    return _collect(tokens, file, {"WORLD_SIZE": world[1]} if world else {})


def yaml_flags(text: str, file: str = "<text>") -> Flags:
    """Read ``MODEL_ARGS`` (flag: value; ``true`` for a bare flag) and ``ENV_VARS`` of a functional test.

    Raises:
        InputError: If there is no ``MODEL_ARGS`` mapping of flags.
    """
    data = parse_yaml(text, file)
    arguments = data.get("MODEL_ARGS") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(arguments, dict):
        raise InputError("must be a mapping of flags", file=file, key="MODEL_ARGS")
    environment = data.get("ENV_VARS")
    tokens: list[str] = []
    for flag, value in arguments.items():
        if value is False or value is None:
            continue
        words = value if isinstance(value, list) else str(value).split()
        tokens += [str(flag), *([] if value is True else map(str, words))]
    variables = environment if isinstance(environment, dict) else {}
    return _collect(tokens, file, {str(key): str(value) for key, value in variables.items()})


def shell_flags(
    text: str, file: str = "<text>", variables: Mapping[str, str] | None = None
) -> Flags:
    """Scan a shell script for flags, in arrays and quoted strings as well as on command lines.

    Raises:
        InputError: Never for the text itself; unknown variables are refused when a value is asked for.
    """
    known: dict[str, str] = {}
    tokens: list[str] = []
    for token in _SHELL_TOKEN.findall(_without_comments(text)):
        word = _opened(token)
        assignment = _ASSIGNMENT.match(word)
        if assignment is not None:
            name, word = assignment["name"], _unquoted(assignment["value"]).removeprefix("(")
            if f"${name}" not in word and f"${{{name}}}" not in word:
                known[name] = _defaulted(word, name, known)
        word = _unquoted(word)
        if "--" in word and any(letter.isspace() for letter in word):
            tokens += word.split()
        elif word:
            tokens.append(word)
    return _collect(tokens, file, known | dict(variables or {}) | _directives(text))


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$X``, ``${X}``, ``${X:-default}`` and ``$((sums))``; unknown variables stay as they are."""
    for _ in range(_MAX_SUBSTITUTIONS):
        replaced = _PIECE.sub(lambda match: _piece(match, variables), text)
        if replaced == text:
            break
        text = replaced
    return text


def _piece(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if match["sum"] is not None:
        inner = re.sub(
            r"\$?\b([A-Za-z_]\w*)\b", lambda name: variables.get(name[1], name[0]), match["sum"]
        )
        inner = substitute(inner, variables)
        return _evaluated(inner) if _ARITHMETIC.match(inner) else match[0]
    name = match["braced"] or match["bare"]
    if name in variables:
        return variables[name]
    return match["default"] if match["default"] is not None else match[0]


def _evaluated(expression: str) -> str:
    """Evaluate whole-number arithmetic; division truncates as in the shell."""
    try:
        return str(_number(ast.parse(expression.strip(), mode="eval").body))
    except (SyntaxError, ZeroDivisionError, KeyError):
        return f"$(({expression}))"


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_number(node.left), _number(node.right))
    raise KeyError(ast.dump(node))


def _collect(tokens: Iterable[str], file: str, variables: Mapping[str, str]) -> Flags:
    values: dict[str, tuple[str, ...]] = {}
    repeated: list[str] = []
    current: str | None = None
    found: list[str] = []

    def close() -> None:
        if current is None:
            return
        if current in values and values[current] != tuple(found):
            repeated.append(current)
        values[current] = tuple(found)

    for token in tokens:
        if token.startswith("--") and len(token) > 2:
            close()
            current, _, value = token.partition("=")
            found = [value] if value else []
        elif current is not None:
            found.append(token)
    close()
    return Flags(file=file, values=values, variables=variables, repeated=tuple(repeated))


def _without_comments(text: str) -> str:
    joined = text.replace("\\\r\n", " ").replace("\\\n", " ")
    return re.sub(r"(?m)(?:^|(?<=\s))#.*$", "", joined)


def _opened(token: str) -> str:
    """Remove what closes an array or a group of commands around a word."""
    word = token.removeprefix("(")
    while word.endswith((")", ";")) and word.count(")") > word.count("("):
        word = word[:-1]
    return "" if word in {"(", ")", "\\"} else word.rstrip(";")


def _unquoted(word: str) -> str:
    parts = re.findall(r"""("(?:\\.|[^"\\])*")|('[^']*')|([^"']+)""", word, re.DOTALL)
    return "".join(
        double[1:-1] if double else single[1:-1] if single else plain
        for double, single, plain in parts
    )


def _defaulted(word: str, name: str, known: Mapping[str, str]) -> str:
    """Return the value of ``X=${X:-default}`` or ``X=${1:-default}``: what holds where nothing is given."""
    match = _PIECE.fullmatch(word)
    outside = match is not None and match["default"] is not None
    if match is not None and outside and (match["braced"] == name or match["braced"].isdigit()):
        return known.get(name, match["default"])
    return word


def _directives(text: str) -> dict[str, str]:
    """Return sizes that stand in Slurm directives, by the variable that Slurm sets from them."""
    found: dict[str, str] = {}
    for option, name in (
        ("nodes", "SLURM_NNODES"),
        ("gpus-per-node", "SLURM_GPUS_PER_NODE"),
        ("ntasks-per-node", "SLURM_NTASKS_PER_NODE"),
    ):
        if match := re.search(rf"(?m)^#SBATCH\s+--{option}[=\s](?:\w+:)?(\d+)\s*$", text):
            found[name] = match[1]
    return found
