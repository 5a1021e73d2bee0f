"""What a batch sends to its workers: one scenario each, as plain values, and what comes back."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.errors import ShardplanError
from costmodel.fields import as_fields
from costmodel.load import read_data
from planner.answer_json import SCHEMA, result_to_json
from planner.plans import SearchResult
from planner.pool.model import Request
from planner.scenario import Scenario
from planner.scenario_file import scenario_from_mapping

PlanFunction = Callable[[Scenario], SearchResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One scenario to plan; complete in itself, so that any machine can take it.

    Attributes:
        data: The scenario file's content, with the cluster of the pool's group where models share one.
        file: Name of the scenario file, for errors.
        base: Folder that paths inside the scenario are relative to.
    """

    data: Mapping[str, Any]
    file: str
    base: str

    @property
    def key(self) -> str:
        """Digest of all that the answer depends on: the scenario and the files that it names."""
        digest = hashlib.sha256(f"{SCHEMA}\n{self.file}\n".encode())
        digest.update(json.dumps(self.data, sort_keys=True, default=str).encode())
        for path in sorted({Path(self.base) / text for text in _texts(self.data)}):
            if path.is_file():
                digest.update(path.read_bytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a task: the answer in the contract's JSON, or why there is none.

    Attributes:
        answer: The JSON of ``plan``; None after an error.
        tokens: Tokens to train, if the scenario says so.
        error: One line for the user; empty if all went well.
    """

    answer: Mapping[str, Any] | None
    tokens: float | None = None
    error: str = ""

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The first plan of the answer, None where nothing fits or an error came."""
        plans = self.answer["plans"] if self.answer else []
        return plans[0] if plans else None


def read_task(request: Request, cluster: Mapping[str, Any] | None = None) -> Task:
    """Return the task of one model, on ``cluster`` if one is given.

    Raises:
        InputError: If the scenario file cannot be read or is no mapping.
    """
    if request.content is not None:
        data: Mapping[str, Any] = request.content
        base = request.base
    else:
        data = as_fields(read_data(request.scenario), request.scenario).values
        base = str(Path(request.scenario).parent)
    placed = data if cluster is None else {**data, "cluster": dict(cluster)}
    return Task(data=placed, file=request.scenario, base=base)


def run_task(task: Task, plan: PlanFunction) -> Outcome:
    """Plan one scenario; what is wrong with it becomes the outcome's error."""
    try:
        scenario = scenario_from_mapping(task.data, file=task.file, base=Path(task.base))
        answer = result_to_json(plan(scenario), scenario)
    except ShardplanError as error:
        return Outcome(answer=None, error=str(error))
    answer["search"].pop("seconds", None)
    return Outcome(answer=answer, tokens=scenario.training.tokens)


def _texts(value: object) -> Iterator[str]:
    """Yield every text in nested plain values that could be a file name."""
    if isinstance(value, str) and 0 < len(value) < 1000 and "\0" not in value:
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
