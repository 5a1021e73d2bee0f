"""Rules that people follow when they parallelise by hand, each priced on the scenario at hand.

A rule keeps some strategies of the space. What following it costs is the time of the best plan it keeps over that of the
best plan of all: a rule holds where that is nothing, and where it is not the numbers say so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.pricing import Pricer
from costmodel.strategy import Strategy
from costmodel.units import format_seconds
from planner.columns import Columns
from planner.engine import RankedPlan, search
from planner.mixed.cluster import spread_limit_bytes
from planner.rules import Mask
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.space import enumerate_space
from planner.systems import apply_system

HOLDS = 0.01
"""Following a rule at less than this relative cost counts as holding: the search's own ranking is no finer."""

_GUIDE = "SageMaker model parallel library guide, best practices"
_SURVEY = "Nichols et al. (arXiv 2111.04949), conclusions"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOfThumb:
    """One rule.

    Attributes:
        text: The rule in words.
        keeps: Mask of the strategies that follow it.
        source: Who gives it.
    """

    text: str
    keeps: Callable[[Columns, Scenario], Mask]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A rule on one scenario; ``followed`` is None where no plan that follows it fits."""

    name: str
    rule: RuleOfThumb
    best: RankedPlan
    followed: RankedPlan | None

    @property
    def cost(self) -> float:
        """How much longer an iteration takes when the rule is followed, relative; infinite where it cannot be."""
        if self.followed is None:
            return float("inf")
        return self.followed.iteration_ns / self.best.iteration_ns - 1

    def sentence(self) -> str:
        """Say with numbers whether the rule holds here."""
        best = _named(self.best)
        if self.followed is None:
            return f"{self.rule.text}: no plan that does so exists; the best is {best}"
        if self.cost <= HOLDS:
            return f"{self.rule.text}: holds here ({_named(self.followed)})"
        return (
            f"{self.rule.text}: costs {self.cost:.0%} here ({_named(self.followed)} against {best})"
        )


def judge_rules(scenario: Scenario, names: tuple[str, ...] | None = None) -> tuple[Judgement, ...]:
    """Return every rule (or the named ones) priced on ``scenario``; empty where no plan exists at all."""
    scenario = apply_system(scenario)
    columns, pricer = enumerate_space(scenario).columns, make_pricer(scenario)
    best = _fastest(columns, pricer, scenario)
    if best is None:
        return ()
    return tuple(
        Judgement(
            name=name,
            rule=rule,
            best=best,
            followed=_following(rule, columns, pricer, scenario, best),
        )
        for name, rule in RULES_OF_THUMB.items()
        if names is None or name in names
    )


def judgements_to_json(judgements: tuple[Judgement, ...]) -> dict[str, Any]:
    """Return the judgements in plain values; ``cost`` is null where the rule cannot be followed."""
    return {
        "schema": 1,
        "rules": [
            {
                "name": item.name,
                "text": item.rule.text,
                "source": item.rule.source,
                "cost": item.cost if item.followed else None,
                "holds": item.cost <= HOLDS,
                "sentence": item.sentence(),
            }
            for item in judgements
        ],
    }


def _fastest(columns: Columns, pricer: Pricer, scenario: Scenario) -> RankedPlan | None:
    found = search(
        columns,
        pricer,
        memory_limit_bytes=spread_limit_bytes(scenario),
        uneven=scenario.uneven_stages,
    )
    return found.ranked[0] if found.ranked else None


def _following(
    rule: RuleOfThumb, columns: Columns, pricer: Pricer, scenario: Scenario, best: RankedPlan
) -> RankedPlan | None:
    """Return the best plan under the rule; the shortest pipeline is the first depth on which a plan fits."""
    kept = columns.take(rule.keeps(columns, scenario))
    if rule is not RULES_OF_THUMB["short pipeline"]:
        return best if _kept(best.strategy, kept) else _fastest(kept, pricer, scenario)
    for depth in np.unique(kept.pp).tolist():
        found = _fastest(kept.take(kept.pp == depth), pricer, scenario)
        if found is not None:
            return found
    return None


def _kept(strategy: Strategy, columns: Columns) -> bool:
    return any(columns.strategy(row) == strategy for row in range(len(columns)))


def _named(plan: RankedPlan) -> str:
    strategy = plan.strategy
    sizes = f"{strategy.micro_batch} x {strategy.microbatches}"
    return f"{strategy.label()}, {sizes}, {format_seconds(plan.iteration_ns / 1e9)}"


def _everything(columns: Columns, scenario: Scenario) -> Mask:
    del scenario
    return np.ones(len(columns), dtype=np.bool_)


def _only_data(columns: Columns, scenario: Scenario) -> Mask:
    del scenario
    return np.asarray((columns.tp == 1) & (columns.pp == 1) & (columns.cp == 1))


def _tensor_in_node(columns: Columns, scenario: Scenario) -> Mask:
    return np.asarray(columns.tp <= scenario.cluster.gpus_per_node)


def _full_pipeline(columns: Columns, scenario: Scenario) -> Mask:
    del scenario
    return np.asarray(columns.microbatches >= columns.pp)


def _tensor_power_of_two(columns: Columns, scenario: Scenario) -> Mask:
    del scenario
    return np.asarray(columns.tp & (columns.tp - 1) == 0)


def _sharded(columns: Columns, scenario: Scenario) -> Mask:
    del scenario
    return np.asarray((columns.zero > 0) | (columns.dp * columns.cp == 1))


RULES_OF_THUMB: Mapping[str, RuleOfThumb] = {
    "data parallel first": RuleOfThumb(
        text="use data parallelism alone where the model fits", keeps=_only_data, source=_SURVEY
    ),
    "tensor inside the node": RuleOfThumb(
        text="keep tensor parallelism inside a node, send pipelines across",
        keeps=_tensor_in_node,
        source=_SURVEY,
    ),
    "short pipeline": RuleOfThumb(
        text="make the pipeline as short as possible", keeps=_everything, source=_GUIDE
    ),
    "full pipeline": RuleOfThumb(
        text="use at least as many micro-batches as stages", keeps=_full_pipeline, source=_GUIDE
    ),
    "tensor a power of two": RuleOfThumb(
        text="use a power of two of tensor-parallel ranks",
        keeps=_tensor_power_of_two,
        source=_GUIDE,
    ),
    "sharded optimizer": RuleOfThumb(
        text="shard the optimizer state over the replicas", keeps=_sharded, source=_GUIDE
    ),
}
"""Every rule by name."""
