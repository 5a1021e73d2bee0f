"""Memory terms against published formulas."""

import pytest

from costmodel.frameworks import FRAMEWORKS
from costmodel.graph import ModelGraph, build_graph
from costmodel.linear import ChunkContent
from costmodel.memory import (
    BEYOND_ALLOCATED,
    MEMORY_FIELDS,
    MemoryModel,
    memory_moments,
    stage_memory,
)
from costmodel.memory_behaviour import FRAMEWORKS_WITH_MEMORY
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
from costmodel.strategy import FIELD_NAMES, Strategy

HIDDEN, HEADS, SEQUENCE = 12288, 96, 2048


def gpt(layers: int = 4, *, tied: bool = False) -> ModelGraph:
    """GPT-3's layer (Brown et al. 2020) with GPT-style norms, biases and MLP."""
    attention = AttentionSpec(heads=HEADS, kv_heads=HEADS, head_dim=HIDDEN // HEADS)
    block = LayerSpec(name="block", attention=attention, mlp=MlpSpec(ffn=4 * HIDDEN, gated=False))
    return build_graph(
        ModelSpec(
            name="gpt",
            hidden=HIDDEN,
            kinds=(block,),
            layers=(0,) * layers,
            vocab=51200,
            norm="layernorm",
            tied=tied,
        )
    )


def cluster(gpus: int = 8) -> ClusterSpec:
    device = DeviceSpec(
        name="a100-80gb",
        architecture="ampere",
        memory_bytes=85_899_345_920,
        usable_bytes=84_000_000_000,
        bandwidth_bytes_per_s=2.0e12,
        peak_flops={"bf16": 312e12},
        multiprocessors=108,
    )
    group = DeviceGroup(device=device, gpus=gpus, gpus_per_node=8, levels=())
    return ClusterSpec(name="node", groups=(group,))


def training(**changes: object) -> TrainingSpec:
    values: dict[str, object] = {
        "global_batch": 8,
        "sequence": SEQUENCE,
        "framework": "megatron-lm",
        "attention": "standard",
    }
    return TrainingSpec(**(values | changes))  # type: ignore[arg-type]


def activations(strategy: Strategy, **changes: object) -> float:
    """Return activation bytes of one layer and one micro-batch over s * b * h."""
    moments = memory_moments(gpt(), cluster(), training(**changes), strategy)
    term = next(item for item in moments[0].terms if item.name == "activations")
    return term.flight_layer[0] / (SEQUENCE * strategy.micro_batch * HIDDEN)


SQUARE = 5 * HEADS * SEQUENCE / HIDDEN


@pytest.mark.parametrize(
    ("strategy", "published"),
    [
        (Strategy(), 34 + SQUARE),
        (Strategy(tp=8), 10 + 24 / 8 + SQUARE / 8),
        (Strategy(tp=8, sequence_parallel=True), (34 + SQUARE) / 8),
        (Strategy(tp=8, recompute="selective"), 10 + 24 / 8),
        (Strategy(tp=8, sequence_parallel=True, recompute="selective"), 34 / 8),
        (Strategy(micro_batch=2, recompute="full"), 2),
    ],
)
def test_activations_are_those_of_korthikanti_2022_table_2(
    strategy: Strategy, published: float
) -> None:
    assert activations(strategy) == pytest.approx(published, rel=1e-12)


@pytest.mark.parametrize(
    ("framework", "precision", "zero", "dp", "published"),
    [
        ("megatron", "bf16", 0, 8, 18),
        ("megatron", "bf16", 1, 8, 6 + 12 / 8),
        ("deepspeed", "bf16", 1, 8, 4 + 12 / 8),
        ("deepspeed", "fp16", 2, 8, 2 + 14 / 8),
        ("deepspeed", "bf16", 3, 8, 16 / 8),
        ("torchtitan", "bf16", 3, 8, 16 / 8),
        ("megatron", "fp32", 0, 8, 16),
    ],
)
def test_bytes_per_parameter_follow_framework_and_stage(
    framework: str, precision: str, zero: int, dp: int, published: float
) -> None:
    model = gpt()
    moments = memory_moments(
        model,
        cluster(),
        training(framework=framework, precision=precision, sequence=128),
        Strategy(dp=dp, zero=zero),
    )
    step = moments[-1]
    chunk = ChunkContent(layers=(4,), recomputed=(0,), first=True, last=True, in_flight=0)
    states = sum(
        item.value((chunk,))
        for item in step.terms
        if item.name in ("parameters", "gradients", "optimizer")
    )
    assert states / model.parameters == pytest.approx(published, rel=1e-9)


def test_memory_fields_are_fields_of_the_strategy() -> None:
    assert set(MEMORY_FIELDS) <= set(FIELD_NAMES)


def test_peak_is_the_sum_of_its_named_terms_and_allocated_leaves_out_those_beyond() -> None:
    moments = MemoryModel(gpt(), cluster(), training()).moments(Strategy(dp=8))
    chunk = ChunkContent(layers=(4,), recomputed=(0,), first=True, last=True)
    peak = stage_memory(moments, (chunk,))
    assert peak.reserved_bytes == pytest.approx(sum(peak.terms.values()))
    beyond = sum(value for name, value in peak.terms.items() if name in BEYOND_ALLOCATED)
    assert peak.allocated_bytes == pytest.approx(peak.reserved_bytes - beyond)


def test_tied_weights_count_once_on_one_stage_and_twice_on_two() -> None:
    tables = 51200 * HIDDEN * 18
    chunk = ChunkContent(layers=(4,), recomputed=(0,), first=True, last=True, in_flight=0)

    def states(*, tied: bool) -> float:
        moments = memory_moments(gpt(tied=tied), cluster(), training(), Strategy())
        return stage_memory(moments[-1:], (chunk,)).allocated_bytes

    assert states(tied=False) - states(tied=True) == pytest.approx(tables)


def test_every_framework_with_a_time_model_has_a_memory_model() -> None:
    assert set(FRAMEWORKS_WITH_MEMORY) == set(FRAMEWORKS)
