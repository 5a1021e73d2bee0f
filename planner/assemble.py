"""From a strategy with its placement and price to a Plan: simulate, break down, report stages and band."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from costmodel.cost import StrategyCost
from costmodel.graph import ModelGraph, Operator
from costmodel.linear import ChunkContent, StageTerm
from costmodel.memory import stage_memories
from costmodel.schedules import Shape, in_flight
from costmodel.spec import ClusterSpec, DeviceSpec, TrainingSpec
from costmodel.strategy import Strategy
from costmodel.term_table import Contents, term_values
from planner.plans import Chunk, Placement, Plan, StageReport


def chunk_contents(
    cost: StrategyCost, placement: Placement
) -> tuple[tuple[ChunkContent, ...], ...]:
    """Return what each pipeline rank holds, chunk by chunk."""
    strategy = cost.strategy
    last = len(placement.chunks) - 1
    flights = in_flight(Shape(strategy.schedule, strategy.pp, strategy.vpp, strategy.microbatches))
    return tuple(
        tuple(
            _content(
                cost, placement.chunks[v], first=v == 0, last=v == last, in_flight=flights[rank][c]
            )
            for c, v in enumerate(range(rank, last + 1, strategy.pp))
        )
        for rank in range(strategy.pp)
    )


def _content(
    cost: StrategyCost, chunk: Chunk, *, first: bool, last: bool, in_flight: int
) -> ChunkContent:
    kinds = len(cost.forward[0].layer)
    layers = cost.layer_kinds[chunk.first_layer : chunk.first_layer + chunk.layers]
    recomputed = layers[: chunk.recomputed]
    return ChunkContent(
        layers=tuple(layers.count(kind) for kind in range(kinds)),
        recomputed=tuple(recomputed.count(kind) for kind in range(kinds)),
        first=first,
        last=last,
        in_flight=in_flight,
    )


class _Ranks:
    """The terms of a cost, evaluated for everything that the ranks of a placement hold."""

    def __init__(self, cost: StrategyCost, placement: Placement) -> None:
        self.cost, self.placement = cost, placement
        self.contents = Contents.of(chunk_contents(cost, placement))
        self.forward, self.backward = self._by_rank(cost.forward), self._by_rank(cost.backward)

    def _by_rank(self, terms: Sequence[StageTerm]) -> list[list[list[float]]]:
        """Return the seconds of each term on each chunk, by rank."""
        values = term_values(terms, self.contents.apart())
        by_rank = values.reshape(len(terms), *self.contents.first.shape).swapaxes(0, 1)
        found: list[list[list[float]]] = by_rank.tolist()
        return found

    def reports(self) -> tuple[StageReport, ...]:
        """Return memory by term and times of every pipeline rank."""
        peaks = stage_memories(self.cost.memory, self.contents)
        return tuple(
            StageReport(
                chunks=tuple(self.placement.chunks[rank :: self.cost.strategy.pp]),
                memory_bytes=peak.reserved_bytes,
                allocated_bytes=peak.allocated_bytes,
                memory=peak.terms,
                peak_moment=peak.moment,
                forward_s=sum(chain.from_iterable(self.forward[rank])),
                backward_s=sum(chain.from_iterable(self.backward[rank])),
            )
            for rank, peak in enumerate(peaks)
        )

    def time_terms(self, iteration_s: float) -> dict[str, float]:
        """Return where the time of the busiest rank goes; waiting is what is left, the bubble.

        The busiest rank is the one with the most work; its terms and the bubble sum to ``iteration_s``.
        """
        busiest = max(self.rank_terms(), key=lambda terms: sum(terms.values()))
        if self.cost.fixed_s:
            busiest["fixed"] = self.cost.fixed_s
        waiting = iteration_s - sum(busiest.values())
        return {
            **{name: value for name, value in busiest.items() if value},
            "bubble": max(0.0, waiting),
        }

    def rank_terms(self) -> Iterator[dict[str, float]]:
        """Yield the seconds of each rank by term, the end of the iteration included."""
        names = [term.name for term in (*self.cost.forward, *self.cost.backward)]
        often = self.cost.strategy.microbatches
        rows = zip(self.forward, self.backward, self._finishes(), strict=True)
        for forward, backward, finish in rows:
            terms: dict[str, float] = {}
            for name, chunks in zip(names, chain(forward, backward), strict=True):
                terms[name] = terms.get(name, 0.0) + often * sum(chunks)
            for name, value in finish:
                terms[name] = terms.get(name, 0.0) + value
            yield terms

    def _finishes(self) -> Iterator[list[tuple[str, float]]]:
        """Yield for each rank the terms of its longest way to finish."""
        ways = [term_values(way.terms, self.contents).T.tolist() for way in self.cost.finish]
        names = [[term.name for term in way.terms] for way in self.cost.finish]
        for rows in zip(*ways, strict=True):
            longest = max(range(len(rows)), key=lambda way: sum(rows[way]))
            yield list(zip(names[longest], rows[longest], strict=True))


class _UnlikeRanks(_Ranks):
    """The same where each pipeline rank has prices of its own; ranks with the same prices share them."""

    def __init__(self, cost: StrategyCost, placement: Placement) -> None:
        self.cost = cost
        parts = {id(own): _Ranks(own, placement) for own in cost.by_rank}
        self.parts = [parts[id(own)] for own in cost.by_rank]

    def reports(self) -> tuple[StageReport, ...]:
        """Return memory by term and times of every pipeline rank."""
        found = {id(part): part.reports() for part in self.parts}
        return tuple(found[id(part)][rank] for rank, part in enumerate(self.parts))

    def rank_terms(self) -> Iterator[dict[str, float]]:
        """Yield the seconds of each rank by term at its own prices."""
        found = {id(part): list(part.rank_terms()) for part in self.parts}
        for rank, part in enumerate(self.parts):
            yield dict(found[id(part)][rank])


def model_flops(graph: ModelGraph, training: TrainingSpec) -> float:
    """Return the FLOPs of one iteration by the usual convention, for MFU.

    Three times the forward matmuls (backward is two more of each), attention at its causal half, no
    recomputation (Chowdhery et al. 2022, PaLM, arXiv 2204.02311, appendix B, with the causal mask counted).
    """
    each = [_token_flops(kind.operators, training.sequence) for kind in graph.kinds]
    blocks = sum(each[kind] for kind in graph.layers)
    head = _token_flops(graph.head.operators, training.sequence)
    return 3.0 * (blocks + head) * training.global_batch * training.sequence


def _token_flops(operators: Sequence[Operator], sequence: int) -> float:
    total = 0.0
    for operator in operators:
        attention = operator.attention
        context = float(sequence)
        if attention is not None and attention.causal:
            context = min(sequence / 2, attention.window or sequence)
        total += operator.flops_per_token(context)
        total += operator.flops / sequence if operator.flops else 0.0
    return total


def _devices(
    cluster: ClusterSpec, placement: Placement, strategy: Strategy
) -> tuple[DeviceSpec, ...]:
    """Return the device of each pipeline rank."""
    if not placement.device_groups:
        return (cluster.device,) * strategy.pp
    return tuple(cluster.groups[group].device for group in placement.device_groups)


def _peak_flops(device: DeviceSpec, training: TrainingSpec) -> float:
    return device.peak_flops.get(training.precision, device.peak_flops["fp32"])


def _on_devices(
    stages: tuple[StageReport, ...],
    cluster: ClusterSpec,
    placement: Placement,
    memory_limit_bytes: float,
) -> tuple[StageReport, ...]:
    """Return the stages with device and limit where ranks are assigned to device groups."""
    if not placement.device_groups:
        return stages
    devices = [cluster.groups[group].device for group in placement.device_groups]
    return tuple(
        replace(
            stage,
            device=device.name,
            memory_limit_bytes=min(memory_limit_bytes, device.usable_bytes),
        )
        for stage, device in zip(stages, devices, strict=True)
    )


def build_plan(
    *,
    rank: int,
    cost: StrategyCost,
    placement: Placement,
    iteration_s: float,
    band: tuple[float, float],
    graph: ModelGraph,
    cluster: ClusterSpec,
    training: TrainingSpec,
    memory_limit_bytes: float,
    demand_bytes: float,
    price_shares: Mapping[str, float],
) -> Plan:
    """Return the finished plan; ``band`` holds the factors of the 80 % interval around ``iteration_s``."""
    flops = model_flops(graph, training)
    peak = sum(_peak_flops(item, training) for item in _devices(cluster, placement, cost.strategy))
    peak *= cost.strategy.gpus / cost.strategy.pp
    ranks = (_UnlikeRanks if cost.by_rank else _Ranks)(cost, placement)
    return Plan(
        rank=rank,
        strategy=cost.strategy,
        placement=placement,
        stages=_on_devices(ranks.reports(), cluster, placement, memory_limit_bytes),
        iteration_s=iteration_s,
        iteration_s_low=iteration_s * band[0],
        iteration_s_high=iteration_s * band[1],
        tokens_per_s=training.global_batch * training.sequence / iteration_s,
        mfu=flops / (iteration_s * peak),
        memory_limit_bytes=memory_limit_bytes,
        time=ranks.time_terms(iteration_s),
        price_shares=price_shares,
        demand_bytes=demand_bytes,
    )
