"""Plans as paths: from operator 0 with all GPUs left, stage by stage, to the last operator with none.

A place is (stages left, GPUs left, operator); a stage leads from one to the next. Counting stages from the end settles how many
micro-batches each keeps, for plans of any length at once. What the slowest stage and the sum of stages are at least, up to a place and
from it on, bounds the iteration of every path through a stage.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from planner.operator_cut.definition import Floats, iteration_seconds
from planner.operator_cut.stages import Option, PathStage, Stages

Path = tuple[PathStage, ...]


class Paths:
    """All paths of one micro-batch whose iteration may be below a ceiling.

    Attributes:
        options: Ways to run a stage, by its number of GPUs.
        priced: Stages priced exactly so far.
    """

    def __init__(
        self,
        options: Mapping[int, Sequence[Option]],
        gpus: int,
        memory_mib: float,
        microbatches: int,
    ) -> None:
        self.options, self.gpus, self.priced = options, gpus, 0
        self._memory_mib, self._microbatches = memory_mib, microbatches
        self._least = {of: _least(found) for of, found in options.items()}
        self._count = len(next(iter(self._least.values()))) - 1
        work = np.min([of * np.diff(least) for of, least in self._least.items()], axis=0)
        self._work = np.concatenate([[0.0], np.cumsum(work)])
        self._stages: dict[tuple[int, int], Stages] = {}

    @property
    def floor_s(self) -> float:
        """No plan is faster: all GPUs are busy all the time, at the best degree of each operator."""
        return float(self._work[-1]) / self.gpus * self._microbatches

    @property
    def limit_s(self) -> float:
        """No useful plan is slower: everything recomputed on one GPU."""
        found = self.options[min(self.options)][0].operators
        whole = 2 * found.forward.sum() + found.backward.sum()
        return float(whole) * 2 * (self._microbatches + self.gpus)

    def iteration_s(self, path: Path) -> float:
        """Return the iteration of a path, a bound on it where a stage is a bound."""
        return iteration_seconds([stage.seconds for stage in path], self._microbatches)

    def open(self, ceiling_s: float) -> None:
        """Collect and bound the stages of paths below the ceiling."""
        cap_s = ceiling_s / self._microbatches
        self._stages = {}
        after = self._end()
        for left in range(1, self.gpus + 1):
            for of in self.options:
                self._collect(left, of, after[left - 1], cap_s)
            self._relax(after, left, np.maximum)
        self.prune(ceiling_s)

    def _collect(self, left: int, of: int, behind: Floats, cap_s: float) -> None:
        """Bound the stages on ``of`` GPUs to the places behind that neither they nor the work before them excludes."""
        reached = behind[: self.gpus - of + 1] <= cap_s
        ends = np.flatnonzero(reached.any(axis=0))
        gpus_before = self.gpus - of - reached[:, ends].argmax(axis=0)
        low = np.searchsorted(self._least[of], self._least[of][ends] - cap_s)
        room_s = np.where(gpus_before > 0, cap_s, 0.0) * np.maximum(gpus_before, 1)
        high = np.searchsorted(self._work, room_s, side="right")
        number = np.maximum(np.minimum(high, ends) - low, 0)
        first = np.arange(number.sum()) + np.repeat(low + number - np.cumsum(number), number)
        found = Stages(
            self.options[of], left, self._memory_mib, first, np.repeat(ends, number), cap_s
        )
        if found.first.size:
            self._stages[left, of] = found

    def _end(self) -> Floats:
        """Return a value for each place (stages left, GPUs left, operator): none but at the end of all paths."""
        places = np.full((self.gpus + 1, self.gpus + 1, self._count + 1), np.inf)
        places[0, 0, self._count] = 0.0
        return places

    def _start(self) -> Floats:
        """Return a value for each place: none but at the starts of paths of each length."""
        places = np.full((self.gpus + 1, self.gpus + 1, self._count + 1), np.inf)
        places[:, self.gpus, 0] = 0.0
        return places

    def _of(self, left: int) -> Iterator[tuple[int, Stages]]:
        """Yield the stages with ``left`` stages left, their own included, by their GPUs."""
        return ((of, self._stages[left, of]) for of in self.options if (left, of) in self._stages)

    def _relax(self, after: Floats, left: int, joined: np.ufunc, cap_s: float = np.inf) -> None:
        """Lower the values of the places with ``left`` stages left by the stages from them, of ``cap_s`` each at most."""
        for of, stages in self._of(left):
            seconds = np.where(stages.seconds <= cap_s, stages.seconds, np.inf)
            values = joined(after[left - 1][: self.gpus - of + 1, stages.end], seconds)
            stages.by_first.lower(after[left, of:], values)

    def _after(self, joined: np.ufunc, cap_s: float = np.inf) -> Floats:
        """Return for each place the least joined value of the stages from it on."""
        after = self._end()
        for left in range(1, self.gpus + 1):
            self._relax(after, left, joined, cap_s)
        return after

    def _before(self, joined: np.ufunc) -> Floats:
        """Return for each place the least joined value of the stages up to it."""
        before = self._start()
        for left in range(self.gpus, 0, -1):
            for of, stages in self._of(left):
                values = joined(before[left][of:, stages.first], stages.seconds)
                stages.by_end.lower(before[left - 1, : self.gpus - of + 1], values)
        return before

    def prune(self, ceiling_s: float) -> None:
        """Drop the stages through which no path is below the ceiling."""
        slowest = self._before(np.maximum), self._after(np.maximum)
        total = self._before(np.add), self._after(np.add)
        for (left, of), stages in list(self._stages.items()):
            to, on = (left, slice(of, None)), (left - 1, slice(self.gpus - of + 1))
            slow = [v[p][:, at] for v, p, at in zip(slowest, (to, on), stages.ends, strict=True)]
            rest = [v[p][:, at] for v, p, at in zip(total, (to, on), stages.ends, strict=True)]
            worst = np.maximum(np.maximum(*slow), stages.seconds)
            worst[np.isinf(worst)] = 0.0  # the sum is infinite as well
            bound = worst * (self._microbatches - 1) + (rest[0] + rest[1] + stages.seconds)
            stages.keep(bound.min(axis=0) < ceiling_s)
            if not stages.first.size:
                del self._stages[left, of]

    def price(self, path: Path, ceiling_s: float) -> None:
        """Price the stages of a path exactly; those above the ceiling leave."""
        for number, stage in enumerate(path):
            stages = self._stages[len(path) - number, stage.gpus]
            wanted = (stages.first == stage.first) & (stages.end == stage.end)
            self.priced += stages.price(wanted, ceiling_s / self._microbatches)

    def price_all(self, ceiling_s: float) -> None:
        """Price all stages exactly; those above the ceiling leave."""
        for stages in self._stages.values():
            everything = np.ones(len(stages.first), dtype=bool)
            self.priced += stages.price(everything, ceiling_s / self._microbatches)

    def seconds(self) -> Floats:
        """Return the distinct seconds of all stages, rising."""
        found = [stages.seconds for stages in self._stages.values()]
        return np.unique(np.concatenate([*found, np.zeros(0)]))

    def least_slowest_s(self) -> float:
        """Return the seconds of the slowest stage of the path where these are least, infinite without a path."""
        return float(self._after(np.maximum)[:, self.gpus, 0].min())

    def least_sum(self, cap_s: float) -> Path:
        """Return the path of least sum whose stages take ``cap_s`` at most, an empty one if there is none."""
        after = self._after(np.add, cap_s)
        left, gpus, first = int(after[:, self.gpus, 0].argmin()), self.gpus, 0
        if after[left, gpus, first] == np.inf:
            return ()
        path: list[PathStage] = []
        while left:
            found = self._from(after, left, gpus, first, cap_s)
            _, stage = min(found, key=lambda pair: pair[0])
            path.append(stage)
            left, gpus, first = left - 1, gpus - stage.gpus, stage.end
        return tuple(path)

    def _from(
        self, after: Floats, left: int, gpus: int, first: int, cap_s: float
    ) -> Iterator[tuple[float, PathStage]]:
        """Yield for each number of GPUs the best stage from a place on, with the sum of all stages from there."""
        for of, stages in self._of(left):
            here = np.flatnonzero((stages.first == first) & (stages.seconds <= cap_s))
            if of <= gpus and here.size:
                sums = stages.seconds[here] + after[left - 1, gpus - of, stages.end[here]]
                at = int(here[sums.argmin()])
                yield float(sums.min()), stages.stage(at)


def _least(options: Sequence[Option]) -> Floats:
    """Return running sums of each operator's least seconds over the options, transfers left out."""
    found = (option.operators for option in options)
    seconds = np.min([operators.forward + operators.backward for operators in found], axis=0)
    return np.concatenate([[0.0], np.cumsum(seconds)])
