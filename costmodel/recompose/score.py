"""Predicted against measured over a set of plans, term by term."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from costmodel.errors import InputError
from costmodel.recompose.compose import Composition, compose, compose_measured
from costmodel.recompose.memory import stage_memory
from costmodel.recompose.plan_file import (
    MeasuredPlan,
    StageMeasurement,
    plan_files,
    read_plan,
)
from costmodel.recompose.profiles import PROFILES, plan_prices
from costmodel.units import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class TermScore:
    """One term of one stage: seconds of an iteration, or MiB."""

    term: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1.0 if self.measured else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanScore:
    """One plan.

    Attributes:
        iteration: Predicted from the tables alone.
        composed: Predicted from the measured stage times, None if a stage was not logged.
        stages: Terms by stage, empty where a stage was not logged.
    """

    name: str
    gpu_type: str
    nodes: int
    iteration: TermScore
    composed: TermScore | None
    stages: tuple[tuple[TermScore, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """All plans; those that could not be scored with the reason."""

    plans: tuple[PlanScore, ...]
    unpredicted: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """Signed relative errors, summarised."""

    count: int
    median_abs_error: float
    max_abs_error: float
    bias: float


def score_plans(plans: Iterable[MeasuredPlan], folder: Path = PROFILES) -> Scores:
    """Score every plan; one without a measured iteration or without prices is named with the reason."""
    scores: list[PlanScore] = []
    unpredicted: dict[str, str] = {}
    for plan in plans:
        if plan.iteration_s is None:
            unpredicted[plan.name] = plan.failure or "not measured"
            continue
        try:
            scores.append(_plan(plan, folder))
        except InputError as error:
            unpredicted[plan.name] = str(error)
    return Scores(plans=tuple(scores), unpredicted=unpredicted)


def score_folder(folder: Path, profiles: Path = PROFILES) -> Scores:
    """Score every plan file of a folder; one that is no plan is named with the reason.

    Raises:
        InputError: If the folder holds no plan files, or none of them is a plan.
    """
    plans, broken = [], {}
    for file in plan_files(folder):
        try:
            plans.append(read_plan(file))
        except InputError as error:
            broken[file.name] = error
    if not plans:
        raise next(iter(broken.values()))
    scores = score_plans(plans, profiles)
    unread = {name: str(error) for name, error in broken.items()}
    return replace(scores, unpredicted={**scores.unpredicted, **unread})


def summarise(errors: Sequence[float]) -> ErrorSummary | None:
    """Return the summary of signed errors, None for none."""
    if not errors:
        return None
    return ErrorSummary(
        count=len(errors),
        median_abs_error=statistics.median(map(abs, errors)),
        max_abs_error=max(map(abs, errors)),
        bias=statistics.median(errors),
    )


def summaries(scores: Sequence[PlanScore]) -> dict[str, ErrorSummary]:
    """Return the summaries that the accuracy of composition is judged by, by name."""
    found = {
        "iteration": summarise([score.iteration.error for score in scores]),
        "iteration one node": summarise([s.iteration.error for s in scores if s.nodes == 1]),
        "composition alone": summarise([s.composed.error for s in scores if s.composed]),
    }
    for gpu in dict.fromkeys(score.gpu_type for score in scores):
        for name in ("forward", "backward", "allocated", "reserved"):
            found[f"{gpu} {name}"] = summarise(_errors(scores, name, gpu))
    for name in ("allocated", "reserved"):
        found[name] = summarise(_errors(scores, name))
    return {name: summary for name, summary in found.items() if summary is not None}


def as_json(scores: Scores) -> dict[str, Any]:
    """Return scores and summaries as plain values."""
    return {
        "all": {name: asdict(summary) for name, summary in summaries(scores.plans).items()},
        "plans": [asdict(score) for score in scores.plans],
        "unpredicted": dict(scores.unpredicted),
    }


def as_text(scores: Scores, *, stages: bool = False) -> str:
    """Return a table of the plans, and the summaries; with ``stages`` also every term of every stage."""
    lines = [
        f"{'plan':34}{'nodes':>6}{'measured':>11}{'predicted':>11}{'error':>8}{'composed':>10}"
    ]
    for score in scores.plans:
        lines.append(_plan_line(score))
        if stages:
            lines += _stage_lines(score)
    lines += ["", f"{'error of':34}{'number':>8}{'median':>9}{'largest':>9}{'bias':>8}"]
    lines += [
        f"{name:34}{s.count:8}{s.median_abs_error:9.1%}{s.max_abs_error:9.1%}{s.bias:+8.1%}"
        for name, s in summaries(scores.plans).items()
    ]
    lines += [f"not scored: {name}: {reason}" for name, reason in scores.unpredicted.items()]
    return "\n".join(lines) + "\n"


def _plan_line(score: PlanScore) -> str:
    whole, composed = score.iteration, score.composed
    alone = f"{composed.error:+10.1%}" if composed else f"{'-':>10}"
    return (
        f"{score.name:34}{score.nodes:6}{whole.measured:9.2f} s{whole.predicted:9.2f} s"
        f"{whole.error:+8.1%}{alone}"
    )


def _stage_lines(score: PlanScore) -> list[str]:
    return [
        f"    stage {index:<3}{term.term:24}{term.measured:11.3f}{term.predicted:11.3f}{term.error:+8.1%}"
        for index, stage in enumerate(score.stages)
        for term in stage
    ]


def _errors(scores: Sequence[PlanScore], name: str, gpu: str | None = None) -> list[float]:
    return [
        term.error
        for score in scores
        if gpu in (None, score.gpu_type)
        for stage in score.stages
        for term in stage
        if term.term == name
    ]


def _plan(plan: MeasuredPlan, folder: Path) -> PlanScore:
    prices = plan_prices(plan, folder)
    composition = compose(plan, prices)
    measured_s = plan.iteration_s or 0.0
    alone = compose_measured(plan, prices)
    return PlanScore(
        name=plan.name,
        gpu_type=plan.gpu_type,
        nodes=plan.nodes,
        iteration=TermScore(
            term="iteration", measured=measured_s, predicted=composition.iteration_s
        ),
        composed=None
        if alone is None
        else TermScore(term="iteration", measured=measured_s, predicted=alone),
        stages=tuple(
            () if stage is None else _stage(plan, composition, index, stage, folder)
            for index, stage in enumerate(plan.measured)
        ),
    )


def _stage(
    plan: MeasuredPlan, composition: Composition, index: int, stage: StageMeasurement, folder: Path
) -> tuple[TermScore, ...]:
    price, m = composition.stages[index], plan.microbatches
    memory = stage_memory(plan, plan_prices(plan, folder), index)
    after = composition.finish
    pairs = {
        "forward": (stage.forward_s, price.forward_s * m),
        "backward": (stage.backward_s, price.backward_s * m),
        "transfers and waiting": (stage.exchange_s, composition.run.waited_s[index]),
        "gradient reduction": (stage.gradient_reduction_s, after.gradient_reduction_s[index]),
        "allocated": (stage.max_allocated_mib, memory.allocated_bytes / MIB),
        "reserved": (stage.max_reserved_mib, memory.reserved_bytes / MIB),
    }
    if index == 0:  # later stages wait here for the first, which ends its backward last
        pairs["embedding exchange"] = (stage.embedding_exchange_s, after.embedding_exchange_s)
        pairs["optimizer"] = (stage.optimizer_s, after.optimizer_s[index])
    return tuple(
        TermScore(term=name, measured=measured, predicted=predicted)
        for name, (measured, predicted) in pairs.items()
        if measured is not None
    )
