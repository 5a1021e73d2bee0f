"""The one border where prices become integers: nanoseconds of time, KiB of memory.

Behind it simulation, memory verdict, bounds and solver use exactly these integers, so they cannot disagree. Times are
rounded to the nearest nanosecond per coefficient; bytes are rounded up per coefficient, so that a placement that fits
in KiB fits in bytes (a saving is rounded towards zero).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.cost import MemoryMoment, StrategyCost
from costmodel.lanes import has_lanes, rounded, rounded_up, total
from costmodel.linear import StageTerm
from costmodel.schedules import Shape, in_flight
from costmodel.strategy import Strategy
from costmodel.timeline import PipelineWork
from planner.plans import Chunk, Placement

Ints = NDArray[np.int64]

KIB = 1024
NS_PER_S = 1_000_000_000


class Linear(NamedTuple):
    """An integer affine function of what a chunk or rank holds; with lanes, one for each of many strategies.

    Attributes:
        fixed: Once.
        first, last: Where the embedding / the head is.
        layer: Per layer of each kind.
        recomputed: Added per recomputed layer of each kind.
    """

    fixed: int
    first: int
    last: int
    layer: tuple[int, ...]
    recomputed: tuple[int, ...]

    def value(
        self, layers: Sequence[int], recomputed: Sequence[int], first: bool, last: bool
    ) -> int:
        """Return the function for layers by kind, recomputed ones by kind, embedding and head."""
        total = self.fixed + self.first * first + self.last * last
        for price, count, extra, again in zip(
            self.layer, layers, self.recomputed, recomputed, strict=True
        ):
            total += price * count + extra * again
        return total

    def values(self, layers: Ints, recomputed: Ints) -> Ints:
        """Return the function for (.., stage, kind): the first stage has the embedding, the last the head."""
        value = self.fixed + layers @ np.array(self.layer, dtype=np.int64)
        if any(self.recomputed):
            value += recomputed @ np.array(self.recomputed, dtype=np.int64)
        value[..., 0] += self.first
        value[..., -1] += self.last
        return np.asarray(value)


class MemoryRow(NamedTuple):
    """KiB of a rank at one moment: ``kept`` once, ``flight`` for each micro-batch in flight.

    ``recompute_once`` is added where any layer recomputes.
    """

    name: str
    kept: Linear
    flight: Linear
    recompute_once: int

    def of_chunk(self, in_flight: int) -> Linear:
        """Return the KiB of a chunk that keeps ``in_flight`` micro-batches, without the rank's own."""
        kept, flight = self.kept, self.flight
        return Linear(
            in_flight * flight.fixed,
            kept.first + in_flight * flight.first,
            kept.last + in_flight * flight.last,
            _weighted(kept.layer, flight.layer, in_flight),
            _weighted(kept.recomputed, flight.recomputed, in_flight),
        )


class Arrangement(NamedTuple):
    """A placement in the search: layer positions at which chunks begin and end, recomputed layers of each.

    Chunk ``v`` holds layers ``cuts[v]`` to ``cuts[v + 1] - 1``; its first ``recomputed[v]`` recompute.
    """

    cuts: tuple[int, ...]
    recomputed: tuple[int, ...]

    def placement(self, device_groups: tuple[int, ...] = ()) -> Placement:
        """Return the placement as the plan shows it."""
        chunks = tuple(
            Chunk(first_layer=start, layers=stop - start, recomputed=again)
            for start, stop, again in zip(
                self.cuts[:-1], self.cuts[1:], self.recomputed, strict=True
            )
        )
        return Placement(chunks=chunks, device_groups=device_groups)


