"""Which plan to choose.

    >>> from planner import plan
    >>> print(plan("scenarios/examples/llama-3.1-70b-64xh100.yaml"))  # doctest: +SKIP

Nothing is imported before it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costmodel.errors import InputError as InputError
    from costmodel.errors import ShardplanError as ShardplanError
    from planner.api import make_scenario as make_scenario
    from planner.api import plan as plan
    from planner.api import simulate as simulate
    from planner.api import whatif as whatif
    from planner.api_results import Answers as Answers
    from planner.api_results import Prediction as Prediction
    from planner.api_results import Ranking as Ranking
    from planner.plans import Plan as Plan
    from planner.scenario import Scenario as Scenario
    from planner.scenario_file import load_scenario as load_scenario

__all__ = [
    "Answers",
    "InputError",
    "Plan",
    "Prediction",
    "Ranking",
    "Scenario",
    "ShardplanError",
    "load_scenario",
    "make_scenario",
    "plan",
    "simulate",
    "whatif",
]

_HOMES = {
    "costmodel.errors": ("InputError", "ShardplanError"),
    "planner.api": ("make_scenario", "plan", "simulate", "whatif"),
    "planner.api_results": ("Answers", "Prediction", "Ranking"),
    "planner.plans": ("Plan",),
    "planner.scenario": ("Scenario",),
    "planner.scenario_file": ("load_scenario",),
}


def __getattr__(name: str) -> object:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
