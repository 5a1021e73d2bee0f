"""From the flat facts of a case to model, cluster, training, strategy and what each stage holds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from costmodel import catalog
from costmodel.graph import ModelGraph, build_graph
from costmodel.linear import ChunkContent
from costmodel.memory import StageMemory, memory_moments, stage_memory
from costmodel.schedules import Shape, in_flight
from costmodel.spec import (
    AttentionSpec,
    ClusterSpec,
    DeviceGroup,
    DeviceSpec,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    TrainingSpec,
)
from costmodel.strategy import Strategy
from costmodel.verdict import Verdict, device_verdict
from planner.plans import Chunk, Placement, Plan
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.simulation import simulate_placement

Facts = Mapping[str, Any]
_STRATEGY = (
    "dp", "tp", "pp", "cp", "ep", "etp", "vpp", "zero", "zero_group", "sequence_parallel", "recompute",
    "offload_optimizer", "offload_activations",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One configuration of a case."""

    graph: ModelGraph
    cluster: ClusterSpec
    training: TrainingSpec
    strategy: Strategy
    layers: tuple[int, ...]
    uneven: bool = True

    @property
    def device(self) -> DeviceSpec:
        """The GPU."""
        return self.cluster.device


def setting(facts: Facts) -> Setting:
    """Return the configuration that ``facts`` describe; what they leave out is the least."""
    model = model_of(facts["model"])
    strategy = strategy_of(facts)
    stages = strategy.pp * strategy.vpp
    layers = tuple(facts.get("stages") or even(len(model.layers), stages))
    return Setting(
        graph=build_graph(model),
        cluster=cluster_of(facts, strategy.gpus),
        training=training_of(facts, strategy),
        strategy=strategy,
        layers=layers,
        uneven=bool(facts.get("uneven", True)),
    )


def model_of(facts: str | Facts) -> ModelSpec:
    """Return a catalog model, or one of a few widths; ``layers`` cuts a catalog model short."""
    if isinstance(facts, str):
        return catalog.model(facts)
    if "use" in facts:
        whole = catalog.model(facts["use"])
        count = facts.get("layers", len(whole.layers))
        kept = whole.layers[-count:] if facts.get("last") else whole.layers[:count]
        extra = round(facts.get("extra_parameters", 0))
        return replace(whole, layers=kept, extra_parameters=whole.extra_parameters + extra)
    return _inline(facts)


