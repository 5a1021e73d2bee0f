"""The space of a scenario: every strategy its bounds and the legality rules leave, as columns.

The grid is grown decision by decision, each time followed by the rules that can already be judged, so that
illegal combinations never multiply; what each rule rejects is counted with one example.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.memory_behaviour import memory_behaviour
from costmodel.strategy import RECOMPUTES, SCHEDULES, Strategy
from planner.columns import COLUMN_NAMES, Columns, IntColumn, columns_of
from planner.rules import RULES, Facts, Rule, facts_of
from planner.scenario import Scenario

_DEFAULTS = {name: int(columns_of((Strategy(),)).column(name)[0]) for name in COLUMN_NAMES}

MAX_TENSOR = 64
"""Tensor ranks tried at most: beyond a node a layer is bound by its collectives (Megatron, SC'21, section 5.4)."""
MAX_VPP = 8
"""Chunks per rank tried at most, the largest in published Megatron recipes (Nemotron-340B uses 12 when fixed)."""
MAX_MICRO_BATCH = 64
"""Sequences per micro-batch tried at most; larger ones no longer change matmul efficiency."""


_GRID_RULES: Mapping[str, tuple[str, ...]] = {
    "world_product": ("dp", "tp", "pp", "cp"),
    "sequence_parallel_tp": ("sequence_parallel",),
    "zero_replicas": ("zero",),
    "vpp_schedule": ("vpp", "schedule"),
    "schedule_framework": ("schedule",),
}
"""Rules that only say which rows of the full grid make sense, with the decisions whose bounds make them news."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRejection:
    """What one rule rejected: how many grid rows, and one of them."""

    rule: Rule
    count: int
    example: Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The legal strategies of a scenario and what fell to each rule."""

    columns: Columns
    rejections: tuple[RuleRejection, ...]


def enumerate_space(scenario: Scenario) -> Space:
    """Return every legal strategy within the scenario's bounds."""
    return _Grid(scenario).grown()


def admitted(columns: Columns, name: str, scenario: Scenario) -> NDArray[np.bool_]:
    """Return which rows take a value of the decision ``name`` that the scenario's bound admits."""
    values, place = np.unique(columns.column(name), return_inverse=True)
    bound = scenario.bound(name)
    return np.array([bound.admits(_decoded(name, int(value))) for value in values])[place]


class _Grid:
    """The growing table of partial strategies, one array per decision made so far."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._facts: Facts = facts_of(scenario)
        self._columns: dict[str, IntColumn] = {
            "gpus": np.array(scenario.gpu_counts, dtype=np.int64)
        }
        self._rejections: dict[str, RuleRejection] = {}
        self._judged: set[str] = set()

    def grown(self) -> Space:
        """Return the finished space."""
        gpus, batch = self._facts.gpu_counts[-1], self._facts.global_batch
        legality = self._facts.legality
        tensor = _divisors_of_any(self._facts.gpu_counts, MAX_TENSOR)
        stages = _divisors_of_any(self._facts.gpu_counts, gpus)
        self._cross("tp", tensor if legality.tensor else (1,))
        self._cross("pp", stages if legality.pipeline else (1,))
        self._cross("cp", _powers_of_two(gpus) if legality.context else (1,))
        self._derive("dp", lambda c: c["gpus"] // (c["tp"] * c["pp"] * c["cp"]))
        self._judge(
            "framework_degrees", "world_product", "heads_mod_tp", "kv_heads_mod_tp", "seq_mod_cp"
        )
        self._judge("layers_lt_stages", "group_capacity")
        self._cross("micro_batch", _powers_of_two(min(MAX_MICRO_BATCH, batch)))
        self._derive("microbatches", lambda c: np.maximum(batch // (c["micro_batch"] * c["dp"]), 1))
        self._judge("batch_product", "microbatches_lt_pp")
        experts = _divisors_of_any((self._facts.experts or 1,), gpus)
        self._cross("ep", experts if legality.expert else (1,))
        self._cross("etp", self._expert_tensor())
        self._judge("framework_degrees", "experts_mod_ep", "expert_world")
        self._cross("schedule", self._schedules())
        self._cross("vpp", tuple(range(1, MAX_VPP + 1)))
        self._judge(
            "schedule_framework",
            "vpp_schedule",
            "vpp_microbatches",
            "layers_lt_stages",
            "layers_mod_pp",
        )
        self._cross("sequence_parallel", (0, 1))
        self._judge("sequence_parallel_tp", "seq_mod_tp", "moe_sequence_parallel")
        self._cross("zero", legality.zero)
        self._cross("zero_group", self._groups())
        self._judge("zero_pp", "zero_replicas", "zero_group_divides", "context_sharding")
        self._cross("recompute", self._recomputes())
        return Space(columns=self._view(), rejections=tuple(self._rejections.values()))

    def _schedules(self) -> tuple[int, ...]:
        """Schedules of the framework; all where the scenario names some, so that a foreign one is rejected by rule."""
        asked = self._scenario.bound("schedule").allowed
        names = SCHEDULES if asked is not None else ("1f1b", *self._facts.legality.schedules)
        return tuple(code for code, name in enumerate(SCHEDULES) if name in names)

    def _expert_tensor(self) -> tuple[int, ...]:
        """Experts are cut like dense layers or not at all, the two forms people launch."""
        cut = self._facts.experts and self._facts.legality.tensor
        return _powers_of_two(self._facts.gpus_per_node) if cut else (1,)

    def _groups(self) -> tuple[int, ...]:
        """Shard over all replicas, or (hybrid sharding) inside a node."""
        bound = self._scenario.bound("zero_group").allowed
        if bound is not None:
            return tuple(int(str(value)) for value in bound)
        return (0,)

    def _recomputes(self) -> tuple[int, ...]:
        """What layers that do not recompute fully may recompute; ``full`` alone makes every layer recompute fully.

        Selective recomputation of the attention core drops the unfused scores; fused attention keeps none, so
        there it would save nothing.
        """
        training, asked = self._scenario.training, self._scenario.bound("recompute").allowed
        if asked == ("full",):
            return (RECOMPUTES.index("full"),)
        core_only = memory_behaviour(training).selective == "core"
        fused = training.attention == "flash" and core_only and asked is None
        return tuple(RECOMPUTES.index(name) for name in ("none", "selective")[: 1 if fused else 2])

    def _cross(self, name: str, values: Sequence[int]) -> None:
        """Combine every row with every value the decision's bound admits."""
        admitted = [value for value in values if self._admits(name, value)]
        admitted += [v for v in self._asked(name) if v not in admitted]
        rows = len(next(iter(self._columns.values())))
        if len(admitted) != 1:
            self._columns = {
                key: np.repeat(column, len(admitted)) for key, column in self._columns.items()
            }
        self._columns[name] = np.tile(np.array(admitted, dtype=np.int64), rows)

    def _admits(self, name: str, value: int) -> bool:
        return self._scenario.bound(name).admits(_decoded(name, value))

    def _asked(self, name: str) -> list[int]:
        """Return values the user named that the default grid does not try."""
        allowed = self._scenario.bound(name).allowed or ()
        return [
            value for value in allowed if isinstance(value, int) and not isinstance(value, bool)
        ]

    def _derive(self, name: str, rule: Callable[[dict[str, IntColumn]], IntColumn]) -> None:
        values = rule(self._columns)
        admitted = [self._admits(name, int(value)) for value in np.unique(values)]
        keep = np.isin(values, np.unique(values)[admitted])
        self._columns = {key: column[keep] for key, column in self._columns.items()}
        self._columns[name] = values[keep]

    def _judge(self, *names: str) -> None:
        """Drop rows that break one of the rules, counting them."""
        for name in names:
            rule = next(rule for rule in RULES if rule.name == name)
            view = self._view()
            if not len(view):
                return
            legal = rule.holds(view, self._facts)
            if legal.all():
                continue
            if self._tells(name):
                self._reject(rule, int((~legal).sum()), view.strategy(int(np.argmin(legal))))
            self._columns = {key: column[legal] for key, column in self._columns.items()}

    def _tells(self, name: str) -> bool:
        """Return whether a rejection says something: a grid's own misfits do not, a bound the user set does."""
        decisions = _GRID_RULES.get(name)
        return decisions is None or any(item in self._scenario.bounds for item in decisions)

    def _reject(self, rule: Rule, count: int, example: Strategy) -> None:
        before = self._rejections.get(rule.name)
        self._rejections[rule.name] = RuleRejection(
            rule=rule,
            count=count + (before.count if before else 0),
            example=before.example if before else example,
        )

    def _view(self) -> Columns:
        """Return the rows so far; decisions not yet made stand at their defaults."""
        rows = len(self._columns["gpus"])
        arrays: dict[str, Any] = {
            name: self._columns.get(name, np.broadcast_to(np.int64(_DEFAULTS[name]), rows))
            for name in COLUMN_NAMES
        }
        return Columns(**arrays)


def _decoded(name: str, value: int) -> object:
    if name == "schedule":
        return SCHEDULES[value]
    if name == "recompute":
        return RECOMPUTES[value]
    return bool(value) if name == "sequence_parallel" else value


def _divisors_of_any(numbers: Sequence[int], limit: int) -> tuple[int, ...]:
    """Return all divisors up to ``limit``, rising: of each pair that makes the number one is at most its root."""
    small = {
        (n, number // n)
        for number in numbers
        for n in range(1, isqrt(number) + 1)
        if number % n == 0
    }
    return tuple(sorted({divisor for pair in small for divisor in pair if divisor <= limit}))


def _powers_of_two(limit: int) -> tuple[int, ...]:
    return tuple(1 << i for i in range(limit.bit_length()) if 1 << i <= limit)
