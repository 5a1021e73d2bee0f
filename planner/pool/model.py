"""What is given: a pool of GPU groups and the models that want them. Frozen values, hours and GPUs."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.errors import InputError


class Objective(enum.StrEnum):
    """What a shared schedule is best in."""

    MAKESPAN = "makespan"
    WEIGHTED_COMPLETION = "weighted_completion"
    DEADLINES = "deadlines"
    COST = "cost"


class BatchMode(enum.StrEnum):
    """Whether every model is planned by itself, or all of them share the pool."""

    EACH = "each"
    SHARE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """GPUs that may be taken back at any time, at a lower price.

    Attributes:
        discount: Share of the price that is saved, 0 to 1.
        interruptions_per_node_hour: Rate at which one node is taken back.
        checkpoint_every_h: Hours between two checkpoints; half of that is lost per interruption.
        restart_h: Hours from an interruption until the training runs again.
    """

    discount: float
    interruptions_per_node_hour: float
    checkpoint_every_h: float = 1.0
    restart_h: float = 0.25

    def stretched_hours(self, hours: float, nodes: int) -> float | None:
        """Return the expected hours of ``hours`` of work on ``nodes`` spot nodes; None if it never ends.

        Any node taken back stops all of them. Each interruption costs the restart and on average half a
        checkpoint interval, so a share ``rate * nodes * (restart + interval / 2)`` of the time is lost
        (first-order model of Young, CACM 17(9), 1974, equation 1).
        """
        lost = self.interruptions_per_node_hour * nodes
        lost *= self.restart_h + self.checkpoint_every_h / 2
        return hours / (1 - lost) if lost < 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuGroup:
    """Equal GPUs in equal nodes, handed out by the whole node.

    Attributes:
        name: Word for reports, and what a model's ``groups`` refer to.
        cluster: Catalog name or file of the cluster whose nodes these are.
        gpus: GPUs in the group, a multiple of ``gpus_per_node``.
        from_h, until_h: Hours from now between which the group can be used; None is without end.
        price_per_gpu_hour: In the user's currency; 0 where nothing is paid.
        spot: Terms of interruptible use, if offered.
    """

    name: str
    cluster: str
    gpus: int
    gpus_per_node: int = 8
    from_h: float = 0.0
    until_h: float | None = None
    price_per_gpu_hour: float = 0.0
    spot: Spot | None = None

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.gpus % self.gpus_per_node:
            nearest = max(1, self.gpus // self.gpus_per_node) * self.gpus_per_node
            rule = f"must be a multiple of gpus_per_node ({self.gpus_per_node})"
            raise InputError(rule, key="gpus", value=self.gpus, nearest=nearest)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.gpus // self.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One model of the pool file, before anything is planned.

    Attributes:
        name: Word for reports, unique in the pool.
        scenario: Path of its scenario file; where it stands in the pool file, the place there.
        content: The scenario itself, if it stands in the pool file.
        base: Folder that paths inside ``content`` are relative to.
        tokens: Tokens to train; None takes what the scenario says.
        deadline_h: Hours from now by which it should be done.
        priority: Weight in the objectives.
        min_gpus, max_gpus: Range of GPUs; None leaves it to what fits and to the group.
        groups: Names of the groups it may use; empty means all.
        checkpoints: Shares of its work, rising, at which it may be resized or paused.
        restart_h: Hours that a resize or pause costs.
    """

    name: str
    scenario: str
    content: Mapping[str, object] | None = None
    base: str = ""
    tokens: float | None = None
    deadline_h: float | None = None
    priority: int = 1
    min_gpus: int | None = None
    max_gpus: int | None = None
    groups: tuple[str, ...] = ()
    checkpoints: tuple[float, ...] = ()
    restart_h: float = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool file: groups, models and how to judge.

    Attributes:
        tick_h: The pool hands out nodes for whole ticks; hours of work are rounded up to them.
        gap: The search stops once the schedule is proven this close to the best.
        time_limit_s: Seconds of solving after which the best schedule found is the answer.
    """

    mode: BatchMode
    groups: tuple[GpuGroup, ...]
    requests: tuple[Request, ...]
    objective: Objective = Objective.MAKESPAN
    gap: float = 0.01
    time_limit_s: float = 60.0
    tick_h: float = 1 / 60


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """One way to train a model: so many GPUs of one group for so long.

    Attributes:
        group: Name of the group.
        gpus: GPUs the plan uses; the nodes that hold them are reserved whole.
        iteration_s: Seconds of one iteration.
        hours: Hours of the whole training, with the expected loss of interruptions on spot GPUs.
        cost: Price of the reserved nodes over ``hours``.
        spot: Whether the GPUs are interruptible.
        plan: Label of the planned strategy, for reports.
    """

    group: str
    gpus: int
    iteration_s: float
    hours: float
    cost: float
    spot: bool = False
    plan: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One model with its front: what the shared schedule decides over.

    Attributes:
        front: The ways to train it; one of them is chosen, or one per piece between checkpoints.
        checkpoints: Shares of the work, rising and strictly inside (0, 1), at which it may be resized.
        restart_h: Hours that a resize or pause adds to the piece that follows.
    """

    name: str
    front: tuple[FrontPoint, ...]
    priority: int = 1
    deadline_h: float | None = None
    checkpoints: tuple[float, ...] = ()
    restart_h: float = 0.25
