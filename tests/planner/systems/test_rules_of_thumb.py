"""Each rule of thumb has a scenario where it holds and, where there is one, a scenario where it costs over 5 %."""

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner.cli import cli
from planner.compare import best_plan
from planner.rules_of_thumb import HOLDS, RULES_OF_THUMB, Judgement, judge_rules
from planner.scenario import Bound, Scenario
from planner.scenario_file import load_scenario, scenario_from_mapping
from planner.simulation import simulate_strategy
from tests.builders import make_scenario

EXAMPLES = Path(__file__).parents[3] / "scenarios" / "examples"


def asked(model: str, cluster: dict[str, Any], batch: int, sequence: int, **more: Any) -> Scenario:
    training = {"global_batch": batch, "sequence": sequence, "framework": "megatron", **more}
    return scenario_from_mapping({"model": model, "cluster": cluster, "training": training})


def nodes_of(per_node: int, gpus: int) -> dict[str, Any]:
    link = {"name": "nvlink", "kind": "nvswitch", "gpus": per_node}
    return {
        "gpu": "a100-sxm-40gb",
        "gpus": gpus,
        "gpus_per_node": per_node,
        "intra": [{**link, "bandwidth": "300GB/s", "latency": "3.4us"}],
        "inter": "8x-hdr-infiniband",
    }


@lru_cache
def scenario(name: str) -> Scenario:
    if name == "two nodes":
        return asked("gpt2-medium", {"name": "p4d", "gpus": 16}, 512, 1024)
    if name == "slow network":
        return load_scenario(EXAMPLES / "distsim-bert-exlarge.yaml")
    if name == "one sequence":
        return asked("gpt3-6.7b", nodes_of(2, 8), 1, 2048)
    if name == "four sequences":
        return asked("bert-large", nodes_of(6, 6), 4, 512)
    return asked("mpt-760m", nodes_of(6, 6), 1, 2048)


@lru_cache
def judged(name: str) -> dict[str, Judgement]:
    return {item.name: item for item in judge_rules(scenario(name))}


@pytest.mark.parametrize("rule", RULES_OF_THUMB)
def test_every_rule_holds_where_the_network_is_fast_and_the_batch_large(rule: str) -> None:
    judgement = judged("two nodes")[rule]
    assert judgement.cost <= HOLDS
    assert "holds here" in judgement.sentence()


@pytest.mark.parametrize(
    ("rule", "where"),
    [
        ("data parallel first", "slow network"),
        ("short pipeline", "slow network"),
        ("tensor inside the node", "one sequence"),
        ("full pipeline", "four sequences"),
        ("tensor a power of two", "six GPUs"),
    ],
)
def test_following_a_rule_everywhere_costs_more_than_5_percent_somewhere(
    rule: str, where: str
) -> None:
    judgement = judged(where)[rule]
    assert judgement.cost > 0.05
    assert f"costs {judgement.cost:.0%}" in judgement.sentence()


def test_a_rule_that_no_plan_can_follow_says_so() -> None:
    judgement = judged("one sequence")["data parallel first"]
    assert judgement.followed is None
    assert "no plan that does so exists" in judgement.sentence()


def test_no_plan_at_all_means_no_judgement() -> None:
    assert judge_rules(make_scenario(memory="1GiB")) == ()


def fixed(question: Scenario, **bounds: object) -> Scenario:
    pinned = {name: Bound(allowed=(value,)) for name, value in bounds.items()}
    return replace(question, bounds=pinned)


def test_mixed_precision_and_a_smaller_micro_batch_come_before_model_parallelism() -> None:
    cluster = {"name": "p4d", "gpus": 8}
    more = {"precision": "fp32", "attention": "standard"}
    full = asked("gpt3-1.3b", cluster, 64, 1024, **more)
    half = replace(full, training=replace(full.training, precision="bf16"))
    large = simulate_strategy(full, "dp=8,micro_batch=8", None).plan
    small = simulate_strategy(half, "dp=8,micro_batch=1", None).plan
    assert large
    assert small
    assert not large.fits
    assert small.fits
    replicated, _ = best_plan(fixed(half, tp=1, pp=1, cp=1), None)
    split, _ = best_plan(fixed(full, tp=8), None)
    assert replicated
    assert split
    assert replicated.iteration_s < split.iteration_s


def test_the_command_prints_and_writes_the_rules(tmp_path: Path) -> None:
    answer = tmp_path / "rules.json"
    example = str(EXAMPLES / "distsim-bert-exlarge.yaml")
    arguments = ["compare", example, "--rules", "--json", str(answer)]
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert result.return_value == 0, result.output
    assert "data parallelism alone" in result.output
    assert len(json.loads(answer.read_text())["rules"]) == len(RULES_OF_THUMB)
