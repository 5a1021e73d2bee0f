"""What every export target declares, and how a plan is held against the declaration.

A target names each plan field either as exported or as inexpressible with the reason. A plan whose value of an
inexpressible field differs from the neutral one is refused before anything is written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields

from costmodel.errors import InputError
from costmodel.spec import ClusterSpec, ModelSpec, TrainingSpec
from costmodel.strategy import FIELD_NAMES, Strategy
from planner.plans import Chunk, Placement, Plan

PLACEMENT_FIELDS: tuple[str, ...] = tuple(
    f"placement.{item.name}"
    for owner in (Chunk, Placement)
    for item in fields(owner)
    if item.name != "chunks"
)
PLAN_FIELDS: tuple[str, ...] = FIELD_NAMES + PLACEMENT_FIELDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A plan together with the question it answers: all that an exporter may use.

    Attributes:
        notice: What a reader of the files must know: how the plan differs from the one asked for.
    """

    plan: Plan
    model: ModelSpec
    cluster: ClusterSpec
    training: TrainingSpec
    notice: str = ""

    @property
    def strategy(self) -> Strategy:
        """The plan's strategy."""
        return self.plan.strategy

    @property
    def placement(self) -> Placement:
        """The plan's placement."""
        return self.plan.placement

    @property
    def gpus_per_node(self) -> int:
        """GPUs the plan uses in each node."""
        return min(self.strategy.gpus, self.cluster.gpus_per_node)

    @property
    def nodes(self) -> int:
        """Nodes the plan uses."""
        return -(-self.strategy.gpus // self.gpus_per_node)

    @property
    def experts(self) -> bool:
        """Whether any layer of the model routes tokens to experts."""
        return any(kind.mlp is not None and kind.mlp.experts > 0 for kind in self.model.kinds)

    @property
    def even(self) -> bool:
        """Whether every virtual stage holds the same number of layers."""
        return len(set(self.placement.layer_counts())) == 1

    @property
    def recomputed(self) -> tuple[int, ...]:
        """Fully recomputed layers of each virtual stage."""
        if self.strategy.recompute == "full":
            return self.placement.layer_counts()
        return tuple(chunk.recomputed for chunk in self.placement.chunks)

    @property
    def recomputes_all(self) -> bool:
        """Whether every layer recomputes fully."""
        return self.recomputed == self.placement.layer_counts()

    @property
    def recomputes_some(self) -> bool:
        """Whether some layers recompute fully and others do not."""
        return any(self.recomputed) and not self.recomputes_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a target cannot express a plan: the field, the rule, the value and the nearest that it can."""

    field: str
    rule: str
    value: object = None
    nearest: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One framework to launch with.

    Attributes:
        name: As given on the command line.
        version: Releases whose spellings the files follow; named inside each file.
        exported: Plan fields that the files carry.
        inexpressible: The other plan fields, each with the reason; a plan that needs one is refused.
        refuse: Further reasons against a plan: legal fields in combinations that the target lacks.
        files: Text of each file by its name.
    """

    name: str
    version: str
    exported: frozenset[str]
    inexpressible: Mapping[str, str]
    refuse: Callable[[Launch], Iterable[Refusal]]
    files: Callable[[Launch], Mapping[str, str]]

    def check(self, launch: Launch) -> None:
        """Check that the target can express the plan.

        Raises:
            InputError: Naming the first field that it cannot, the reason and the nearest value it can.
        """
        for refusal in self.refusals(launch):
            raise InputError(
                f"{self.version} cannot express this plan: {refusal.rule}",
                key=refusal.field,
                value=refusal.value,
                nearest=refusal.nearest,
            )

    def refusals(self, launch: Launch) -> Iterator[Refusal]:
        """Yield each reason for which the target cannot express the plan."""
        for name, value in departures(launch).items():
            if name in self.inexpressible:
                yield Refusal(field=name, rule=self.inexpressible[name], value=value)
        yield from self.refuse(launch)


def departures(launch: Launch) -> dict[str, object]:
    """Return the plan fields whose values matter and differ from the neutral ones, with their values."""
    strategy, neutral = launch.strategy, Strategy()
    idle = _idle_fields(launch)
    changed: dict[str, object] = {
        name: getattr(strategy, name)
        for name in FIELD_NAMES
        if name not in idle and getattr(strategy, name) != getattr(neutral, name)
    }
    if not launch.even:
        changed["placement.layers"] = launch.placement.label()
    if launch.recomputes_some:
        changed["placement.recomputed"] = launch.recomputed
    if len(set(launch.placement.device_groups)) > 1:
        changed["placement.device_groups"] = launch.placement.device_groups
    return changed


def unordered_groups(launch: Launch) -> Iterator[Refusal]:
    """Yield a refusal if pipeline ranks do not run through the device groups in node order.

    For targets whose pipeline is the outermost dimension of ranks: listing the nodes group by group places it.
    """
    groups = launch.placement.device_groups
    if list(groups) != sorted(groups):
        yield Refusal(
            field="placement.device_groups",
            rule="pipeline ranks follow the order of the nodes",
            value=groups,
            nearest=(tuple(sorted(groups)),),
        )


def orders(order: str, strategy: Strategy) -> tuple[str, ...]:
    """Return the degrees above one in the order of ``placement_order``, nearest ranks first."""
    return tuple(name for name in order.split("-") if getattr(strategy, name) > 1)


def _idle_fields(launch: Launch) -> set[str]:
    """Return fields that change nothing in this plan, whatever their value."""
    strategy, neutral = launch.strategy, Strategy()
    sharding = strategy.dp * strategy.cp
    conditions = {
        "schedule": strategy.pp == 1 or strategy.schedule == "interleaved",
        "sequence_parallel": strategy.tp == 1,
        "zero": sharding == 1,
        "zero_group": strategy.zero == 0 or strategy.sharding_ranks >= sharding,
        "etp": not launch.experts,
        "placement_order": orders(strategy.placement_order, strategy)
        == orders(neutral.placement_order, strategy),
    }
    return {name for name, idle in conditions.items() if idle}