class _MemoryTable(NamedTuple):
    """All memory rows as arrays: columns are what is held once by moment, then what each micro-batch adds."""

    layer: Ints
    recomputed: Ints
    fixed: Ints
    first: Ints
    last: Ints
    in_flight: Ints
    once_fixed: Ints
    recompute_once: Ints


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """Everything the search knows of one strategy, as integers.

    Attributes:
        strategy: Whose coefficients these are.
        shape: Its schedule, ranks, chunks a rank and micro-batches.
        layer_kinds: Kind index of each layer, in order.
        forward, backward, weight: Nanoseconds of one micro-batch on one chunk (backward includes weight).
        transfer_ns: By boundary, as in PipelineWork.
        finish: Alternatives; a rank pays the largest after its last task, in nanoseconds.
        memory: KiB of a rank, by moment.
        fixed_ns: Outside the schedule; part of every rank's finish.
        recompute_all: Whether every layer recomputes.
        limit_kib: What a rank may hold.
    """

    strategy: Strategy
    shape: Shape
    layer_kinds: tuple[int, ...]
    forward: Linear
    backward: Linear
    weight: Linear
    transfer_ns: tuple[int, ...]
    finish: tuple[Linear, ...]
    memory: tuple[MemoryRow, ...]
    fixed_ns: int
    recompute_all: bool
    limit_kib: int

    @cached_property
    def kinds(self) -> int:
        """Number of layer kinds."""
        return len(self.forward.layer)

    @cached_property
    def counts(self) -> tuple[tuple[int, ...], ...]:
        """Layers of each kind among the first i layers, for i = 0 to the number of layers."""
        return _prefix_counts(self.layer_kinds, self.kinds)

    @cached_property
    def in_flight(self) -> tuple[tuple[int, ...], ...]:
        """Micro-batches in flight by rank and chunk at the rank's peak."""
        return in_flight(self.shape)

    @cached_property
    def chunk_memory(self) -> tuple[tuple[tuple[Linear, ...], ...], ...]:
        """KiB as a function of the content, by moment, rank and chunk."""
        return tuple(
            tuple(tuple(row.of_chunk(count) for count in rank) for rank in self.in_flight)
            for row in self.memory
        )

    def between(self, start: int, stop: int) -> tuple[int, ...]:
        """Return layers by kind from ``start`` to before ``stop``."""
        low, high = self.counts[start], self.counts[stop]
        return tuple(b - a for a, b in zip(low, high, strict=True))

    def finish_ns(
        self, layers: Sequence[int], recomputed: Sequence[int], first: bool, last: bool
    ) -> int:
        """Return what a rank of this content does after its last task."""
        alternatives = [item.value(layers, recomputed, first, last) for item in self.finish]
        return self.fixed_ns + max(alternatives, default=0)

    def demand_kib(self, rank: int, arrangement: Arrangement) -> tuple[int, str]:
        """Return the most KiB ``rank`` holds, and at which moment."""
        return max(
            (self._moment_kib(index, rank, arrangement), row.name)
            for index, row in enumerate(self.memory)
        )

    def _moment_kib(self, index: int, rank: int, arrangement: Arrangement) -> int:
        row, total = self.memory[index], self.memory[index].kept.fixed
        last_stage = self.shape.ranks * self.shape.chunks - 1
        for chunk, linear in enumerate(self.chunk_memory[index][rank]):
            stage = chunk * self.shape.ranks + rank
            start, stop = arrangement.cuts[stage], arrangement.cuts[stage + 1]
            again = self.between(start, start + arrangement.recomputed[stage])
            total += linear.value(self.between(start, stop), again, stage == 0, stage == last_stage)
        recomputes = any(arrangement.recomputed[rank :: self.shape.ranks])
        return total + row.recompute_once * recomputes

    def peak_kib(self, arrangement: Arrangement) -> int:
        """Return the KiB of the fullest rank."""
        return int(self.demands_kib(arrangement).max())

    def fits(self, arrangement: Arrangement) -> bool:
        """Return whether every rank stays within the limit."""
        return self.peak_kib(arrangement) <= self.limit_kib

    @cached_property
    def count_table(self) -> Ints:
        """``counts`` as an array."""
        return _prefix_table(self.layer_kinds, self.kinds)

    def contents(self, cuts: Ints, recomputed: Ints) -> tuple[Ints, Ints]:
        """Return layers, and recomputed layers, by (.., virtual stage, kind) for placements along the leading axes."""
        table, start = self.count_table, cuts[..., :-1]
        below = table[start]
        if not recomputed.any():
            return table[cuts[..., 1:]] - below, np.zeros_like(below)
        return table[cuts[..., 1:]] - below, table[start + recomputed] - below

    def demands_kib(self, arrangement: Arrangement) -> Ints:
        """Return the KiB of every rank by moment: ``demand_kib`` for all ranks at once."""
        return self.demands_of(*self.contents(*map(np.array, arrangement)))

    def demands_of(self, held: Ints, again: Ints) -> Ints:
        """Return the KiB by (.., moment, rank) of placements given by their contents."""
        by_rank = (*held.shape[:-2], self.shape.chunks, self.shape.ranks, -1)
        table = self._memory_table
        value = table.fixed + held @ table.layer
        if recomputes := bool(again.any()):
            value += again @ table.recomputed
        value[..., 0, :] += table.first
        value[..., -1, :] += table.last
        kept, flight = np.split(value.reshape(by_rank), 2, axis=-1)
        total = (kept + table.in_flight * flight).sum(axis=-3).swapaxes(-1, -2) + table.once_fixed
        if recomputes:
            once = np.any(again.reshape(by_rank), axis=(-3, -1), keepdims=True)
            total += table.recompute_once * once[..., 0]
        return np.asarray(total)

    @cached_property
    def _memory_table(self) -> "_MemoryTable":
        linears = [row.kept._replace(fixed=0) for row in self.memory]
        linears += [row.flight for row in self.memory]

        def stacked(values: Iterable[object]) -> Ints:
            return np.array(list(values), dtype=np.int64)

        return _MemoryTable(
            layer=stacked(item.layer for item in linears).T,
            recomputed=stacked(item.recomputed for item in linears).T,
            fixed=stacked(item.fixed for item in linears),
            first=stacked(item.first for item in linears),
            last=stacked(item.last for item in linears),
            in_flight=np.array(self.in_flight, dtype=np.int64).T[:, :, None],
            once_fixed=stacked(row.kept.fixed for row in self.memory)[:, None],
            recompute_once=stacked(row.recompute_once for row in self.memory)[:, None],
        )

    def work(self, arrangement: Arrangement) -> PipelineWork:
        """Return what the simulator executes for ``arrangement``."""
        held, again = self.contents(*map(np.array, arrangement))

        def times(linear: Linear) -> tuple[int, ...]:
            return tuple(linear.values(held, again).tolist())

        return PipelineWork(
            shape=self.shape,
            forward_ns=times(self.forward),
            backward_ns=times(self.backward),
            weight_ns=times(self.weight),
            transfer_ns=self.transfer_ns,
            finish_ns=tuple(self.finishes(held, again).tolist()),
        )

    def finishes(self, held: Ints, again: Ints) -> Ints:
        """Return what each rank does after its last task by (.., rank), for placements given by their contents."""
        by_rank = (*held.shape[:-2], self.shape.chunks, self.shape.ranks, held.shape[-1])
        held, again = (item.reshape(by_rank).sum(axis=-3) for item in (held, again))
        ways = [item.values(held, again) for item in self.finish]
        nothing = np.zeros(held.shape[:-1], dtype=np.int64)
        return np.asarray(self.fixed_ns + (np.maximum.reduce(ways) if ways else nothing))


