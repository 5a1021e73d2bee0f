"""Prices of a strategy whose pipeline ranks run on several device groups.

Each group has its own pricer: compute, memory and the links between its GPUs are its own; tensor-, context- and
data-parallel groups lie inside a pipeline rank, so their collectives never leave the group. A boundary between ranks on
two groups is priced on the outermost link of either group and takes the slower of the two; as within a group, the sender
waits for the exposed share and the rest is under way. The all-reduce of a tied embedding between the first and the last
rank likewise takes the slower of the two outermost links where these are on different groups.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from costmodel.cost import Finish, StrategyCost
from costmodel.linear import StageTerm, add, term
from costmodel.strategy import Strategy
from planner.coefficients import Coefficients, coefficients, to_ns
from planner.mixed.coefficients import Matrix, MixedCoefficients
from planner.pricer import PricerLike

Seconds = tuple[tuple[float, ...], ...]
_WAIT, _TIED = "pp_comm", "tied_embedding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One device group as the search sees it.

    Attributes:
        pricer: Prices strategies as if all GPUs were like its own.
        gpus: How many it has.
        usable_bytes: What one of its GPUs can hold; the limit of the scenario may be lower.
        inner_gpus: GPUs joined by all its links but the outermost: a longer pipeline crosses that.
    """

    pricer: PricerLike
    gpus: int
    usable_bytes: float
    inner_gpus: int = 1

    def limit_bytes(self, limit_bytes: float) -> float:
        """Return what a GPU of the group may hold under the limit of a scenario."""
        return min(limit_bytes, self.usable_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joints:
    """Seconds by group and group: under way over their boundary, waited more than at home, tied all-reduce."""

    crossing_s: Seconds
    wait_s: Seconds
    tied_s: Seconds


class GroupPrices:
    """Prices strategies on the groups of one cluster.

    Args:
        groups: In the order of the cluster.
        slowest: Index of the group like which a strategy is priced that is spread over all.
    """

    def __init__(self, groups: Sequence[Group], slowest: int) -> None:
        self.groups, self.slowest = tuple(groups), slowest

    def slots(self, strategy: Strategy) -> tuple[int, ...]:
        """Return how many pipeline ranks of ``strategy`` each group can hold, at most all of them."""
        each = strategy.tp * strategy.cp * strategy.dp
        return tuple(min(strategy.pp, group.gpus // each) for group in self.groups)

    def coefficients(self, strategy: Strategy, limit_bytes: float) -> MixedCoefficients:
        """Return the integer prices of ``strategy`` on every group and between them."""
        by_group = tuple(
            coefficients(group.pricer.cost(strategy), group.limit_bytes(limit_bytes))
            for group in self.groups
        )
        return self.joined(strategy, by_group)

    def joined(self, strategy: Strategy, by_group: tuple[Coefficients, ...]) -> MixedCoefficients:
        """Return the integer prices of ``strategy`` on every group with what lies between them."""
        joints = self.joints(strategy)
        tied = [self._tied(group.pricer, strategy) for group in self.groups]
        return MixedCoefficients(
            by_group=by_group,
            slots=self.slots(strategy),
            crossing_ns=_nanoseconds(joints.crossing_s),
            wait_ns=_nanoseconds(joints.wait_s),
            tied_ns=tuple(
                tuple(
                    0 if at == other else to_ns(seconds) - to_ns(tied[at])
                    for other, seconds in enumerate(row)
                )
                for at, row in enumerate(joints.tied_s)
            ),
        )

    def joints(self, strategy: Strategy) -> Joints:
        """Return what joins the groups; nothing without a pipeline."""
        if strategy.pp == 1:
            nothing = _pairs([0.0] * len(self.groups))
            return Joints(crossing_s=nothing, wait_s=nothing, tied_s=nothing)
        far = [self._across(group, strategy) for group in self.groups]
        under_way = [
            max(group.pricer.transfer(one)) for group, one in zip(self.groups, far, strict=True)
        ]
        waits = [_wait(group.pricer, one) for group, one in zip(self.groups, far, strict=True)]
        # Whether a model ties its embedding does not depend on the link.
        ties = any(self._tied(group.pricer, strategy) for group in self.groups)
        tied = [
            self._tied(group.pricer, one) if ties else 0.0
            for group, one in zip(self.groups, far, strict=True)
        ]
        own = [_wait(group.pricer, strategy) for group in self.groups]
        return Joints(
            crossing_s=_pairs(under_way),
            wait_s=tuple(
                tuple(max(0.0, wait - home) if wait else 0.0 for wait in row)
                for row, home in zip(_pairs(waits), own, strict=True)
            ),
            tied_s=_pairs(tied),
        )

    @staticmethod
    def _across(group: Group, strategy: Strategy) -> Strategy:
        """Return the strategy with a pipeline long enough to cross the outermost link of the group."""
        each = strategy.tp * strategy.cp * strategy.dp
        return replace(strategy, pp=group.inner_gpus // each + 2)

    @staticmethod
    def _tied(pricer: PricerLike, strategy: Strategy) -> float:
        if strategy.pp == 1:
            return 0.0
        ways = pricer.finish(strategy)
        return sum(item.first for item in ways[0].terms if item.name == _TIED) if ways else 0.0

    def cost(self, strategy: Strategy, groups: Sequence[int]) -> StrategyCost:
        """Return the prices of ``strategy`` with each pipeline rank on the group that ``groups`` says.

        The prices that all ranks share, such as what lies outside the schedule, are those of the first rank's group.
        """
        costs = [group.pricer.cost(strategy) for group in self.groups]
        joints = self.joints(strategy)
        joined: dict[_Neighbours, StrategyCost] = {}
        ranks = []
        for near in _neighbours(groups):
            if near not in joined:
                joined[near] = _placed(costs[near.own], joints, near)
            ranks.append(joined[near])
        return replace(
            costs[groups[0]],
            transfer_s=self._transfers(costs, joints, groups),
            by_rank=tuple(ranks),
        )

    @staticmethod
    def _transfers(
        costs: Sequence[StrategyCost], joints: Joints, groups: Sequence[int]
    ) -> tuple[float, ...]:
        """Return the seconds of each boundary, as MixedCoefficients.transfers_ns does for integers."""
        if len(groups) == 1:
            return ()
        found: list[float] = []
        for rank, group in enumerate(groups):
            after = groups[(rank + 1) % len(groups)]
            place = rank if rank + 1 == len(groups) else groups[:rank].count(group)
            own = costs[group].transfer_s[place]
            found.append(own if after == group else joints.crossing_s[group][after])
        return tuple(found)


class _Neighbours(NamedTuple):
    """Groups of a rank, of the one ahead and the one behind, and of the other end where it is an end itself."""

    own: int
    ahead: int
    behind: int
    other_end: int


def _neighbours(groups: Sequence[int]) -> Iterator[_Neighbours]:
    last = len(groups) - 1
    for rank, own in enumerate(groups):
        other = groups[-1] if rank == 0 else groups[0] if rank == last else own
        yield _Neighbours(own, groups[(rank + 1) % len(groups)], groups[rank - 1], other)


def _placed(cost: StrategyCost, joints: Joints, near: _Neighbours) -> StrategyCost:
    """Return the prices of one rank with what its neighbours' groups add."""
    own, kinds = near.own, max(cost.layer_kinds) + 1
    ahead, behind = joints.wait_s[own][near.ahead], joints.wait_s[own][near.behind]
    finish = cost.finish
    if near.other_end != own:
        finish = tuple(_tied_to(way, joints.tied_s[own][near.other_end]) for way in finish)
    return replace(
        cost,
        forward=_plus(cost.forward, term(_WAIT, kinds, fixed=ahead, last=-ahead)),
        backward=_plus(cost.backward, term(_WAIT, kinds, fixed=behind, first=-behind)),
        finish=finish,
    )


def _plus(terms: Sequence[StageTerm], more: StageTerm) -> tuple[StageTerm, ...]:
    """Return ``terms`` with ``more`` added to the term of its name."""
    if more.empty:
        return tuple(terms)
    same = [item for item in terms if item.name == more.name]
    rest = [item for item in terms if item.name != more.name]
    return (*rest, add(more.name, [*same, more]))


def _tied_to(way: Finish, seconds: float) -> Finish:
    terms = (
        replace(item, first=seconds, last=seconds) if item.name == _TIED else item
        for item in way.terms
    )
    return Finish(terms=tuple(terms))


def _wait(pricer: PricerLike, strategy: Strategy) -> float:
    forward, _, _ = pricer.block(strategy)
    return sum(item.fixed for item in forward if item.name == _WAIT)


def _pairs(values: Sequence[float]) -> Seconds:
    """Return the larger of two groups' values, nothing where they are the same."""
    return tuple(
        tuple(0.0 if i == j else max(one, other) for j, other in enumerate(values))
        for i, one in enumerate(values)
    )


def _nanoseconds(values: Seconds) -> Matrix:
    return tuple(tuple(to_ns(value) for value in row) for row in values)