def _inline(facts: Facts) -> ModelSpec:
    hidden, heads = int(facts["hidden"]), int(facts["heads"])
    gated = bool(facts.get("gated", True))
    attention = AttentionSpec(
        heads=heads,
        kv_heads=int(facts.get("kv_heads", heads)),
        head_dim=int(facts.get("head_dim", hidden // heads)),
        qkv_bias=not gated,
        out_bias=not gated,
    )
    mlp = MlpSpec(
        ffn=int(facts["ffn"]),
        gated=gated,
        bias=not gated,
        experts=int(facts.get("experts", 0)),
        topk=int(facts.get("topk", 0)),
    )
    block = LayerSpec(name="block", attention=attention, mlp=mlp, frozen=bool(facts.get("frozen")))
    kinds: tuple[LayerSpec, ...] = (block,)
    layers = (0,) * int(facts["layers"])
    decoders = int(facts.get("decoder_layers", 0))
    if decoders:
        kinds = (block, replace(block, name="decoder", cross_attention=attention, norms=3))
        layers = (*layers, *(1,) * decoders)
    return ModelSpec(
        name=str(facts.get("name", "model")),
        hidden=hidden,
        kinds=kinds,
        layers=layers,
        vocab=int(facts.get("vocab", 0)),
        tied=bool(facts.get("tied", False)),
        norm="rmsnorm" if gated else "layernorm",
        positions=int(facts.get("positions", 0)),
        decoder_start=int(facts["layers"]) if decoders else 0,
    )


def strategy_of(facts: Facts) -> Strategy:
    """Return the strategy; the data-parallel degree follows from ``gpus`` where it is not given."""
    values = {name: facts[name] for name in _STRATEGY if name in facts}
    whole = facts.get("tp", 1) * facts.get("pp", 1) * facts.get("cp", 1)
    values.setdefault("dp", max(1, int(facts.get("gpus", whole)) // whole))
    micro = int(facts.get("micro_batch", 1))
    batch = int(facts.get("global_batch", micro * values["dp"] * facts.get("microbatches", 1)))
    chunks = int(facts.get("vpp", 1))
    return Strategy(
        **values,
        micro_batch=micro,
        microbatches=max(1, batch // (micro * values["dp"])),
        schedule=facts.get("schedule", "interleaved" if chunks > 1 else "1f1b"),
    )


def training_of(facts: Facts, strategy: Strategy) -> TrainingSpec:
    """Return the training; options are written as in a scenario."""
    return TrainingSpec(
        global_batch=int(facts.get("batch", strategy.global_batch)),
        sequence=int(facts.get("sequence", 2048)),
        decoder_sequence=int(facts.get("decoder_sequence", 0)),
        framework=str(facts.get("framework", "megatron")),
        precision=facts.get("precision", "bf16"),
        attention=facts.get("attention", "flash"),
        options={key: str(value) for key, value in facts.get("options", {}).items()},
    )


def cluster_of(facts: Facts, gpus: int) -> ClusterSpec:
    """Return a catalog cluster of the case, or equal GPUs whose links nobody asks for."""
    gpus = int(facts.get("world", gpus))
    if "cluster" in facts:
        return catalog.cluster(facts["cluster"], gpus)
    device = catalog.device(facts["gpu"])
    if "memory_gib" in facts:
        size = round(facts["memory_gib"] * 2**30)
        device = replace(device, memory_bytes=size, usable_bytes=catalog.usable_bytes(size))
    group = DeviceGroup(
        device=device, gpus=gpus, gpus_per_node=int(facts.get("per_node", 8)), levels=()
    )
    return ClusterSpec(
        name="case", groups=(group,), host_memory_bytes=round(facts.get("host_gb", 0) * 1e9)
    )


def even(layers: int, stages: int) -> list[int]:
    """Return an even cut; embedding and loss count as layers where that makes it even."""
    for ends in (0, 2):
        size, rest = divmod(layers + ends, stages)
        if not rest and size > 1 - (not ends):
            counts = [size] * stages
            counts[0] -= ends // 2
            counts[-1] -= ends // 2
            return counts
    return [layers * (s + 1) // stages - layers * s // stages for s in range(stages)]


def peaks(case: Setting) -> list[StageMemory]:
    """Return the peak of each pipeline rank."""
    moments = memory_moments(case.graph, case.cluster, case.training, case.strategy)
    return [stage_memory(moments, chunks) for chunks in ranks(case)]


def ranks(case: Setting) -> list[list[ChunkContent]]:
    """Return what each pipeline rank holds, with the micro-batches in flight of its schedule."""
    strategy, kinds = case.strategy, len(case.graph.kinds)
    shape = Shape(strategy.schedule, strategy.pp, strategy.vpp, strategy.microbatches)
    flying = in_flight(shape)
    starts = [sum(case.layers[:stage]) for stage in range(len(case.layers))]
    held: list[list[ChunkContent]] = [[] for _ in range(strategy.pp)]
    for stage, count in enumerate(case.layers):
        order = case.graph.layers[starts[stage] : starts[stage] + count]
        layers = tuple(order.count(kind) for kind in range(kinds))
        chunk, rank = divmod(stage, strategy.pp)
        held[rank].append(
            ChunkContent(
                layers=layers,
                recomputed=layers if strategy.recompute == "full" else (0,) * kinds,
                first=stage == 0,
                last=stage == len(case.layers) - 1,
                in_flight=flying[rank][chunk],
            )
        )
    return held


def scenario(case: Setting) -> Scenario:
    """Return the question that a planner would be asked."""
    return Scenario(
        name="case",
        graph=case.graph,
        cluster=case.cluster,
        training=case.training,
        memory_limit_bytes=case.device.usable_bytes,
        gpu_counts=(case.cluster.gpus,),
        uneven_stages=case.uneven,
    )


def placement(case: Setting) -> Placement:
    """Return the case's layers on its stages."""
    full = case.strategy.recompute == "full"
    starts = [sum(case.layers[:stage]) for stage in range(len(case.layers))]
    return Placement(
        chunks=tuple(
            Chunk(first_layer=start, layers=count, recomputed=count if full else 0)
            for start, count in zip(starts, case.layers, strict=True)
        )
    )


def plan_of(case: Setting) -> Plan:
    """Return the prediction."""
    question = scenario(case)
    found = simulate_placement(question, make_pricer(question), case.strategy, placement(case))
    assert found.plan is not None
    return found.plan


def verdict_of(case: Setting) -> Verdict:
    """Return fits, borderline or oom."""
    return device_verdict(peaks(case), case.device)
