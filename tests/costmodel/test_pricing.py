"""The Pricer: prices of strategies, term by term, and the laws they must keep."""

from dataclasses import replace

import pytest

from costmodel.catalog import cluster, model
from costmodel.constants import fitted
from costmodel.errors import InputError
from costmodel.events import ComputeEvent, Event
from costmodel.frameworks import FRAMEWORKS, behaviour, framework, padded_vocab
from costmodel.graph import build_graph
from costmodel.linear import StageTerm
from costmodel.pricing import Pricer
from costmodel.spec import TrainingSpec
from costmodel.strategy import Strategy

GRAPH = build_graph(model("llama-3.1-8b"))


def pricer(gpus: int = 64, name: str = "dgx-h100", **training: object) -> Pricer:
    values = {"global_batch": 128, "sequence": 4096, "framework": "megatron"} | training
    return Pricer(GRAPH, cluster(name, gpus), TrainingSpec(**values))  # type: ignore[arg-type]


def layer(terms: tuple[StageTerm, ...]) -> float:
    return sum(item.layer[0] for item in terms)


def named(terms: tuple[StageTerm, ...], name: str) -> StageTerm:
    return next(item for item in terms if item.name == name)


def test_a_backward_costs_about_two_forwards_and_never_exactly_two() -> None:
    forward, backward, weight = pricer().block(Strategy(dp=64, zero=1))
    assert 1.8 < layer(backward) / layer(forward) < 2.6
    assert 0 < layer(weight) < layer(backward)


def test_recomputing_a_layer_repeats_its_forward() -> None:
    strategy = Strategy(dp=8, tp=8, sequence_parallel=True)
    forward, backward, _ = pricer().block(strategy)
    again = sum(item.recomputed[0] for item in backward)
    assert again == pytest.approx(layer(forward), rel=0.05)


def test_one_rank_has_no_tensor_parallel_communication() -> None:
    forward, _, _ = pricer().block(Strategy(dp=64))
    assert named(forward, "tp_comm").layer == (0.0,)


def test_a_framework_that_overlaps_pays_less_for_tensor_parallelism() -> None:
    strategy = Strategy(dp=8, tp=8, sequence_parallel=True)
    exposed = pricer(framework="megatron").block(strategy)[0]
    hidden = pricer(framework="nemo").block(strategy)[0]
    assert named(hidden, "tp_comm").layer < named(exposed, "tp_comm").layer


def test_fsdp_pays_for_gathers_only_what_compute_does_not_hide() -> None:
    built = pricer(framework="torchtitan")
    forward, backward, _ = built.block(Strategy(dp=64, zero=3, micro_batch=2))
    assert 0 < named(forward, "fsdp_comm").layer[0] < named(forward, "matmul").layer[0]
    assert named(backward, "fsdp_comm").layer[0] > 0


def test_only_the_last_stage_pays_for_logits_and_loss() -> None:
    forward, _, _ = pricer().block(Strategy(dp=16, pp=4))
    assert named(forward, "loss").last > 0 == named(forward, "loss").first
    assert named(forward, "matmul").last > named(forward, "matmul").layer[0]


def test_the_ends_of_a_pipeline_wait_for_one_neighbour_only() -> None:
    forward, backward, _ = pricer().block(Strategy(dp=16, pp=4))
    waits, returns = named(forward, "pp_comm"), named(backward, "pp_comm")
    assert waits.fixed + waits.last == 0 == returns.fixed + returns.first


def test_small_layers_are_bound_by_the_host() -> None:
    small = Pricer(
        build_graph(model("gpt2")),
        cluster("dgx-a100-80gb", 8),
        TrainingSpec(global_batch=8, sequence=128, framework="megatron-deepspeed"),
    )
    forward, _, _ = small.block(Strategy(tp=4, dp=2))
    assert named(forward, "launch").layer[0] > named(forward, "matmul").layer[0]


def test_an_overlapped_reduction_is_bound_by_two_alternatives_each_way() -> None:
    assert len(pricer(framework="nemo").finish(Strategy(dp=64, zero=1))) == 4
    assert len(pricer(framework="megatron").finish(Strategy(dp=64, zero=1))) == 1


