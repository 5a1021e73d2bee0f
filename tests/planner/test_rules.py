"""Every legality rule on the smallest legal strategy and its illegal twin."""

from dataclasses import replace

import pytest

from costmodel.frameworks import FRAMEWORKS
from costmodel.memory_behaviour import FRAMEWORKS_WITH_MEMORY
from costmodel.strategy import Strategy
from planner.check import broken_rules
from planner.columns import columns_of
from planner.legality import LEGALITY
from planner.rules import RULES, Facts, facts_of
from planner.scenario_file import scenario_from_mapping
from planner.space import enumerate_space

FACTS = Facts(
    layers=8,
    heads=(8,),
    kv_heads=(2,),
    experts=0,
    sequence=64,
    global_batch=8,
    gpu_counts=(8,),
    gpus_per_node=8,
    framework="megatron",
    legality=LEGALITY["megatron"],
    uneven_stages=True,
)
MOE = replace(FACTS, experts=4)
TITAN = replace(FACTS, legality=LEGALITY["torchtitan"], framework="torchtitan")
SHARDED = replace(FACTS, legality=LEGALITY["composer"], framework="composer")
EVEN = replace(FACTS, uneven_stages=False)
DP8 = Strategy(dp=8)

TWINS: dict[str, tuple[Facts, Strategy, Facts, Strategy]] = {
    # rule: (facts, legal strategy, facts, illegal strategy)
    "framework_degrees": (SHARDED, DP8, SHARDED, Strategy(dp=4, tp=2, microbatches=2)),
    "world_product": (FACTS, DP8, FACTS, Strategy(dp=4, microbatches=2)),
    "batch_product": (FACTS, DP8, FACTS, Strategy(dp=8, microbatches=2)),
    "heads_mod_tp": (FACTS, DP8, replace(FACTS, heads=(6,)), Strategy(dp=2, tp=4, microbatches=4)),
    "kv_heads_mod_tp": (
        FACTS,
        Strategy(dp=2, tp=4, microbatches=4),
        TITAN,
        Strategy(dp=2, tp=4, microbatches=4),
    ),
    "seq_mod_cp": (
        FACTS,
        Strategy(dp=4, cp=2, microbatches=2),
        replace(FACTS, sequence=62),
        Strategy(dp=4, cp=2, microbatches=2),
    ),
    "sequence_parallel_tp": (
        FACTS,
        Strategy(dp=4, tp=2, microbatches=2, sequence_parallel=True),
        FACTS,
        replace(DP8, sequence_parallel=True),
    ),
    "seq_mod_tp": (
        FACTS,
        Strategy(dp=1, tp=8, microbatches=8, sequence_parallel=True),
        replace(FACTS, sequence=60),
        Strategy(dp=1, tp=8, microbatches=8, sequence_parallel=True),
    ),
    "experts_mod_ep": (MOE, replace(DP8, ep=4), MOE, replace(DP8, ep=8)),
    "expert_world": (MOE, replace(DP8, ep=4, etp=2), MOE, replace(DP8, ep=4, etp=4)),
    "moe_sequence_parallel": (
        MOE,
        Strategy(dp=4, tp=2, microbatches=2, sequence_parallel=True),
        MOE,
        Strategy(dp=4, tp=2, microbatches=2),
    ),
    "zero_pp": (
        FACTS,
        Strategy(dp=4, pp=2, microbatches=2, zero=1),
        FACTS,
        Strategy(dp=4, pp=2, microbatches=2, zero=2),
    ),
    "zero_replicas": (
        FACTS,
        replace(DP8, zero=1),
        FACTS,
        Strategy(tp=8, microbatches=8, zero=1),
    ),
    "zero_group_divides": (
        FACTS,
        replace(DP8, zero=3, zero_group=4),
        FACTS,
        replace(DP8, zero=3, zero_group=3),
    ),
    "context_sharding": (
        TITAN,
        Strategy(dp=4, cp=2, microbatches=2, zero=3),
        TITAN,
        Strategy(dp=4, cp=2, microbatches=2),
    ),
    "offload_recompute": (
        FACTS,
        replace(DP8, offload_activations=0.5),
        FACTS,
        replace(DP8, offload_activations=0.5, recompute="full"),
    ),
    "schedule_framework": (
        TITAN,
        Strategy(dp=4, pp=2, microbatches=2, schedule="zero_bubble"),
        FACTS,
        Strategy(dp=4, pp=2, microbatches=2, schedule="zero_bubble"),
    ),
    "vpp_schedule": (
        FACTS,
        Strategy(dp=4, pp=2, vpp=2, microbatches=2, schedule="interleaved"),
        FACTS,
        Strategy(dp=4, pp=2, vpp=2, microbatches=2),
    ),
    "vpp_microbatches": (
        FACTS,
        Strategy(dp=2, pp=4, vpp=2, microbatches=4, schedule="interleaved"),
        replace(FACTS, global_batch=12),
        Strategy(dp=2, pp=4, vpp=2, microbatches=6, schedule="interleaved"),
    ),
    "microbatches_lt_pp": (
        TITAN,
        Strategy(dp=2, pp=4, microbatches=4),
        TITAN,
        Strategy(dp=2, pp=4, microbatches=2, micro_batch=2),
    ),
    "layers_lt_stages": (
        FACTS,
        Strategy(pp=8, microbatches=8),
        replace(FACTS, layers=7),
        Strategy(pp=8, microbatches=8),
    ),
    "layers_mod_pp": (
        replace(EVEN, layers=6),
        Strategy(pp=8, microbatches=8),
        replace(EVEN, layers=9),
        Strategy(pp=8, microbatches=8),
    ),
    "group_capacity": (
        replace(FACTS, group_gpus=(4, 4)),
        Strategy(tp=2, pp=4, microbatches=8),
        replace(FACTS, group_gpus=(3, 5)),
        Strategy(tp=2, pp=4, microbatches=8),
    ),
}


