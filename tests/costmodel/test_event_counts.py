"""Counts of unique events, against what the published schemes issue."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from costmodel.catalog import cluster, model
from costmodel.event_counts import event_counts
from costmodel.events import CommEvent, ComputeEvent, Event
from costmodel.graph import build_graph
from costmodel.linear import ChunkContent
from costmodel.pricing import Pricer
from costmodel.spec import TrainingSpec
from costmodel.strategy import Strategy

LAYERS, MICRO = 32, 8
TRAINING = TrainingSpec(global_batch=64, sequence=2048)
GRAPH = build_graph(model("llama-3.1-8b"))


def _pricer(framework: str = "megatron", gpus: int = 16) -> Pricer:
    return Pricer(GRAPH, cluster("dgx-h100", gpus), replace(TRAINING, framework=framework))


def _chunks(stages: int, recomputed: int = 0) -> list[ChunkContent]:
    each = LAYERS // stages
    return [
        ChunkContent(layers=(each,), recomputed=(recomputed,), first=v == 0, last=v == stages - 1)
        for v in range(stages)
    ]


def _comm(counts: Mapping[Event, float], collective: str, least_bytes: int = 2) -> float:
    return sum(
        count
        for event, count in counts.items()
        if isinstance(event, CommEvent)
        and event.collective == collective
        and event.bytes >= least_bytes
    )


def test_tensor_parallelism_reduces_four_times_a_layer_and_around_the_vocabulary() -> None:
    strategy = Strategy(tp=8, microbatches=MICRO)
    counts = event_counts(_pricer(), strategy, _chunks(1))
    assert _comm(counts, "all_reduce") == MICRO * (4 * LAYERS + 2)


def test_every_boundary_is_passed_forward_and_back() -> None:
    strategy = Strategy(pp=4, microbatches=MICRO)
    assert _comm(event_counts(_pricer(), strategy, _chunks(4)), "send_recv") == 2 * 3 * MICRO
    both = replace(strategy, vpp=2, schedule="interleaved")
    assert _comm(event_counts(_pricer(), both, _chunks(8)), "send_recv") == 2 * 7 * MICRO


def test_fully_sharded_layers_are_gathered_twice_and_reduced_once_though_both_hide() -> None:
    strategy = Strategy(dp=8, zero=3, microbatches=2)
    counts = event_counts(_pricer("torchtitan", 8), strategy, _chunks(1))
    # the layers, and embedding and head alike
    assert _comm(counts, "all_gather") == 2 * 2 * (LAYERS + 2)
    assert _comm(counts, "reduce_scatter") == 2 * (LAYERS + 2)


def test_gradients_are_counted_in_buckets_though_they_hide() -> None:
    pricer = _pricer()
    counts = event_counts(pricer, Strategy(dp=16, microbatches=4), _chunks(1))
    buckets = [
        (event.bytes, count)
        for event, count in counts.items()
        if isinstance(event, CommEvent) and event.bytes > 1 and count
    ]
    parameters = sum(size * count for size, count in buckets) / (
        pricer.framework.gradient_bytes or 2
    )
    assert parameters == pytest.approx(8.03e9, rel=0.02)


def test_recomputed_layers_repeat_their_forward() -> None:
    strategy = Strategy(tp=8, microbatches=MICRO)
    plain = event_counts(_pricer(), strategy, _chunks(1))
    again = event_counts(_pricer(), strategy, _chunks(1, recomputed=LAYERS))
    core = next(e for e in plain if isinstance(e, ComputeEvent) and e.op == "flash_attention")
    assert again[core] == 2 * plain[core] == 2 * MICRO * LAYERS


def test_counts_times_seconds_are_the_busy_seconds_of_the_terms() -> None:
    pricer, strategy = _pricer(gpus=1), Strategy(microbatches=MICRO)
    counts, cost = event_counts(pricer, strategy, _chunks(1)), pricer.time_cost(strategy)
    constants = ("launch", "overhead")
    busy = MICRO * sum(
        term.value(_chunks(1))
        for term in (*cost.forward, *cost.backward)
        if term.name not in constants
    )
    busy += max(sum(term.value(_chunks(1)) for term in item.terms) for item in cost.finish)
    total = sum(pricer.prices.priced[event] * count for event, count in counts.items())
    assert total == pytest.approx(busy, rel=1e-6)
