"""Cases of people who do this job (tests/data/users_cases.yaml): verdicts, memory, legality, order, time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costmodel import catalog
from costmodel.layout import parse_layout
from costmodel.load import read_yaml
from costmodel.local_parameters import padded
from costmodel.memory import memory_moments
from costmodel.memory_behaviour import memory_behaviour
from tests.users_cases.build import (
    Facts,
    peaks,
    placement,
    plan_of,
    ranks,
    setting,
    verdict_of,
)
from tests.users_cases.checks import KINDS, counter, kind_of, tokens_per_s_gpu

CASES: list[dict[str, Any]] = read_yaml(Path(__file__).parent / "data" / "users_cases.yaml")  # type: ignore[assignment]
CHECKS = [
    ({**case.get("base", {}), **check}, kind_of(check), f"{case['id']}.{number}")
    for case in CASES
    for number, check in enumerate(case.get("checks", ()), 1)
]


@pytest.mark.parametrize(
    ("facts", "kind"), [pytest.param(facts, kind, id=name) for facts, kind, name in CHECKS]
)
def test_case(facts: Facts, kind: str) -> None:
    if kind == "code":
        _CODE[facts["code"]](facts)
    else:
        KINDS[kind](facts)


def test_every_case_is_run_or_says_why_not() -> None:
    assert len({case["id"] for case in CASES}) == len(CASES) == 106
    for case in CASES:
        assert bool(case.get("checks")) != bool(case.get("not_run")), case["id"]


def test_95_percent_of_verdicts_are_right_and_none_calls_out_of_memory_a_fit() -> None:
    verdicts = [facts for facts, kind, _ in CHECKS if kind == "verdict"]
    found = [verdict_of(setting(facts)) for facts in verdicts]
    right = [
        verdict in (facts["verdict"], *facts.get("accept", ()))
        for facts, verdict in zip(verdicts, found, strict=True)
    ]
    assert sum(right) >= 0.95 * len(right)
    pairs = zip(verdicts, found, strict=True)
    assert not [facts for facts, verdict in pairs if (facts["verdict"], verdict) == ("oom", "fits")]


def all_layers_placed(facts: Facts) -> None:
    case = setting(facts)
    chunks = placement(case).chunks
    assert sum(chunk.layers for chunk in chunks) == len(case.graph.layers)


def padded_vocabulary(facts: Facts) -> None:
    assert padded(151669, 128 * 4) == 152064


def activations_fall_with_the_stage(facts: Facts) -> None:
    case = setting(facts)
    flying = [chunks[0].in_flight for chunks in ranks(case)]
    stages, microbatches = case.strategy.pp, case.strategy.microbatches
    assert flying == [min(microbatches, stages - stage) for stage in range(stages)]
    kept = [peak.terms["activations"] for peak in peaks(case)]
    assert kept == sorted(kept, reverse=True)


def heaviest_stage_not_the_mean(facts: Facts) -> None:
    plan = plan_of(setting(facts))
    sizes = [stage.memory_bytes for stage in plan.stages]
    assert plan.peak_memory_bytes == max(sizes) > 1.1 * sum(sizes) / len(sizes)


def layout_has_80_layers_on_40_stages(facts: Facts) -> None:
    counts = parse_layout("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL").layer_counts()
    assert (sum(counts), len(counts)) == (80, 40)


def recomputation_groups(facts: Facts) -> None:
    sizes = {}
    for group in (1, 2, 4, 8):
        case = setting({**facts, "options": {"recompute_group": group}})
        moments = memory_moments(case.graph, case.cluster, case.training, case.strategy)
        terms = {term.name: term for term in moments[1].terms}
        inputs = terms["activations"].flight_layer[0] * facts["model"]["layers"]
        sizes[group] = (inputs, terms["recompute buffer"].fixed)
    inputs, layer = sizes[1]
    for group, (kept, buffer) in sizes.items():
        assert (kept, buffer) == pytest.approx((inputs / group, group * layer))
    best = min(sizes, key=lambda group: sum(sizes[group]))
    assert best == min(sizes, key=lambda group: abs(group - (inputs / layer) ** 0.5))


def experts_reserve_room_for_imbalance(facts: Facts) -> None:
    case = setting(facts)
    behaviour = memory_behaviour(case.training)
    loose = peaks(case)[0].terms["fragmentation"]
    assert loose > behaviour.routed_fixed + behaviour.routed_fragmentation * 2**30


def dense_peak_of_h100(facts: Facts) -> None:
    assert catalog.device("h100-sxm").peak_flops["bf16"] == pytest.approx(989.4e12, rel=1e-3)


def selective_saves_little_under_flash(facts: Facts) -> None:
    none, selective = (
        counter(setting({**facts, "recompute": kind}), "allocated")
        for kind in ("none", "selective")
    )
    assert 0 <= none - selective <= 0.05 * none


def bigscience_sweep_ranks(facts: Facts) -> None:
    measured = (
        (8, 4, 12, 2), (16, 4, 6, 2), (8, 4, 12, 4), (16, 2, 12, 2), (8, 8, 6, 4), (4, 8, 12, 4),
        (16, 4, 6, 4), (8, 2, 24, 1), (8, 2, 24, 2), (4, 8, 12, 2), (32, 2, 6, 1), (32, 2, 6, 2),
    )  # fmt: skip
    predicted = []
    for dp, tp, pp, size in measured:
        case = setting({**facts, "dp": dp, "tp": tp, "pp": pp, "micro_batch": size})
        fits = verdict_of(case) == "fits"
        predicted.append(plan_of(case).iteration_s if fits else float("inf"))
    assert predicted.index(min(predicted)) < 3
    assert _rank_correlation(predicted) >= 0.7


def _rank_correlation(values: list[float]) -> float:
    """Return Spearman's coefficient of values against their own order in the list."""
    order = sorted(range(len(values)), key=lambda index: (values[index], index))
    places = [order.index(index) for index in range(len(values))]
    count = len(values)
    squares = sum((place - index) ** 2 for index, place in enumerate(places))
    return 1 - 6 * squares / (count * (count**2 - 1))