def broken(facts: Facts, strategy: Strategy) -> set[str]:
    return {violation.rule for violation in broken_rules(columns_of((strategy,)), facts)}


def test_every_rule_has_its_twins() -> None:
    assert list(TWINS) == [rule.name for rule in RULES]


@pytest.mark.parametrize("name", TWINS)
def test_the_legal_twin_keeps_the_rule_and_the_illegal_one_breaks_it(name: str) -> None:
    legal_facts, legal, illegal_facts, illegal = TWINS[name]
    assert name not in broken(legal_facts, legal)
    assert name in broken(illegal_facts, illegal)


@pytest.mark.parametrize("name", TWINS)
def test_a_rejection_names_what_would_lift_it(name: str) -> None:
    _, _, facts, illegal = TWINS[name]
    texts = [v.text for v in broken_rules(columns_of((illegal,)), facts) if v.rule == name]
    assert len(texts) == 1
    assert "Nearest: " in texts[0]
    assert texts[0].endswith(".")


def test_every_framework_has_rules_times_and_memory() -> None:
    assert set(LEGALITY) <= set(FRAMEWORKS)
    assert set(LEGALITY) <= set(FRAMEWORKS_WITH_MEMORY)


@pytest.mark.parametrize("framework", sorted(LEGALITY))
def test_every_strategy_of_a_space_keeps_all_rules(framework: str) -> None:
    asked = scenario_from_mapping(
        {
            "model": "mixtral-8x7b",
            "cluster": {"name": "dgx-h100", "gpus": 16},
            "training": {"global_batch": 64, "framework": framework},
        }
    )
    columns = enumerate_space(asked).columns
    assert len(columns)
    assert [rule.name for rule in RULES if not rule.holds(columns, facts_of(asked)).all()] == []
    legality = LEGALITY[framework]
    assert legality.expert or (columns.ep == 1).all()
    assert legality.tensor or ((columns.tp == 1) & (columns.etp == 1)).all()
