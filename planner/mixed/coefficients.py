"""Integer prices of one strategy on several device groups: the prices of each group, and what joins them.

A pipeline rank, all its tp * cp * dp GPUs, runs on one group. What it computes, reduces and holds is priced on that
group alone. Where neighbouring ranks are on different groups, their boundary is slower: the sender waits longer for
what it sends, and the data are longer under way. A tied embedding is reduced between the first and the last rank, over
the network between their groups where these differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from costmodel.schedules import Shape
from costmodel.timeline import PipelineWork
from planner.coefficients import Arrangement, Coefficients, Ints

Matrix = tuple[tuple[int, ...], ...]
"""Nanoseconds by group and group, zero where they are the same."""


class Assignment(NamedTuple):
    """Where the cuts are, and the device group of each pipeline rank."""

    cuts: tuple[int, ...]
    groups: tuple[int, ...]


class EvenChoice(NamedTuple):
    """A placement on groups that fits, and a lower bound of its iteration."""

    bound_ns: int
    arrangement: Arrangement
    groups: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class MixedCoefficients:
    """Everything the search knows of one strategy on several device groups.

    Attributes:
        by_group: Its coefficients on each group, which differ in prices and memory limit only.
        slots: How many pipeline ranks each group can hold, at most all.
        crossing_ns: Transfer from a rank on one group to its neighbour on another.
        wait_ns: What the sender on a group waits more for a boundary to another group than for one within its own.
        tied_ns: What the finish of the first or last rank on a group takes more if the other end is on another group.
    """

    by_group: tuple[Coefficients, ...]
    slots: tuple[int, ...]
    crossing_ns: Matrix
    wait_ns: Matrix
    tied_ns: Matrix

    @property
    def shape(self) -> Shape:
        """Schedule, ranks, chunks, micro-batches."""
        return self.by_group[0].shape

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.by_group[0].layer_kinds)

    @property
    def recompute_all(self) -> bool:
        """Whether every layer recomputes."""
        return self.by_group[0].recompute_all

    @cached_property
    def groups(self) -> range:
        """Indices of the groups."""
        return range(len(self.by_group))

    def holds(self, groups: Sequence[int]) -> bool:
        """Return whether every group has room for its ranks."""
        return all(groups.count(group) <= self.slots[group] for group in self.groups)

    def transfers_ns(self, groups: Sequence[int]) -> tuple[int, ...]:
        """Return the transfer of each boundary; the last entry wraps around.

        The ranks of a group fill its nodes in pipeline order, so the boundary behind its k-th rank is priced as the
        group prices the boundary behind rank k.
        """
        used, found = [0] * len(self.by_group), []
        for rank, group in enumerate(groups):
            wraps = rank + 1 == len(groups)
            after = groups[0] if wraps else groups[rank + 1]
            place = rank if wraps else used[group]
            own = self.by_group[group].transfer_ns[place]
            found.append(own if after == group else self.crossing_ns[group][after])
            used[group] += 1
        return tuple(found)

    def ends_ns(self, groups: Sequence[int]) -> tuple[int, int]:
        """Return what the finish of the first and of the last rank takes more because of where the other is."""
        return self.tied_ns[groups[0]][groups[-1]], self.tied_ns[groups[-1]][groups[0]]

    def work(self, arrangement: Arrangement, groups: Sequence[int]) -> PipelineWork:
        """Return what the simulator executes."""
        works = {group: self.by_group[group].work(arrangement) for group in set(groups)}
        ranks, stages = len(groups), range(len(arrangement.recomputed))
        own = [works[groups[stage % ranks]] for stage in stages]
        finish = [works[group].finish_ns[rank] for rank, group in enumerate(groups)]
        if ranks > 1:
            first, last = self.ends_ns(groups)
            finish[0] += first
            finish[-1] += last
        return PipelineWork(
            shape=self.shape,
            forward_ns=tuple(
                own[stage].forward_ns[stage] + self._wait(groups, stage, stage + 1, len(own))
                for stage in stages
            ),
            backward_ns=tuple(
                own[stage].backward_ns[stage] + self._wait(groups, stage, stage - 1, len(own))
                for stage in stages
            ),
            weight_ns=tuple(own[stage].weight_ns[stage] for stage in stages),
            transfer_ns=self.transfers_ns(groups),
            finish_ns=tuple(finish),
        )

    def _wait(self, groups: Sequence[int], stage: int, other: int, stages: int) -> int:
        """Return what virtual stage ``stage`` waits more to send to virtual stage ``other``."""
        if not 0 <= other < stages:
            return 0
        return self.wait_ns[groups[stage % len(groups)]][groups[other % len(groups)]]

    def demands_kib(self, arrangement: Arrangement, groups: Sequence[int]) -> Ints:
        """Return the most KiB of every rank on its group."""
        demands = {
            group: self.by_group[group].demands_kib(arrangement).max(axis=0)
            for group in set(groups)
        }
        return np.array([demands[group][rank] for rank, group in enumerate(groups)])

    def over_kib(self, arrangement: Arrangement, groups: Sequence[int]) -> Ints:
        """Return by how many KiB every rank exceeds the limit of its group; negative where it fits."""
        limits = [self.by_group[group].limit_kib for group in groups]
        return np.asarray(self.demands_kib(arrangement, groups) - np.array(limits))
