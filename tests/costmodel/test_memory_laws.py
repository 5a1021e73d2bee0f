"""Laws of memory over generated strategies: what must never hurt does not."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel import catalog
from costmodel.graph import build_graph
from costmodel.linear import ChunkContent
from costmodel.memory import MemoryModel, StageMemory, stage_memory
from costmodel.memory_behaviour import FRAMEWORKS_WITH_MEMORY
from costmodel.spec import TrainingSpec
from costmodel.strategy import Strategy

GRAPHS = {name: build_graph(catalog.model(name)) for name in ("llama-3.1-8b", "qwen3-30b-a3b")}
CLUSTER = catalog.cluster("dgx-h100", 64)

strategies = st.builds(
    Strategy,
    dp=st.sampled_from((1, 2, 8)),
    tp=st.sampled_from((1, 2, 4)),
    pp=st.sampled_from((1, 2, 4)),
    cp=st.sampled_from((1, 2)),
    micro_batch=st.sampled_from((1, 2, 4)),
    microbatches=st.sampled_from((1, 8)),
    zero=st.sampled_from((0, 1, 2, 3)),
    sequence_parallel=st.booleans(),
    recompute=st.sampled_from(("none", "selective", "full")),
)
frameworks = st.sampled_from(FRAMEWORKS_WITH_MEMORY)
models = st.sampled_from(tuple(GRAPHS))


def peak(model: str, framework: str, strategy: Strategy, layers: int = 8) -> StageMemory:
    training = TrainingSpec(global_batch=64, sequence=4096, framework=framework)
    moments = MemoryModel(GRAPHS[model], CLUSTER, training).moments(strategy)
    recomputed = layers if strategy.recompute == "full" else 0
    chunk = ChunkContent(
        layers=(layers,), recomputed=(recomputed,), first=True, last=strategy.pp == 1, in_flight=2
    )
    return stage_memory(moments, (chunk,))


@settings(max_examples=60, deadline=None)
@given(models, frameworks, strategies)
def test_every_term_is_at_least_zero_and_they_sum_to_the_peak(
    model: str, framework: str, strategy: Strategy
) -> None:
    found = peak(model, framework, strategy)
    assert min(found.terms.values()) >= 0.0
    assert abs(sum(found.terms.values()) - found.reserved_bytes) < 1.0


@settings(max_examples=60, deadline=None)
@given(models, frameworks, strategies)
def test_more_layers_and_larger_micro_batches_never_need_less(
    model: str, framework: str, strategy: Strategy
) -> None:
    base = peak(model, framework, strategy).reserved_bytes
    assert peak(model, framework, strategy, layers=9).reserved_bytes >= base
    wider = replace(strategy, micro_batch=2 * strategy.micro_batch)
    assert peak(model, framework, wider).reserved_bytes >= base


@settings(max_examples=60, deadline=None)
@given(models, frameworks, strategies)
def test_more_replicas_never_need_more_where_state_is_sharded(
    model: str, framework: str, strategy: Strategy
) -> None:
    sharded = replace(strategy, zero=max(1, strategy.zero), dp=2)
    wider = replace(sharded, dp=8)
    assert (
        peak(model, framework, wider).reserved_bytes
        <= peak(model, framework, sharded).reserved_bytes
    )


@settings(max_examples=60, deadline=None)
@given(models, frameworks, strategies)
def test_offloading_never_needs_more(model: str, framework: str, strategy: Strategy) -> None:
    moved = replace(strategy, offload_optimizer=0.5, offload_activations=0.5)
    assert (
        peak(model, framework, moved).reserved_bytes
        <= peak(model, framework, strategy).reserved_bytes
    )