@lru_cache(maxsize=64)
def _prefix_counts(layer_kinds: tuple[int, ...], kinds: int) -> tuple[tuple[int, ...], ...]:
    rows = [(0,) * kinds]
    for kind in layer_kinds:
        rows.append(tuple(count + (at == kind) for at, count in enumerate(rows[-1])))
    return tuple(rows)


@lru_cache(maxsize=64)
def _prefix_table(layer_kinds: tuple[int, ...], kinds: int) -> Ints:
    table = np.array(_prefix_counts(layer_kinds, kinds), dtype=np.int64)
    table.flags.writeable = False
    return table


def coefficients(cost: StrategyCost, memory_limit_bytes: float) -> Coefficients:
    """Return the integer coefficients of a priced strategy under a memory limit per GPU."""
    strategy = cost.strategy
    kinds = max(cost.layer_kinds) + 1
    transfer = cost.transfer_s or (0.0,) * strategy.pp
    return Coefficients(
        strategy=strategy,
        shape=Shape(strategy.schedule, strategy.pp, strategy.vpp, strategy.microbatches),
        layer_kinds=cost.layer_kinds,
        forward=nanoseconds(cost.forward, kinds),
        backward=nanoseconds(cost.backward, kinds),
        weight=nanoseconds(cost.weight_gradient, kinds),
        transfer_ns=tuple(to_ns(seconds) for seconds in transfer),
        finish=tuple(nanoseconds(item.terms, kinds) for item in cost.finish),
        memory=tuple(kibibytes(moment, kinds) for moment in cost.memory),
        fixed_ns=to_ns(cost.fixed_s),
        recompute_all=strategy.recompute == "full",
        limit_kib=limit_kib(memory_limit_bytes),
    )


