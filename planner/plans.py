"""The answer: plans with their predictions, what was rejected and how sure the ranking is."""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from costmodel.strategy import Strategy


class SearchStatus(enum.StrEnum):
    """How the search ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive layers on one virtual stage; ``recomputed`` of them recompute fully (the first ones)."""

    first_layer: int
    layers: int
    recomputed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Which layers stand on which virtual stage.

    Attributes:
        chunks: One per virtual stage in model order; virtual stage ``v`` runs on rank ``v % pp``
            as its chunk ``v // pp``.
        device_groups: For each pipeline rank the index of the cluster's device group it runs on; empty in a cluster
            of one group, and for a strategy that no group can hold, which is spread over all of them.
    """

    chunks: tuple[Chunk, ...]
    device_groups: tuple[int, ...] = ()

    def layer_counts(self) -> tuple[int, ...]:
        """Return the number of layers of each virtual stage, in model order."""
        return tuple(chunk.layers for chunk in self.chunks)

    def label(self) -> str:
        """Return the form people write: ``20/20/20/20``."""
        return "/".join(str(count) for count in self.layer_counts())


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """One pipeline rank of a plan.

    Attributes:
        chunks: The layers it holds.
        memory_bytes: Peak reserved bytes; ``allocated_bytes`` what the framework's counter would show.
        memory: Bytes by term at the peak moment.
        forward_s, backward_s: Seconds of one micro-batch over all its chunks.
        device: What it runs on in a cluster of several device groups; empty elsewhere.
        memory_limit_bytes: Limit of that device; the plan's own limit where there is one group.
    """

    chunks: tuple[Chunk, ...]
    memory_bytes: float
    allocated_bytes: float
    memory: Mapping[str, float]
    peak_moment: str
    forward_s: float
    backward_s: float
    device: str = ""
    memory_limit_bytes: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Strategy, placement and their prediction.

    Attributes:
        iteration_s: Simulated seconds of an iteration, with the 80 % band ``iteration_s_low`` to ``_high``.
        mfu: Model FLOPs (6 per parameter and token and the causal attention) over the GPUs' peak.
        time: Seconds of the critical rank by term; they sum to ``iteration_s``.
        price_shares: Share of the iteration's time by the provenance of its prices (planner.price_shares).
        price_shares: Share of priced seconds that was measured, interpolated, analytic.
        memory_limit_bytes: What a GPU may hold; of several device groups, the largest limit among those used.
        tied_with: Ranks of plans that differ by less than the band.
        demand_bytes: Smallest memory limit that admits the plan, the peak rounded up as the search does.
    """

    rank: int
    strategy: Strategy
    placement: Placement
    stages: tuple[StageReport, ...]
    iteration_s: float
    iteration_s_low: float
    iteration_s_high: float
    tokens_per_s: float
    mfu: float
    memory_limit_bytes: float
    time: Mapping[str, float]
    price_shares: Mapping[str, float] = field(default_factory=dict)
    tied_with: tuple[int, ...] = ()
    demand_bytes: float = 0.0

    @property
    def peak_memory_bytes(self) -> float:
        """Bytes of the fullest stage."""
        return max(stage.memory_bytes for stage in self.stages)

    def limit_bytes(self, stage: StageReport) -> float:
        """Return what a GPU of ``stage`` may hold."""
        return min(self.memory_limit_bytes, stage.memory_limit_bytes)

    @property
    def tightest(self) -> StageReport:
        """The stage with the least room under its limit: the fullest one where all have the same limit."""
        return max(self.stages, key=lambda stage: stage.memory_bytes - self.limit_bytes(stage))

    @property
    def fits(self) -> bool:
        """Whether every stage stays under its limit."""
        return self.tightest.memory_bytes <= self.limit_bytes(self.tightest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Strategies that fell to one rule or resource.

    Attributes:
        reason: Name of the rule ("heads_mod_tp") or "memory".
        count: How many strategies fell to it first.
        nearest: What would lift it, in words.
    """

    reason: str
    count: int
    nearest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCounts:
    """Effort of a search; ``seconds`` covers pricing, solving, simulating and ranking."""

    strategies: int
    solved: int
    simulated: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Ranked plans with their certificate.

    Attributes:
        lower_bound_s: No plan of the space simulates faster than this.
        gap: (iteration of the first plan - lower_bound_s) / iteration of the first plan.
        levers: If nothing fits, the smallest changes that would make something fit, in words.
    """

    status: SearchStatus
    plans: tuple[Plan, ...]
    lower_bound_s: float
    gap: float
    rejected: tuple[Rejection, ...]
    counts: SearchCounts
    levers: tuple[str, ...] = ()
