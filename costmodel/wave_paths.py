"""A longest path of 1F1B or ZB-H1, by walking back from the last task over the rounds of the recurrence.

A task starts when the later of two others ends: the one before it on its rank, or the one that sends its data. Which
it is follows from when the ranks were free before the round and when the round's backwards ended. Rounds that the
recurrence skips decide as those of the period that repeats.
"""

from typing import NamedTuple

from costmodel.recurrences import Wave, repeats
from costmodel.timeline import CriticalPath, PipelineWork


class _Round(NamedTuple):
    """When each rank is free before a round, and when its backward of the round ends."""

    before: list[int]
    backward: list[int]


class _Skipped(NamedTuple):
    """Rounds from ``first`` on repeat the ``period`` rounds before, ``length`` of them in all."""

    first: int
    period: int
    length: int


class WavePath:
    """Records the rounds of one simulation, then walks back."""

    def __init__(self, work: PipelineWork) -> None:
        self.work, self.wave = work, Wave(work)
        self.ranks, self.m = work.shape.ranks, work.shape.microbatches
        self.rounds: list[_Round] = []
        self.skipped = _Skipped(self.m, 1, 0)
        self.warm = self.wave.warm_up()
        self._run()
        stages = range(self.ranks)
        self.forward, self.backward, self.weight = ([0 for _ in stages] for _ in range(3))
        self.transfer = [0 for _ in stages]

    def _run(self) -> None:
        """Run the rounds as Wave.ends does, keeping what the walk needs."""
        wave, first, last = self.wave, *self.wave.steady
        number, snapshot, age, life = 0, list(wave.end), 0, 1
        while number < self.m:
            before = list(wave.end)
            self.rounds.append(_Round(before, wave.edge_round(number)))
            number, age = number + 1, age + 1
            if not first < number <= last or self.skipped.length:
                snapshot, age, life = list(wave.end), 0, 1
            elif repeats(wave.end, snapshot):
                often = (last - number) // age
                shift = often * (wave.end[0] - snapshot[0])
                self.skipped = _Skipped(number, age, often * age)
                wave.end = [value + shift for value in wave.end]
                number += often * age
            elif age == life:
                snapshot, age, life = list(wave.end), 0, 2 * life
        wave.postponed()

    def _round(self, number: int) -> _Round:
        first, period, length = self.skipped
        if number < first:
            return self.rounds[number]
        if number >= first + length:
            return self.rounds[number - length]
        return self.rounds[first - period + (number - first) % period]

    def path(self) -> CriticalPath:
        """Return the visits of the path to the rank that ends last."""
        ends = [a + b for a, b in zip(self.wave.end, self.work.finish_ns, strict=True)]
        finish = ends.index(max(ends))
        if self.work.split:
            self.weight[finish] += min(finish, self.m)
        rank = self._through_rounds(finish)
        self._through_warm_up(rank)
        return CriticalPath(
            forward=tuple(self.forward),
            backward=tuple(self.backward),
            weight=tuple(self.weight),
            transfer=tuple(self.transfer),
            rank=finish,
        )

    def _through_rounds(self, rank: int) -> int:
        """Walk back from the last task of ``rank``; return the rank whose last warm-up forward comes before."""
        number = self.m - 1
        while number >= 0:
            round_ = self._round(number)
            if number + self.ranks - rank < self.m:
                self.forward[rank] += 1
                if self._waited(round_, number, rank):
                    rank -= 1
                    self.transfer[rank] += 1
                    number -= 1
                    continue
            if self.work.split and number >= rank:
                self.weight[rank] += 1
            rank = self._back(round_, rank)
            number -= 1
        return rank

    def _waited(self, round_: _Round, number: int, rank: int) -> bool:
        """Return whether the forward of a round started when its data came."""
        if not rank:
            return False
        free = round_.backward[rank] + self.wave.weight[rank] * (number >= rank)
        return round_.before[rank - 1] + self.work.transfer_ns[rank - 1] > free

    def _back(self, round_: _Round, rank: int) -> int:
        """Walk over the backwards of a round; return the rank that was not free earlier."""
        hops, last = self.work.transfer_ns, self.ranks - 1
        self.backward[rank] += 1
        while rank < last and round_.backward[rank + 1] + hops[rank] > round_.before[rank]:
            self.transfer[rank] += 1
            rank += 1
            self.backward[rank] += 1
        return rank

    def _through_warm_up(self, rank: int) -> None:
        number, hops = len(self.warm[rank]) - 1, self.work.transfer_ns
        self.forward[rank] += 1
        while rank or number:
            own = self.warm[rank][number - 1] if number else -1
            if rank and self.warm[rank - 1][number] + hops[rank - 1] > own:
                rank -= 1
                self.transfer[rank] += 1
            else:
                number -= 1
            self.forward[rank] += 1