def limit_kib(memory_limit_bytes: float) -> int:
    """Return whole KiB within a limit in bytes."""
    return math.floor(memory_limit_bytes / KIB)


def to_ns(seconds: float) -> int:
    """Round seconds to whole nanoseconds."""
    return rounded(seconds * NS_PER_S)


def to_kib(size: float) -> int:
    """Round bytes up to whole KiB."""
    return rounded_up(size / KIB)


def nanoseconds(terms: Sequence[StageTerm], kinds: int) -> Linear:
    """Sum named seconds of one micro-batch into one integer function.

    Raises:
        ValueError: A time depends on whether any layer recomputes, which is not affine.
    """
    if any(has_lanes(term.recompute_once) or term.recompute_once for term in terms):
        raise ValueError("only memory may have a part that is paid once where layers recompute")
    totals = [0.0] * (3 + 2 * kinds)
    for term in terms:
        totals[0] = totals[0] + (term.fixed + term.flight_fixed)
        totals[1] = totals[1] + (term.first + term.flight_first)
        totals[2] = totals[2] + (term.last + term.flight_last)
        for k in range(kinds):
            again = term.recomputed[k] + term.flight_recomputed[k]
            totals[3 + k] = totals[3 + k] + (term.layer[k] + term.flight_layer[k])
            totals[3 + kinds + k] = totals[3 + kinds + k] + again
    whole = [to_ns(total) for total in totals]
    return Linear(
        whole[0], whole[1], whole[2], tuple(whole[3 : 3 + kinds]), tuple(whole[3 + kinds :])
    )


def kibibytes(moment: MemoryMoment, kinds: int) -> MemoryRow:
    """Sum named bytes of one moment into one integer function."""
    terms, layers = moment.terms, range(kinds)
    kept = Linear(
        to_kib(total(term.fixed for term in terms)),
        to_kib(total(term.first for term in terms)),
        to_kib(total(term.last for term in terms)),
        tuple(to_kib(total(term.layer[k] for term in terms)) for k in layers),
        tuple(to_kib(total(term.recomputed[k] for term in terms)) for k in layers),
    )
    flight = Linear(
        to_kib(total(term.flight_fixed for term in terms)),
        to_kib(total(term.flight_first for term in terms)),
        to_kib(total(term.flight_last for term in terms)),
        tuple(to_kib(total(term.flight_layer[k] for term in terms)) for k in layers),
        tuple(to_kib(total(term.flight_recomputed[k] for term in terms)) for k in layers),
    )
    return MemoryRow(moment.name, kept, flight, to_kib(total(t.recompute_once for t in terms)))


def _weighted(kept: Sequence[int], flight: Sequence[int], count: int) -> tuple[int, ...]:
    return tuple(one + count * other for one, other in zip(kept, flight, strict=True))
