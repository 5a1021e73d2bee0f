"""From a strategy with its placement and price to a Plan: simulate, break down, report stages and band."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from costmodel.cost import StrategyCost
from costmodel.graph import ModelGraph, Operator
from costmodel.linear import ChunkContent, StageTerm
from costmodel.memory import stage_memory
from costmodel.schedules import Shape, in_flight
from costmodel.spec import ClusterSpec, DeviceSpec, TrainingSpec
from costmodel.strategy import Strategy
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


def stage_reports(cost: StrategyCost, placement: Placement) -> tuple[StageReport, ...]:
    """Return memory by term and times of every pipeline rank."""
    reports = []
    for rank, contents in enumerate(chunk_contents(cost, placement)):
        own = cost.at(rank)
        peak = stage_memory(own.memory, contents)
        reports.append(
            StageReport(
                chunks=tuple(placement.chunks[rank :: cost.strategy.pp]),
                memory_bytes=peak.reserved_bytes,
                allocated_bytes=peak.allocated_bytes,
                memory=peak.terms,
                peak_moment=peak.moment,
                forward_s=_seconds(own.forward, contents),
                backward_s=_seconds(own.backward, contents),
            )
        )
    return tuple(reports)


def time_terms(cost: StrategyCost, placement: Placement, iteration_s: float) -> dict[str, float]:
    """Return where the time of the busiest rank goes; waiting is what is left, the bubble.

    The busiest rank is the one with the most work; its terms and the bubble sum to ``iteration_s``.
    """
    ranks = [
        _rank_terms(cost.at(rank), contents)
        for rank, contents in enumerate(chunk_contents(cost, placement))
    ]
    busiest = max(ranks, key=lambda terms: sum(terms.values()))
    if cost.fixed_s:
        busiest["fixed"] = cost.fixed_s
    waiting = iteration_s - sum(busiest.values())
    return {
        **{name: value for name, value in busiest.items() if value},
        "bubble": max(0.0, waiting),
    }


def _rank_terms(cost: StrategyCost, contents: Sequence[ChunkContent]) -> dict[str, float]:
    terms: dict[str, float] = {}
    for term in (*cost.forward, *cost.backward):
        seconds = cost.strategy.microbatches * sum(term.value((chunk,)) for chunk in contents)
        terms[term.name] = terms.get(term.name, 0.0) + seconds
    longest = max(cost.finish, key=lambda way: sum(term.value(contents) for term in way.terms))
    for term in longest.terms:
        terms[term.name] = terms.get(term.name, 0.0) + term.value(contents)
    return terms


def _seconds(terms: Sequence[StageTerm], contents: Sequence[ChunkContent]) -> float:
    return sum(term.value((chunk,)) for term in terms for chunk in contents)


def model_flops(graph: ModelGraph, training: TrainingSpec) -> float:
    """Return the FLOPs of one iteration by the usual convention, for MFU.

    Three times the forward matmuls (backward is two more of each), attention at its causal half, no
    recomputation (Chowdhery et al. 2022, PaLM, arXiv 2204.02311, appendix B, with the causal mask counted).
    """
    blocks = sum(
        _token_flops(graph.kinds[kind].operators, training.sequence) for kind in graph.layers
    )
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
    return Plan(
        rank=rank,
        strategy=cost.strategy,
        placement=placement,
        stages=_on_devices(stage_reports(cost, placement), cluster, placement, memory_limit_bytes),
        iteration_s=iteration_s,
        iteration_s_low=iteration_s * band[0],
        iteration_s_high=iteration_s * band[1],
        tokens_per_s=training.global_batch * training.sequence / iteration_s,
        mfu=flops / (iteration_s * peak),
        memory_limit_bytes=memory_limit_bytes,
        time=time_terms(cost, placement, iteration_s),
        price_shares=price_shares,
        demand_bytes=demand_bytes,
    )
