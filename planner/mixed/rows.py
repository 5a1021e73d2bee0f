"""Lower bounds that look at one stage each, over all cuts and all assignments of ranks to device groups.

The rows are those of planner.rows; they hold for any stage times and hops. What precedes and follows a stage is bounded
by cut, state of the groups, position, and the groups on both sides of the cut: crossing it costs hops and waits.
Arrays over a cut have axes (group before, group behind, state, offset). A programme from the last cut to the first gives
the smallest possible maximum of the rows, and at every cut the least maximum that remains to come.
"""

import numpy as np

from planner.coefficients import Ints
from planner.mixed.coefficients import Assignment, MixedCoefficients
from planner.mixed.tables import MixedTables
from planner.stage_tables import NEVER, Mask


class MixedRows:
    """The rows of a strategy with one chunk a rank.

    Attributes:
        before, forward_before: Least sums before each cut, hops and waits included.
        following: Least sum behind each cut, from its hop on.
        ahead: Least maximum of the rows of the stages behind each cut.
        least_finish: Least finish of rank 0.
    """

    def __init__(self, given: MixedCoefficients, tables: MixedTables) -> None:
        self.given, self.tables, self.usage = given, tables, tables.usage
        self.groups = range(len(given.by_group))
        self.stages, self.m = given.shape.ranks, given.shape.microbatches
        schedule = given.shape.schedule
        self.split, self.flushes = schedule == "zero_bubble", schedule != "no_flush"
        self.wait: Ints = np.array(given.wait_ns, dtype=np.int64)
        self.both = tables.forward + tables.backward - (tables.weight if self.split else 0)
        hops = [self._hops(cut) for cut in range(self.stages + 1)]
        self.hops = np.stack(hops)
        self.least_finish = int(tables.finish[0].min(initial=int(NEVER), where=tables.legal[0]))
        self.least_weight = int(tables.weight.min(initial=int(NEVER), where=tables.legal))
        self.before = self._sums_before(self.both, 2, self.wait)
        self.forward_before = self._sums_before(tables.forward, 1, None)
        self.following = self._sums_following()
        self.ahead = self._ahead()

    @property
    def bound(self) -> int:
        """The smallest possible maximum of the rows; NEVER where no placement is left."""
        return int(self.ahead[0].min())

    def _shape(self) -> tuple[int, ...]:
        groups, width = len(self.groups), self.tables.legal.shape[3]
        return groups, groups, self.usage.states, width

    def _hops(self, cut: int) -> Ints:
        """Return the transfer over a cut by group before, group behind and state; nothing at both ends."""
        hops = np.zeros(self._shape()[:3], dtype=np.int64)
        if cut in (0, self.stages):
            return hops
        used = self.usage.used(cut)
        for group, item in enumerate(self.given.by_group):
            hops[group] = np.array(self.given.crossing_ns[group])[:, None]
            own = np.array(item.transfer_ns, dtype=np.int64)
            hops[group, group] = own[np.clip(used[:, group] - 1, 0, len(own) - 1)]
        return hops

    def _ends(self, value: int) -> Ints:
        """Return ``value`` at an end of the pipeline, where the group on the other side is the same."""
        ends = np.full(self._shape(), NEVER)
        for group in self.groups:
            ends[group, group] = value
        return ends

    def _sums_before(self, both: Ints, often: int, back: Ints | None) -> Ints:
        """Return the least sums before each cut; ``back`` are waits for the backward, where it counts."""
        start = np.full(self._shape(), NEVER)
        for group in self.groups:
            start[group, group, 0, 0] = 0
        least = [start]
        for stage in range(self.stages):
            least.append(self._step_before(least[-1], both, stage, often, back))
        return np.stack(least)

    def _step_before(
        self, old: Ints, both: Ints, stage: int, often: int, back: Ints | None
    ) -> Ints:
        found = np.full(self._shape(), NEVER)
        for group in self.groups:
            waits = 0 if back is None else back[group][:, None, None]
            source = (old[:, group] + waits).min(axis=0)
            legal = self.tables.legal[stage, group]
            value = np.where(legal, source[:, :, None] + both[stage, group], NEVER).min(axis=1)
            moved = self.usage.before(value, group, int(NEVER))
            for after in self._behind(stage, group):
                cost = self.wait[group][after] + often * self.hops[stage + 1, group, after]
                found[group, after] = np.minimum(moved + cost[:, None], NEVER)
        return found

    def _behind(self, stage: int, group: int) -> tuple[int, ...]:
        """Return the groups that may be behind a stage; the last has none, which its own group stands for."""
        return tuple(self.groups) if stage + 1 < self.stages else (group,)

    def _sums_following(self) -> Ints:
        least = [self._ends(0)]
        for stage in reversed(range(self.stages)):
            least.append(self._step_following(least[-1], stage))
        return np.stack(least[::-1])

    def _step_following(self, old: Ints, stage: int) -> Ints:
        found = np.full(self._shape(), NEVER)
        for group in self.groups:
            rest = (old[group] + self.wait[group][:, None, None]).min(axis=0)
            rest = self.usage.after(rest, group, int(NEVER))
            legal = self.tables.legal[stage, group]
            value = np.where(legal, self.both[stage, group] + rest[:, None, :], NEVER).min(axis=2)
            for before in self.groups if stage else (group,):
                cost = self.wait[group][before] + 2 * self.hops[stage, before, group]
                found[before, group] = np.minimum(value + cost[:, None], NEVER)
        return found

    def times(self, stage: int, group: int) -> tuple[Ints, Ints, Ints]:
        """Return forward by group behind, backward by group before, and what is left after, by group behind."""
        tables = self.tables
        forward = tables.forward[stage, group] + self.wait[group][:, None, None, None]
        backward = tables.backward[stage, group] + self.wait[group][:, None, None, None]
        behind = self.following[stage + 1][group]
        left = np.stack([self.usage.after(item, group, int(NEVER)) for item in behind])
        return forward, backward, left

    def parts(
        self, stage: int, forward: Ints, backward: Ints, weight: Ints, finish: Ints, left: Ints
    ) -> tuple[Ints, Ints]:
        """Return what a stage adds to what precedes it: for paths that go back to an earlier rank, and that end here.

        All arrays broadcast. The finish of the rank on which a path ends is included only where that is this one.
        """
        schedule, m = self.given.shape.schedule, self.m
        step = forward + backward
        flight = min(m, self.stages - stage)
        if schedule == "no_flush":
            return np.zeros_like(step), m * step + finish
        if schedule == "gpipe":
            through = m * step + left
            return through, through + finish
        wait = np.maximum(left - (flight - 1) * forward, 0)
        if schedule == "zero_bubble":
            done = max(m - 1 - stage, 0) * weight
            to_first = wait + m * (step - weight) + done + self.least_weight
            return to_first, wait + m * step + finish
        last = np.maximum(left - (flight - 1) * backward, 0)
        busy = m * step + (wait + last if m > flight else np.maximum(wait, last))
        return busy, busy + finish

    def values(self, stage: int, group: int) -> Ints:
        """Return the larger row by group before, group behind, state and both offsets; NEVER where not legal."""
        tables = self.tables
        forward, backward, left = self.times(stage, group)
        to_first, to_own = self.parts(
            stage,
            forward[None],
            backward[:, None],
            tables.weight[stage, group],
            tables.finish[stage, group],
            left[None, :, :, None, :],
        )
        before, there = self.precede(stage, group)
        back = before[:, None, :, :, None] + to_first + self.least_finish
        own = there[:, None, :, :, None] + to_own
        legal: Mask = tables.legal[stage, group]
        return np.where(legal, np.minimum(np.maximum(back, own), NEVER), NEVER)

    def precede(self, stage: int, group: int) -> tuple[Ints, Ints]:
        """Return the least sums before a stage by group before, state and offset; nothing without flush."""
        before, there = self.before[stage][:, group], self.forward_before[stage][:, group]
        if self.flushes:
            return before, there
        return np.where(before < NEVER, 0, NEVER), np.where(there < NEVER, 0, NEVER)

    def _ahead(self) -> Ints:
        ahead = [self._ends(0)]
        for stage in reversed(range(self.stages)):
            found = np.full(self._shape(), NEVER)
            for group in self.groups:
                rest = self.rest(ahead[-1], group)
                worst = np.maximum(self.values(stage, group), rest[None, :, :, None, :])
                found[:, group] = worst.min(axis=(1, 4))
            if not stage:
                found = np.where(self._ends(0) == 0, found, NEVER)
            ahead.append(found)
        return np.stack(ahead[::-1])

    def rest(self, ahead: Ints, group: int) -> Ints:
        """Return what is ahead of the next cut, by group behind it, state before this stage and offset."""
        return np.stack([self.usage.after(item, group, int(NEVER)) for item in ahead[group]])

    def assignment(self) -> Assignment:
        """Return the placement that attains the bound."""
        start = self.ahead[0][:, :, 0, 0]
        group = int(np.diagonal(start).argmin())
        before, state, offset = group, 0, 0
        cuts, groups = [0], []
        for stage in range(self.stages):
            rest = self.rest(self.ahead[stage + 1], group)[:, state]
            worst = np.maximum(self.values(stage, group)[before, :, state, offset], rest)
            after, offset = divmod(int(worst.argmin()), worst.shape[1])
            state += self.usage.shift[group]
            groups.append(group)
            cuts.append(int(self.tables.low[stage + 1, state]) + offset)
            before, group = group, after
        return Assignment(tuple(cuts), tuple(groups))
