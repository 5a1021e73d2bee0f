"""Iteration time without an event queue: one recurrence per schedule, with exact jumps over steady rounds.

A schedule is a max-plus system: in every steady round the state (when each rank is free) is shifted by sums
and maxima of constants. With integers the state, relative to its first entry, repeats exactly after some
rounds in nearly all cases; from then on each period shifts everything by a constant and whole periods are
skipped without rounding. Numbers may be any integers that add and compare, so the same code counts visits along
the longest path (see costmodel.simulator.critical_path).
"""

from collections.abc import Callable

from costmodel.timeline import PipelineWork
from costmodel.wide_interleaving import WideInterleaved, is_wide

State = list[int]


def rank_ends(work: PipelineWork) -> list[int]:
    """Return for each rank when its last task ends, in nanoseconds."""
    schedule = work.shape.schedule
    if schedule == "gpipe":
        return _gpipe_ends(work)
    if schedule == "interleaved":
        return WideInterleaved(work).ends() if is_wide(work) else _Interleaved(work).ends()
    if schedule == "no_flush":
        return _busy_ends(work)
    return Wave(work).ends()


def _gpipe_ends(work: PipelineWork) -> list[int]:
    """All forwards, then all backwards: two flow shops whose length is known in closed form.

    Backwards reach rank s at F + sum_{j >= s} (b_j + c_j) + (m - 1) max_{j >= s} b_j, where F is the end
    of the last forward on the last rank.
    """
    more = work.shape.microbatches - 1
    end = sum(work.forward_ns) + sum(work.transfer_ns[:-1]) + more * max(work.forward_ns)
    slowest, ends = 0, [0] * work.shape.ranks
    for rank in reversed(range(work.shape.ranks)):
        slowest = max(slowest, work.backward_ns[rank])
        end += work.backward_ns[rank]
        ends[rank] = end + more * slowest
        end += work.transfer_ns[rank - 1]
    return ends


def _busy_ends(work: PipelineWork) -> list[int]:
    """Without flush nothing is waited for: each rank is busy for m (f + b)."""
    pairs = zip(work.forward_ns, work.backward_ns, strict=True)
    return [work.shape.microbatches * (forward + backward) for forward, backward in pairs]


class Wave:
    """1F1B and ZB-H1. In round i rank s does the backward of micro-batch i, then the forward of i + w_s.

    ``end[s]`` is when rank s is free after round i. That forward needs the one of rank s - 1 from the round
    before, so one pass from the last rank to the first computes a round in place. ZB-H1 puts the weight
    gradient of micro-batch i - s between the two.
    """

    def __init__(self, work: PipelineWork) -> None:
        self.ranks, self.microbatches = work.shape.ranks, work.shape.microbatches
        self.forward, self.backward = work.forward_ns, work.input_ns
        self.weight = work.weight_ns if work.split else (0,) * self.ranks
        self.transfer, self.split = work.transfer_ns, work.split
        self.end: State = [0] * self.ranks

    @property
    def steady(self) -> tuple[int, int]:
        """The first round in which every rank does all of its tasks, and the first one after these."""
        first = min(self.ranks - 1, self.microbatches) if self.split else 0
        return first, max(first, self.microbatches - self.ranks)

    def ends(self) -> list[int]:
        """Run warm-up, steady rounds and cool-down."""
        self.warm_up()
        first, last = self.steady
        for number in range(first):
            self.edge_round(number)
        self.end = _advance(self.end, self._steady_round, last - first)
        for number in range(last, self.microbatches):
            self.edge_round(number)
        self.postponed()
        return self.end

    def warm_up(self) -> list[list[int]]:
        """Do the forwards before the first round; return when they end, by rank."""
        arrivals, ends = [0] * min(self.microbatches, self.ranks), []
        for rank in range(self.ranks):
            end, step, hop = 0, self.forward[rank], self.transfer[rank]
            del arrivals[self.ranks - rank :]
            done = []
            for arrival in arrivals:
                end = (arrival if arrival > end else end) + step  # noqa: FURB136
                done.append(end)
            arrivals = [value + hop for value in done]
            ends.append(done)
            self.end[rank] = end
        return ends

    def postponed(self) -> None:
        """Do the weight gradients that are left after the last round."""
        if self.split:
            for rank in range(self.ranks):
                self.end[rank] += min(rank, self.microbatches) * self.weight[rank]

    def _steady_round(self, end: State) -> State:
        forward, backward, weight, hops = self.forward, self.backward, self.weight, self.transfer
        arrival = 0
        for rank in range(self.ranks - 1, 0, -1):
            hop, free = hops[rank - 1], end[rank]
            free = (arrival if arrival > free else free) + backward[rank]  # noqa: FURB136
            arrival = free + hop
            free += weight[rank]
            data = end[rank - 1] + hop
            end[rank] = (data if data > free else free) + forward[rank]  # noqa: FURB136
        end[0] = max(arrival, end[0]) + backward[0] + weight[0] + forward[0]
        return end

    def edge_round(self, number: int) -> list[int]:
        """Do a round in which some ranks have no forward left or no weight gradient yet; return its backwards' ends."""
        arrival, end, hops = 0, self.end, self.transfer
        done = [0] * self.ranks
        for rank in range(self.ranks - 1, -1, -1):
            free = end[rank]
            free = (arrival if arrival > free else free) + self.backward[rank]  # noqa: FURB136
            done[rank] = free
            arrival = free + hops[rank - 1]
            if number >= rank:
                free += self.weight[rank]
            if number + self.ranks - rank < self.microbatches:
                data = end[rank - 1] + hops[rank - 1] if rank else 0
                free = (data if data > free else free) + self.forward[rank]  # noqa: FURB136
            end[rank] = free
        return done


