"""How parallelism cuts parameters, on layers one can count by hand."""

import pytest

from costmodel.graph import ModelGraph, build_graph
from costmodel.local_parameters import LocalElements, adapted, layer_elements
from costmodel.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec


def graph(
    *, heads: int = 8, kv_heads: int = 8, experts: int = 0, vocab: int = 1000, frozen: bool = False
) -> ModelGraph:
    """A layer of width 64: attention 8 heads of 8, MLP of 128."""
    attention = AttentionSpec(heads=heads, kv_heads=kv_heads, head_dim=8)
    mlp = MlpSpec(ffn=128, gated=True, experts=experts, topk=2 if experts else 0)
    block = LayerSpec(name="block", attention=attention, mlp=mlp, frozen=frozen)
    return build_graph(ModelSpec(name="m", hidden=64, kinds=(block,), layers=(0,), vocab=vocab))


def block(model: ModelGraph, *, tp: int = 1, ep: int = 1, etp: int = 1) -> LocalElements:
    return layer_elements(model.kinds[0], tp=tp, ep=ep, etp=etp, vocab_multiple=128)


def test_one_rank_holds_every_parameter() -> None:
    model = graph(vocab=1024)
    parts = (*model.kinds, model.embedding, model.head)
    held = [layer_elements(part, tp=1, ep=1, etp=1, vocab_multiple=128).total for part in parts]
    assert sum(held) == model.parameters


def test_norms_stay_whole_and_matrices_are_cut() -> None:
    model = graph()
    norms = 2 * 64
    assert block(model, tp=4).total == (block(model).total - norms) / 4 + norms


def test_key_value_heads_fewer_than_ranks_are_repeated() -> None:
    queries, pair = 64 * 64, 2 * 64 * 8
    rest = block(graph(kv_heads=2), tp=8).total - block(graph(kv_heads=1), tp=8).total
    assert rest == 0.0
    qkv = queries / 8 + pair
    assert block(graph(kv_heads=2), tp=8).total == qkv + (64 * 64 + 3 * 64 * 128) / 8 + 2 * 64


def test_the_vocabulary_is_padded_to_128_times_tp() -> None:
    embedding = graph().embedding
    for tp, rows in ((1, 1024), (8, 1024), (16, 2048)):
        cut = layer_elements(embedding, tp=tp, ep=1, etp=1, vocab_multiple=128)
        assert cut.total == rows * 64 / tp
    assert layer_elements(embedding, tp=1, ep=1, etp=1, vocab_multiple=1).total == 1000 * 64


def test_experts_are_cut_by_expert_ranks_and_counted_apart() -> None:
    model = graph(experts=8)
    whole, cut = block(model), block(model, tp=2, ep=4, etp=2)
    assert whole.expert == 8 * 3 * 64 * 128
    assert cut.expert == whole.expert / 8
    assert cut.dense < whole.dense


def test_frozen_layers_have_no_trained_elements() -> None:
    held = block(graph(frozen=True))
    assert (held.dense, held.expert) == (0.0, 0.0)
    assert held.frozen == block(graph()).total


@pytest.mark.parametrize("quantised", [True, False])
def test_adapters_add_rank_times_both_widths_of_each_matmul(*, quantised: bool) -> None:
    model = graph()
    held = adapted(model.kinds[0], block(model), 4, tp=1, ep=1, quantised=quantised)
    widths = (64 + 192) + (64 + 64) + (64 + 256) + (128 + 64)
    assert held.dense == 4 * widths
    assert held.quantised + held.frozen == block(model).total
    assert (held.quantised > 0) == quantised