def test_sharding_the_optimizer_makes_its_step_shorter() -> None:
    whole = pricer().finish(Strategy(dp=64))[0].terms
    shared = pricer().finish(Strategy(dp=64, zero=1))[0].terms
    assert named(shared, "optimizer").layer < named(whole, "optimizer").layer


def test_eight_bits_make_matmuls_faster_and_add_casts() -> None:
    strategy = Strategy(dp=64)
    half, quarter = (pricer(precision=p).block(strategy)[0] for p in ("bf16", "fp8"))
    assert named(quarter, "matmul").layer < named(half, "matmul").layer
    assert named(quarter, "elementwise").layer > named(half, "elementwise").layer


def test_faster_networks_never_slow_any_strategy() -> None:
    base = cluster("dgx-h100", 64)
    network = replace(
        base.levels[1], bandwidth_bytes_per_s=4 * base.levels[1].bandwidth_bytes_per_s
    )
    group = replace(base.groups[0], levels=(base.levels[0], network))
    fast = replace(base, groups=(group,))
    training = TrainingSpec(global_batch=128, sequence=4096, framework="torchtitan")
    for strategy in (Strategy(dp=64, zero=3), Strategy(dp=8, tp=8), Strategy(dp=8, pp=8)):
        slow, quick = (Pricer(GRAPH, where, training) for where in (base, fast))
        for part in (0, 1):
            assert layer(quick.block(strategy)[part]) <= layer(slow.block(strategy)[part])
        assert sum(quick.transfer(strategy)) <= sum(slow.transfer(strategy))


def test_parts_depend_on_no_other_field_than_they_name() -> None:
    built = pricer()
    strategy = Strategy(dp=16, pp=4, microbatches=8)
    assert built.block(strategy) is built.block(replace(strategy, microbatches=16))


def test_tables_are_asked_before_formulas() -> None:
    class Table:
        def lookup(self, event: Event) -> tuple[float, str] | None:
            is_matmul = isinstance(event, ComputeEvent) and event.op == "matmul"
            return (1.0, "measured") if is_matmul else None

    training = TrainingSpec(global_batch=8, sequence=2048)
    built = Pricer(GRAPH, cluster("dgx-h100", 8), training, tables=[Table()])
    forward, _, _ = built.block(Strategy(dp=8))
    assert named(forward, "matmul").layer == (4.0,)


def test_calibrated_constants_replace_shipped_ones() -> None:
    training = TrainingSpec(global_batch=8, sequence=2048)
    where = cluster("dgx-h100", 8)
    slow = Pricer(GRAPH, where, training, calibration={"matmul.ceiling.hopper": 0.3})
    forward = Pricer(GRAPH, where, training).block(Strategy(dp=8))[0]
    assert layer(slow.block(Strategy(dp=8))[0]) > 1.5 * layer(forward)
    with pytest.raises(InputError, match="must name a constant"):
        fitted().replaced({"matmul.ceiling.unobtainium": 1.0})


@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_every_framework_prices_every_shape_of_strategy(name: str) -> None:
    built = pricer(framework=name)
    for strategy in (Strategy(dp=64), Strategy(dp=8, tp=8, zero=1), Strategy(dp=32, pp=2, zero=3)):
        terms = (*built.block(strategy)[0], *built.block(strategy)[1])
        assert all(item.layer[0] >= -1e-12 for item in terms)
        assert built.finish(strategy)


def test_options_change_named_switches_and_unknown_ones_are_refused() -> None:
    training = TrainingSpec(
        global_batch=8, sequence=128, framework="torchtitan", options={"tp_overlap": "on"}
    )
    assert behaviour(training).tp_overlap
    for options in ({"tp_overlap": "maybe"}, {"warp_drive": "on"}):
        with pytest.raises(InputError):
            behaviour(replace(training, options=options))
    with pytest.raises(InputError, match="must name a known framework"):
        framework("caffe")


def test_megatron_pads_the_vocabulary_to_128_times_the_ranks() -> None:
    assert padded_vocab(framework("megatron-lm"), 50257, 8) == 51200
    assert padded_vocab(framework("torchtitan"), 50257, 1) == 50257