class _Interleaved:
    """Interleaved 1F1B in Megatron's order, as a synchronous system.

    Forwards have the same order on every rank, and so have backwards. Counting ticks so that rank r does its
    k-th backward at tick k + (p - 1 - r), and before it the forward that is ``interleaved_lead`` ahead, every
    task depends only on tasks of the tick before (on a neighbouring rank) and on its own rank.
    """

    def __init__(self, work: PipelineWork) -> None:
        self.ranks, self.chunks = work.shape.ranks, work.shape.chunks
        self.period = self.ranks * self.chunks
        self.total = work.shape.microbatches * self.chunks
        self.hops, self.wrap = work.transfer_ns[:-1], work.transfer_ns[-1]
        self.start = -(self.ranks - 1) - (self.chunks - 1) * self.ranks
        lead = [-self.start - rank for rank in range(self.ranks)]
        self.forward = self._rows(work.forward_ns, lead)
        lag = [rank - self.ranks + 1 for rank in range(self.ranks)]
        self.backward = self._rows(self._reversed_chunks(work.backward_ns), lag)
        self.end: State = [0] * self.ranks
        self.forward_data: State = [0] * self.ranks
        self.backward_data: State = [0] * self.ranks

    def ends(self) -> list[int]:
        """Run ticks: gated ones at the edges, whole ones in between, of which whole periods are skipped."""
        ranks, full = self.ranks, self.ranks - 1
        done = max(full, self.start + self.total)
        periods = (done - full) // self.period
        steady = full + periods * self.period
        self._edge_ticks(self.start, self.start + full)
        self._forward_ticks(self.start + full, 0)
        self._edge_ticks(0, full)
        self._restore(_advance(self._state(), self._steady_period, periods))
        self._restore(self._steady_ticks(self._state(), steady, done))
        last = max(done, self.start + self.total + full)
        self._edge_ticks(done, last)
        self._backward_ticks(last, self.total)
        self._edge_ticks(max(last, self.total), self.total + ranks - 1)
        return self.end

    def _reversed_chunks(self, values: tuple[int, ...]) -> tuple[int, ...]:
        rows = [values[at : at + self.ranks] for at in range(0, self.period, self.ranks)]
        return tuple(value for row in reversed(rows) for value in row)

    def _rows(self, values: tuple[int, ...], lead: list[int]) -> list[tuple[int, ...]]:
        """Return durations by rank for each tick of a period; rank r does its task t + lead[r] at tick t."""
        columns = []
        for rank in range(self.ranks):
            column = [value for value in values[rank :: self.ranks] for _ in range(self.ranks)]
            turn = lead[rank] % self.period
            columns.append(column[turn:] + column[:turn])
        return list(zip(*columns, strict=True))

    def _edge_ticks(self, first: int, stop: int) -> None:
        """Run ticks in which some ranks have no forward or no backward."""
        ranks = self.ranks
        for tick in range(first, stop):
            number = tick - self.start
            low, high = max(0, number - self.total + 1), min(ranks, number + 1)
            if low < high:
                self._forward(tick, low, high)
            low, high = max(0, ranks - 1 - tick), min(ranks, ranks - 1 - tick + self.total)
            if low < high:
                self._backward(tick, low, high)

    def _forward_ticks(self, first: int, stop: int) -> None:
        """Run ticks in which every rank does a forward only."""
        end, arrived, hops = self.end, self.forward_data, self.hops
        for tick in range(first, stop):
            end = [
                (e if e > a else a) + d  # noqa: FURB136
                for e, a, d in zip(end, arrived, self.forward[tick % self.period], strict=True)
            ]
            wraps = (tick + 1 - self.start) % self.period >= self.ranks
            arrived = [end[-1] + self.wrap if wraps else 0]
            arrived += [e + hop for e, hop in zip(end, hops, strict=False)]
        self.end, self.forward_data = end, arrived

    def _backward_ticks(self, first: int, stop: int) -> None:
        """Run ticks in which every rank does a backward only."""
        end, returned, hops = self.end, self.backward_data, self.hops
        for tick in range(first, stop):
            end = [
                (e if e > a else a) + d  # noqa: FURB136
                for e, a, d in zip(end, returned, self.backward[tick % self.period], strict=True)
            ]
            wraps = (tick + 1) % self.period >= self.ranks
            returned = [e + hop for e, hop in zip(end[1:], hops, strict=True)]
            returned.append(end[0] + self.wrap if wraps else 0)
        self.end, self.backward_data = end, returned

    def _forward(self, tick: int, low: int, high: int) -> None:
        """Do the forwards of ranks ``low`` to before ``high`` and pass their results on."""
        end, data, row = self.end[low:high], self.forward_data, self.forward[tick % self.period]
        done = [
            (e if e > a else a) + d  # noqa: FURB136
            for e, a, d in zip(end, data[low:high], row[low:high], strict=True)
        ]
        self.end[low:high] = done
        hops = self.hops[low:high]
        data[low + 1 : high + 1] = [e + hop for e, hop in zip(done, hops, strict=False)]
        wraps = (tick + 1 - self.start) % self.period >= self.ranks
        data[0] = self.end[-1] + self.wrap if wraps else 0

    def _backward(self, tick: int, low: int, high: int) -> None:
        """Do the backwards of ranks ``low`` to before ``high`` and pass their results back."""
        end, data, row = self.end[low:high], self.backward_data, self.backward[tick % self.period]
        done = [
            (e if e > a else a) + d  # noqa: FURB136
            for e, a, d in zip(end, data[low:high], row[low:high], strict=True)
        ]
        self.end[low:high] = done
        above = max(low, 1)
        hops = self.hops[above - 1 : high - 1]
        data[above - 1 : high - 1] = [
            e + hop for e, hop in zip(done[above - low :], hops, strict=True)
        ]
        wraps = (tick + 1) % self.period >= self.ranks
        data[-1] = self.end[0] + self.wrap if wraps else 0

    def _state(self) -> State:
        return [*self.end, *self.forward_data, *self.backward_data]

    def _restore(self, state: State) -> None:
        ranks = self.ranks
        self.end = state[:ranks]
        self.forward_data, self.backward_data = state[ranks : 2 * ranks], state[2 * ranks :]

    def _steady_period(self, state: State) -> State:
        """Run one period of full ticks, in which every rank does one forward and one backward."""
        return self._steady_ticks(state, self.ranks - 1, self.ranks - 1 + self.period)

    def _steady_ticks(self, state: State, first: int, stop: int) -> State:
        """Run full ticks; comparisons instead of calls to max halve the time of this innermost loop."""
        self._restore(state)
        end, arrived, returned = self.end, self.forward_data, self.backward_data
        hops, wrap, ranks, period = self.hops, self.wrap, self.ranks, self.period
        for tick in range(first, stop):
            row = self.forward[tick % period]
            done = [
                (e if e > a else a) + d  # noqa: FURB136
                for e, a, d in zip(end, arrived, row, strict=True)
            ]
            row = self.backward[tick % period]
            end = [
                (e if e > a else a) + d  # noqa: FURB136
                for e, a, d in zip(done, returned, row, strict=True)
            ]
            wraps = (tick + 1 - self.start) % period >= ranks
            arrived = [done[-1] + wrap if wraps else 0]
            arrived += [e + hop for e, hop in zip(done, hops, strict=False)]
            returned = [e + hop for e, hop in zip(end[1:], hops, strict=True)]
            returned.append(end[0] + wrap if (tick + 1) % period >= ranks else 0)
        return [*end, *arrived, *returned]


def _advance(state: State, step: Callable[[State], State], rounds: int) -> State:
    """Return ``state`` after ``rounds`` steps, skipping whole periods once the state repeats.

    Brent's cycle detection on the state relative to its first entry: a snapshot is kept and renewed after
    1, 2, 4, .. rounds; an entry of zero means "nothing to wait for" and stays zero.
    """
    snapshot, age, life, jumped = list(state), 0, 1, False
    while rounds:
        state = step(state)
        rounds, age = rounds - 1, age + 1
        if not jumped and repeats(state, snapshot):
            shift, (skipped, rounds) = state[0] - snapshot[0], divmod(rounds, age)
            state = [value and value + skipped * shift for value in state]
            jumped = True
        elif age == life:
            snapshot, age, life = list(state), 0, 2 * life
    return state


def repeats(state: State, snapshot: State) -> bool:
    """Return whether all entries moved equally far; zeros stay zero."""
    shift = state[0] - snapshot[0]
    if len(state) > 1 and state[1] - snapshot[1] != shift and state[1] != snapshot[1]:
        return False
    return all(
        new - old == shift if old else not new for new, old in zip(state, snapshot, strict=True)
    )
