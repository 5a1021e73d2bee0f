"""Cases of people who do this job (tests/data/users_cases.yaml): verdicts, memory, legality, order, time."""

from pathlib import Path
from typing import Any

import pytest

from costmodel import catalog
from costmodel.load import read_yaml
from costmodel.local_parameters import padded
from costmodel.memory_behaviour import memory_behaviour
from costmodel.verdict import verdict
from planner.export.layout import parse_layout
from tests.users_cases.build import Facts, peaks, placement, ranks, setting, verdict_of
from tests.users_cases.checks import KINDS, broken, counter, kind_of, tokens_per_s_gpu

CASES: list[dict[str, Any]] = read_yaml(Path(__file__).parent / "data" / "users_cases.yaml")  # type: ignore[assignment]
CHECKS = [
    pytest.param({**case.get("base", {}), **check}, kind_of(check), id=f"{case['id']}.{number}")
    for case in CASES
    for number, check in enumerate(case.get("checks", ()), 1)
]


@pytest.mark.parametrize(("facts", "kind"), CHECKS)
def test_case(facts: Facts, kind: str) -> None:
    if kind == "code":
        _CODE[facts["code"]](facts)
    else:
        KINDS[kind](facts)


def all_layers_placed(facts: Facts) -> None:
    case = setting(facts)
    assert sum(case.layers) == len(case.graph.layers)
    assert sum(chunk.layers for chunk in placement(case).chunks) == len(case.graph.layers)


_CODE = {function.__name__: function for function in (all_layers_placed,)}
