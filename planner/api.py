"""The Python face: plan, simulate and whatif, from a file, a mapping, a scenario or keywords.

>>> from planner import plan
>>> plan(model="llama-3.1-8b", cluster="dgx-h100", gpus=8, global_batch=64).best.strategy.tp
2
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from costmodel.errors import InputError
from planner.api_results import Answers, Prediction, Ranking
from planner.objectives import Effort, Objective, plan_for
from planner.scenario import Scenario
from planner.search import DEFAULT_TOLERANCE
from planner.simulation import simulate_strategy
from planner.source import Source, read_source, with_module
from planner.whatif_answers import (
    Answer,
    answer_fewest,
    answer_gpus,
    answer_grid,
    answer_largest,
    answer_lose,
    answer_memory,
)

Question = str | Path | Mapping[str, Any] | Scenario
"""A scenario file, a mapping with the keys of one, or a finished scenario."""


def make_scenario(
    source: Question | None = None, /, *, module: object = None, **settings: Any
) -> Scenario:
    """Return the scenario of a file, a mapping or keywords.

    Args:
        source: File or mapping to start from; without it the keywords say everything.
        module: A torch module instead of ``model``: ``(module, inputs)``, or ``"package.module:function"``
            that returns such a pair.
        **settings: Keys of a scenario file, by the short names that people use: ``model``, ``cluster``, ``gpus``,
            ``global_batch``, ``sequence``, ``framework``, ``precision``, ``attention``, ``tokens``, ``memory``,
            every decision of the search (``tp=8``, ``pp=[2, 4]``), or a whole part (``search={...}``).

    Raises:
        InputError: Naming the key, the value, the rule and the nearest legal value.
    """
    if isinstance(source, Scenario):
        if settings or module is not None:
            rule = "cannot change a finished scenario: give the file, a mapping or keywords"
            raise InputError(rule, key=next(iter(settings), "module"))
        return source
    return _source(source, module, settings).scenario()


def _source(
    given: str | Path | Mapping[str, Any] | None, module: object, settings: Mapping[str, Any]
) -> Source:
    if isinstance(given, str | Path):
        source = read_source(given)
    else:
        source = Source(data=given or {}, file="arguments" if given is None else "scenario")
    for key, value in settings.items():
        source = source.changed(key, value)
    return source if module is None else with_module(source, module)


def plan(
    source: Question | None = None,
    /,
    *,
    top: int = 10,
    gap: float = DEFAULT_TOLERANCE,
    time_limit_s: float | None = None,
    objective: Objective = "time",
    deadline_days: float | None = None,
    **settings: Any,
) -> Ranking:
    """Return the best plans of a scenario with the proof of how good the list is.

    Args:
        source: As for ``make_scenario``.
        top: How many plans to rank.
        gap: Gap that counts as proven; 0 asks for the exact proof.
        time_limit_s: After which the best so far is returned with its gap.
        objective: What the best plan is best at.
        deadline_days: For the objective ``gpus``.
        **settings: As for ``make_scenario``.

    Raises:
        InputError: If the scenario is wrong.
        TimeLimitError: If the time ended before any plan was found.
    """
    scenario = make_scenario(source, **settings)
    effort = Effort(top=top, tolerance=gap, time_limit_s=time_limit_s)
    result = plan_for(scenario, objective, effort, deadline_days=deadline_days)
    return Ranking(scenario=scenario, result=result)


def simulate(
    source: Question | None = None,
    /,
    *,
    strategy: str | Mapping[str, object],
    placement: str | Sequence[int] | None = None,
    **settings: Any,
) -> Prediction:
    """Return the prediction of one strategy, or the rules it breaks.

    Args:
        source: As for ``make_scenario``.
        strategy: ``"tp=8,pp=4"`` or ``{"tp": 8, "pp": 4}``; what is left out follows from the scenario.
        placement: Layers of each virtual stage, ``"20/20/20/20"`` or ``[20, 20, 20, 20]``.
        **settings: As for ``make_scenario``.

    Raises:
        InputError: If the scenario, the strategy or the placement cannot be read.
    """
    scenario = make_scenario(source, **settings)
    if not isinstance(strategy, str):
        strategy = ",".join(f"{name}={_text(value)}" for name, value in strategy.items())
    if placement is not None and not isinstance(placement, str):
        placement = "/".join(str(layers) for layers in placement)
    return Prediction(
        scenario=scenario, simulation=simulate_strategy(scenario, strategy, placement)
    )


def whatif(
    source: Question,
    /,
    *,
    memory: str | Sequence[str | float] | None = None,
    gpus: str | Sequence[int] | None = None,
    vary: Mapping[str, Sequence[object]] | None = None,
    fewest_gpus: bool = False,
    largest: str | None = None,
    lose: str | None = None,
) -> Answers:
    """Return how the best plan changes when one thing changes.

    Exactly one question is asked.

    Args:
        source: A file, a mapping or a scenario.
        memory: ``"sweep"`` for every threshold at which the best plan changes, or limits per GPU.
        gpus: ``"sweep"`` for powers of two up to the budget, or numbers of GPUs.
        vary: Values to try by key, ``{"precision": ["bf16", "fp8"]}``; several keys make a grid.
        fewest_gpus: The smallest number of GPUs on which a plan fits.
        largest: ``"global_batch"`` or ``"sequence"``: the largest that fits.
        lose: ``"node:1"``: what is left after losing nodes.

    Raises:
        InputError: If not exactly one question is asked, or the scenario is wrong.
    """
    asked = {"memory": memory, "gpus": gpus, "vary": vary, "largest": largest, "lose": lose}
    questions = [name for name, value in asked.items() if value is not None]
    if len(questions) + fewest_gpus != 1:
        raise InputError(f"must ask exactly one of {', '.join(asked)} and fewest_gpus")
    if vary is not None:
        return _named(source, answer_grid(_varied(source), vary))
    return _named(source, _answer(make_scenario(source), memory, gpus, largest, lose))


def _answer(
    scenario: Scenario,
    memory: str | Sequence[str | float] | None,
    gpus: str | Sequence[int] | None,
    largest: str | None,
    lose: str | None,
) -> Answer:
    if memory is not None:
        return answer_memory(scenario, _listed(memory))
    if gpus is not None:
        return answer_gpus(scenario, _listed(gpus))
    if largest is not None:
        return answer_largest(scenario, largest)
    return answer_fewest(scenario) if lose is None else answer_lose(scenario, lose)


def _varied(source: Question) -> Source:
    if isinstance(source, Scenario):
        raise InputError(
            "needs the scenario's file or mapping, not a finished scenario", key="vary"
        )
    return _source(source, None, {})


def _named(source: Question, answer: Answer) -> Answers:
    return Answers(heading=make_scenario(source).name, answer=answer)


def _listed(value: str | Sequence[object]) -> str:
    return value if isinstance(value, str) else ",".join(str(item) for item in value)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
