"""Variables of the placement of one strategy with one chunk a rank on several device groups."""

from collections.abc import Sequence
from itertools import pairwise

from ortools.sat.python import cp_model

from planner.coefficients import Linear
from planner.mixed.coefficients import Matrix, MixedCoefficients
from planner.solver.variables import Expression, PlacementVariables

_MOST = 1 << 50
"""Above every time, in nanoseconds."""


class MixedVariables(PlacementVariables):
    """Where the cuts are, how many layers recompute, which group each rank runs on, and the times that follow.

    The layers of a stage are split by group: those on another group than its own are zero, so that prices stay linear.

    Attributes:
        on: Whether a stage runs on a group, by stage and group.
        pairs: Whether a boundary lies between two groups, by boundary, group before and group behind.
        hops: Transfer over each boundary.
        held_on, again_on: Layers and recomputed layers by stage, group and kind.
    """

    def __init__(
        self,
        model: cp_model.CpModel,
        mixed: MixedCoefficients,
        cuts: Sequence[tuple[int, int]],
        cutoff_ns: int,
    ) -> None:
        self.model, self.mixed, self.given = model, mixed, mixed.by_group[0]
        self.stages, self.groups = range(mixed.shape.ranks), mixed.groups
        self.cuts = [model.new_int_var(low, high, "") for low, high in cuts]
        self.on = [[model.new_bool_var("") for _ in self.groups] for _ in self.stages]
        self._assign()
        self.pairs = [self._joint(self.on[s], self.on[s + 1]) for s in self.stages[:-1]]
        ends = self._joint(self.on[0], self.on[-1])
        self.recomputed = [self._again_of(stage) for stage in self.stages]
        starts = [self._counts(cut) for cut in self.cuts]
        self.held = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(starts)]
        self.again = [self._again(stage, starts[stage]) for stage in self.stages]
        self.held_on = [self._split(stage, self.held[stage]) for stage in self.stages]
        self.again_on = [self._again_split(stage) for stage in self.stages]
        self.hops = [self._hop(boundary) for boundary in self.stages[:-1]]
        self.forward = self._durations("forward", 1)
        self.backward = self._durations("backward", -1)
        self.weight = self._durations("weight", 0)
        self.finish = [self._end(stage, ends) for stage in self.stages]
        self.before = self._totals([self.forward, self.backward], 2)
        self.forward_before = self._totals([self.forward], 1)
        self.iteration = model.new_int_var(0, cutoff_ns - 1, "iteration")

    def _assign(self) -> None:
        """Each stage runs on one group, each group on at most its slots: sum_g on_sg = 1, sum_s on_sg <= slots_g."""
        for literals in self.on:
            self.model.add_exactly_one(literals)
        for group, room in enumerate(self.mixed.slots):
            self.model.add(sum(literals[group] for literals in self.on) <= room)

    def _joint(
        self, one: Sequence[Expression], other: Sequence[Expression]
    ) -> list[list[Expression]]:
        """Return literals y_gh that say that ``one`` is on g and ``other`` on h; their sums are those of either."""
        found = [[self.model.new_bool_var("") for _ in self.groups] for _ in self.groups]
        for group in self.groups:
            self.model.add(sum(found[group]) == one[group])
            self.model.add(sum(row[group] for row in found) == other[group])
        return found

    def _again_of(self, stage: int) -> Expression:
        if self.mixed.recompute_all:
            return self.cuts[stage + 1] - self.cuts[stage]
        return self.model.new_int_var(0, self.mixed.layers, "")

    def _split(self, stage: int, counts: Sequence[Expression]) -> list[list[Expression]]:
        """Return ``counts`` by group: n_sgk <= N_k on_sg, sum_g n_sgk = n_sk."""
        totals = self.given.counts[-1]
        found = [[self.model.new_int_var(0, most, "") for most in totals] for _ in self.groups]
        for kind, most in enumerate(totals):
            self.model.add(sum(row[kind] for row in found) == counts[kind])
            for group in self.groups:
                self.model.add(found[group][kind] <= most * self.on[stage][group])
        return found

    def _again_split(self, stage: int) -> list[list[Expression]]:
        if self.mixed.recompute_all:
            return self.held_on[stage]
        found = self._split(stage, self.again[stage])
        for group in self.groups:
            for again, held in zip(found[group], self.held_on[stage][group], strict=True):
                self.model.add(again <= held)
        return found

    def value_on(self, linear: Linear, stage: int, group: int) -> Expression:
        """Return a function of what ``stage`` holds if it runs on ``group``, else 0."""
        first, last = stage == 0, stage == self.stages[-1]
        fixed = linear.fixed + linear.first * first + linear.last * last
        pairs = [*zip(linear.layer, self.held_on[stage][group], strict=True)]
        pairs += zip(linear.recomputed, self.again_on[stage][group], strict=True)
        terms = [price * count for price, count in pairs if price]
        return fixed * self.on[stage][group] + sum(terms)

    def _durations(self, name: str, toward: int) -> list[Expression]:
        """Return one variable for each stage: its time on its group, and what it waits for its neighbour ``toward``."""
        found = []
        for stage in self.stages:
            parts = [
                self.value_on(getattr(self.mixed.by_group[group], name), stage, group)
                for group in self.groups
            ]
            time = self.model.new_int_var(0, _MOST, "")
            self.model.add(time == sum(parts) + self._waits(stage, toward))
            found.append(time)
        return found

    def _waits(self, stage: int, toward: int) -> Expression:
        if not toward or not 0 <= stage + toward < len(self.stages):
            return 0
        pairs = self.pairs[min(stage, stage + toward)]
        wait = self.mixed.wait_ns
        return _weighted(wait, pairs if toward > 0 else list(zip(*pairs, strict=True)))

    def _hop(self, boundary: int) -> Expression:
        """Return the transfer over a boundary: between groups, or of a group behind its k-th rank."""
        pairs, hop = self.pairs[boundary], self.model.new_int_var(0, _MOST, "")
        least = _weighted(self.mixed.crossing_ns, pairs)
        for group in self.groups:
            own = list(self.mixed.by_group[group].transfer_ns[: max(1, self.mixed.slots[group])])
            least += min(own) * pairs[group][group]
            if len(set(own)) > 1:
                self._depends_on_place(boundary, group, own, hop)
        self.model.add(hop >= least)
        return hop

    def _depends_on_place(self, boundary: int, group: int, own: list[int], hop: Expression) -> None:
        """The transfer is at least own_k if both sides of the boundary are on the group and the first is its k-th rank."""
        place = self.model.new_int_var(0, len(own) - 1, "")
        value = self.model.new_int_var(min(own), max(own), "")
        within = self.pairs[boundary][group][group]
        used = sum(self.on[stage][group] for stage in range(boundary))
        self.model.add(place == used).only_enforce_if(within)
        self.model.add_element(place, own, value)
        self.model.add(hop >= value).only_enforce_if(within)

    def _end(self, stage: int, ends: list[list[Expression]]) -> Expression:
        """Return what a rank pays in the end: at least each of its alternatives, and for a tie between groups."""
        alternatives = zip(*(item.finish for item in self.mixed.by_group), strict=True)
        ways = [
            sum(self.value_on(way, stage, group) for group, way in enumerate(by_group))
            for by_group in alternatives
        ]
        fixed = sum(
            item.fixed_ns * literal
            for item, literal in zip(self.mixed.by_group, self.on[stage], strict=True)
        )
        worst = self.model.new_int_var(0, _MOST, "")
        for way in ways:
            self.model.add(worst >= way)
        tied: Expression = 0
        if stage == 0:
            tied = _weighted(self.mixed.tied_ns, ends)
        elif stage == self.stages[-1]:
            tied = _weighted(self.mixed.tied_ns, list(zip(*ends, strict=True)))
        return fixed + worst + tied

    def _totals(self, parts: list[list[Expression]], often: int) -> list[Expression]:
        sums: list[Expression] = [0]
        for stage in self.stages:
            total = self.model.new_int_var(0, _MOST, "")
            hop = often * self.hops[stage] if stage < self.stages[-1] else 0
            self.model.add(total == sums[-1] + sum(part[stage] for part in parts) + hop)
            sums.append(total)
        return sums


def _weighted(values: Matrix, literals: Sequence[Sequence[Expression]]) -> Expression:
    """Return the sum of values times literals over pairs of groups."""
    return sum(
        value * literal
        for row, some in zip(values, literals, strict=True)
        for value, literal in zip(row, some, strict=True)
        if value
    )
