"""What a question is read from: a file, a mapping with the same keys, keywords, or a torch module."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from costmodel.errors import InputError
from costmodel.fields import nearest_names
from costmodel.graph import ModelGraph
from costmodel.load import read_data
from planner.scenario import DECISIONS, Scenario
from planner.scenario_file import SCENARIO_KEYS, scenario_from_mapping

ALIASES: Mapping[str, str] = {
    "cluster": "cluster.name",
    "gpus": "cluster.gpus",
    "memory": "limits.memory",
    **{
        name: f"training.{name}"
        for name in ("global_batch", "sequence", "framework", "precision", "attention", "tokens")
    },
    **{name: f"search.{name}" for name in DECISIONS},
}
"""Short names of keys: those that people change most, and every decision of the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The keys of a scenario before they are read, so that any of them can still change.

    Attributes:
        data: As a scenario file has them.
        file: Named in messages; ``base`` is where relative paths start.
        graph: A traced model in place of the key ``model``.
    """

    data: Mapping[str, Any]
    file: str = "scenario"
    base: Path = field(default_factory=Path)
    graph: ModelGraph | None = None

    def scenario(self) -> Scenario:
        """Return the scenario.

        Raises:
            InputError: Naming file, key path, value, rule and nearest legal value.
        """
        return scenario_from_mapping(self.data, file=self.file, base=self.base, graph=self.graph)

    def changed(self, key: str, value: object) -> "Source":
        """Return the source with one key, dotted or a short name, set to ``value``.

        Raises:
            InputError: If there is no such key.
        """
        path = key if isinstance(value, Mapping) and key in SCENARIO_KEYS else dotted_key(key)
        *parents, last = path.split(".")
        data = deepcopy(dict(self.data))
        here = data
        for parent in parents:
            inner = here.get(parent)
            if isinstance(inner, str) and parent == "cluster":
                inner = {"name": inner}
            here[parent] = inner if isinstance(inner, dict) else {}
            here = here[parent]
        here[last] = value
        return replace(self, data=data)


def read_source(path: Path | str) -> Source:
    """Return the keys of a scenario file.

    Raises:
        InputError: If it cannot be read.
    """
    data = read_data(path)
    if not isinstance(data, Mapping):
        raise InputError("must be a mapping with the keys of a scenario", file=str(path))
    return Source(data=data, file=str(path), base=Path(path).parent)


def source_of(path: Path | str, *, gpus: int | None = None, module: str | None = None) -> Source:
    """Return the keys of a scenario file with the changes that options make.

    Args:
        path: The file.
        gpus: Replaces the number of GPUs.
        module: ``package.module:function`` of a torch module that replaces the model.

    Raises:
        InputError: If the file cannot be read or the module cannot be traced.
    """
    source = read_source(path)
    if gpus is not None:
        source = source.changed("gpus", gpus)
    return source if module is None else with_module(source, module)


def with_module(source: Source, module: object) -> Source:
    """Return the source with a torch module for a model.

    Args:
        source: Its precision decides the size of activations.
        module: ``package.module:function``, or a pair of a module and its example inputs.

    Raises:
        InputError: If torch is missing or the module cannot be traced.
    """
    try:
        from planner.tracing import load_builder, trace_builder, trace_module
    except ImportError as error:
        rule = "needs torch: pip install 'shardplan[torch]'"
        raise InputError(rule, key="module", value=str(module)) from error
    training = source.data.get("training")
    precision = training.get("precision") if isinstance(training, Mapping) else None
    size = 4 if precision in ("fp32", "tf32") else 2
    if isinstance(module, str):
        name = module.partition(":")[2] or module
        graph = trace_builder(load_builder(module), name, size)
    elif isinstance(module, tuple) and len(module) == 2:
        graph = trace_module(*module, name=type(module[0]).__name__, element_bytes=size)
    else:
        rule = "must be package.module:function, or a torch module and a tuple of its inputs"
        raise InputError(rule, key="module", value=type(module).__name__)
    # A traced graph counts per sample, so a sample is its token.
    return replace(source.changed("training.sequence", 1), graph=graph)


def dotted_key(key: str) -> str:
    """Return the full path of a key that may be one of the short names.

    Raises:
        InputError: If it is neither.
    """
    full = ALIASES.get(key, key)
    if full.split(".")[0] not in SCENARIO_KEYS:
        raise InputError(
            "must be a dotted key of a scenario file or a short name",
            key=key,
            nearest=nearest_names(key, (*ALIASES, *SCENARIO_KEYS)) or tuple(ALIASES),
        )
    return full