def slope_per_microbatch(facts: Facts) -> None:
    few, many = (
        plan_of(setting({**facts, "microbatches": count})).iteration_s for count in (32, 128)
    )
    assert (many - few) / 96 == pytest.approx(0.743, rel=0.15)
    assert few - 32 * (many - few) / 96 == pytest.approx(facts.get("miss", 12.0), rel=0.15)


def throughput_ratio_of_405b(facts: Facts) -> None:
    short = tokens_per_s_gpu({**facts, "dp": 8, "cp": 1, "sequence": 32768})
    long = tokens_per_s_gpu({**facts, "dp": 1, "cp": 8, "sequence": 262144})
    expected = facts.get("miss", 0.21)
    assert long / short == pytest.approx(expected, rel=0.3)


def torchtune_ladder_falls(facts: Facts) -> None:
    base = {"optimizer": "pure_bf16", "optimizer_step": "fused"}
    fused = {**base, "kernels": "fused"}
    chunked = {**fused, "loss": "chunked"}
    backward = {**chunked, "optimizer_step": "in_backward"}
    small = {**backward, "optimizer": "adam8bit", "weights": "bf16"}
    steps: list[dict[str, Any]] = [
        {"options": base},
        {"options": fused},
        {"options": chunked},
        {"options": chunked, "recompute": "full"},
        {"options": backward, "recompute": "full"},
        {"options": backward, "recompute": "full", "offload_activations": 1.0},
        {"options": small, "recompute": "full", "offload_activations": 1.0},
        {"options": {**small, "adapter": "lora"}, "recompute": "full"},
        {"options": {**small, "adapter": "qlora"}, "recompute": "full"},
    ]
    sizes = [counter(setting({**facts, **step}), "allocated") for step in steps]
    assert sizes == sorted(sizes, reverse=True)


def communicators_have_room(facts: Facts) -> None:
    case = setting(facts)
    assert 1e9 <= peaks(case)[0].terms["context"] <= 3e9
    assert verdict_of(case) != "fits"


_CODE: dict[str, Callable[[Facts], None]] = {
    function.__name__: function
    for function in (
        all_layers_placed,
        padded_vocabulary,
        activations_fall_with_the_stage,
        heaviest_stage_not_the_mean,
        layout_has_80_layers_on_40_stages,
        recomputation_groups,
        experts_reserve_room_for_imbalance,
        dense_peak_of_h100,
        selective_saves_little_under_flash,
        bigscience_sweep_ranks,
        slope_per_microbatch,
        throughput_ratio_of_405b,
        torchtune_ladder_falls,
        communicators_have_room,
    )
}
