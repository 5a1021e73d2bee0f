"""Each preset leaves exactly what its system does, and says where that is written."""

from dataclasses import replace

import pytest

from costmodel.errors import InputError
from costmodel.frameworks import FRAMEWORKS
from planner.legality import LEGALITY
from planner.sagemaker_knobs import memory_weight, rank_order
from planner.scenario import Scenario
from planner.scenario_file import scenario_from_mapping
from planner.space import enumerate_space
from planner.systems import MAIN_SYSTEMS, SYSTEMS, apply_system
from tests.builders import make_scenario

ISSUED = ("ddp", "zero", "megatron", "gpipe", "pipedream", "sagemaker", "lbann", "distsim")


def on_eight(system: str | dict[str, object], **search: object) -> Scenario:
    return apply_system(make_scenario(layers=8, gpus=8, search={"system": system, **search}))


def values(scenario: Scenario, decision: str) -> set[int]:
    return set(enumerate_space(scenario).columns.column(decision).tolist())


def test_all_systems_of_the_founding_documents_are_there() -> None:
    assert set(ISSUED) == set(MAIN_SYSTEMS)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_preset_names_its_source_and_a_known_framework(name: str) -> None:
    system = SYSTEMS[name]
    assert len(system.source) > 20
    assert system.framework in LEGALITY
    assert system.framework in FRAMEWORKS
    assert system.variant_of == "" or system.variant_of in MAIN_SYSTEMS


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_preset_leaves_strategies_and_applying_it_again_changes_nothing(name: str) -> None:
    scenario = on_eight(name)
    assert len(enumerate_space(scenario).columns) > 0
    assert apply_system(scenario) == scenario


def test_ddp_and_lbann_only_replicate() -> None:
    for name in ("ddp", "lbann"):
        scenario = on_eight(name)
        assert values(scenario, "dp") == {8}
        assert values(scenario, "zero") == {0}


def test_ddp_reduces_buckets_of_25_mib_beside_the_backward() -> None:
    ddp = FRAMEWORKS[SYSTEMS["ddp"].framework]
    assert ddp.bucket_bytes == 25 * 2**20
    assert ddp.gradient_overlap


def test_zero_shards_in_three_stages_and_on_one_gpu_in_none() -> None:
    assert values(on_eight("zero"), "zero") == {1, 2, 3}
    assert values(on_eight("zero-2"), "zero") == {2}
    alone = make_scenario(gpus=1, search={"system": "zero"})
    assert values(apply_system(alone), "zero") == {0}


def test_megatron_splits_tensors_with_and_without_replicas_but_not_sequences() -> None:
    scenario = on_eight("megatron")
    assert values(scenario, "tp") == {1, 2, 4, 8}
    assert values(scenario, "dp") == {1, 2, 4, 8}
    assert values(scenario, "pp") == {1}
    assert values(scenario, "sequence_parallel") == {0}
    assert values(on_eight("megatron-intra"), "dp") == {1}
    assert values(on_eight("megatron-data"), "tp") == {1}


def test_torchgpipe_stays_in_its_node_recomputes_and_has_no_replicas() -> None:
    scenario = on_eight("gpipe")
    assert values(scenario, "pp") == {8}
    assert values(scenario, "dp") == {1}
    assert values(scenario, "recompute") == {2}
    wide = make_scenario(layers=16, gpus=16, search={"system": "gpipe"})
    assert apply_system(wide).gpu_counts == (8,)


def test_pipedream_is_never_the_default_and_warns_of_staleness() -> None:
    others = [legality for name, legality in LEGALITY.items() if name != "pipedream"]
    assert all("no_flush" not in legality.schedules for legality in others)
    assert "old" in SYSTEMS["pipedream"].warning
    assert values(on_eight("pipedream"), "microbatches") == {1}


def test_distsim_searches_its_grid_with_equal_stages() -> None:
    scenario = on_eight("distsim")
    assert not scenario.uneven_stages
    assert values(scenario, "zero") == {0}
    assert values(scenario, "pp") == {1, 2, 4, 8}


def test_a_bound_and_a_preset_leave_what_both_admit() -> None:
    assert values(on_eight("megatron", tp=[2, 4, 3]), "tp") == {2, 4}
    assert values(on_eight("megatron", tp={"min": 3}), "tp") == {4, 8}
    with pytest.raises(InputError, match=r"search\.tp.*DistributedDataParallel"):
        on_eight("ddp", tp=2)
    with pytest.raises(InputError, match=r"search\.tp"):
        on_eight("ddp", tp={"min": 2})


def test_a_user_keeps_the_framework_out_of_a_preset_only_without_it() -> None:
    scenario = make_scenario(framework="nemo")
    assert apply_system(scenario) is scenario
    named = replace(scenario, system="zero")
    assert apply_system(named).training.framework == "deepspeed"


KNOBS: dict[str, tuple[dict[str, object], str, set[int]]] = {
    "partitions": ({"partitions": 4}, "pp", {4}),
    "tensor degree": ({"tensor_parallel_degree": 2}, "tp", {2}),
    "microbatches": ({"microbatches": 2, "partitions": 2}, "microbatches", {2}),
    "active micro-batches": ({"active_microbatches": 2}, "pp", {1, 2}),
    "simple is GPipe": ({"pipeline": "simple", "partitions": 2}, "schedule", {0}),
    "interleaved is 1F1B": ({"pipeline": "interleaved", "partitions": 2}, "schedule", {1}),
    "sharded optimizer": ({"shard_optimizer_state": True}, "zero", {1}),
    "speed keeps activations whole": ({"optimize": "speed"}, "sequence_parallel", {0}),
    "memory may split them": ({"optimize": "memory"}, "sequence_parallel", {0, 1}),
}


@pytest.mark.parametrize("case", KNOBS)
def test_a_sagemaker_knob_means_a_bound(case: str) -> None:
    options, decision, expected = KNOBS[case]
    assert values(on_eight({"name": "sagemaker", **options}), decision) == expected


def test_interleaved_in_sagemaker_never_means_virtual_stages() -> None:
    scenario = on_eight({"name": "sagemaker", "pipeline": "interleaved"})
    assert values(scenario, "vpp") == {1}


@pytest.mark.parametrize(
    ("strategy", "order"),
    [
        ("cluster", "tp-cp-ep-pp-dp"),
        ("DPT", "tp-cp-ep-pp-dp"),
        ("spread", "dp-pp-tp-cp-ep"),
        ("PDT", "tp-cp-ep-dp-pp"),
    ],
)
def test_the_last_letter_of_a_placement_strategy_is_nearest(strategy: str, order: str) -> None:
    assert rank_order(strategy) == order


def test_memory_weight_follows_optimize_unless_given() -> None:
    assert memory_weight({}) == 0.8
    assert memory_weight({"optimize": "speed"}) == 0.2
    assert memory_weight({"optimize": "speed", "memory_weight": 1}) == 1.0


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ({"name": "sagemaker", "partition": 2}, "partitions"),
        ({"name": "sagemaker", "optimize": "space"}, "speed"),
        ({"name": "sagemaker", "memory_weight": 2}, "0.8"),
        ({"name": "sagemaker", "partitions": 0}, "at least 1"),
        ({"name": "sagemaker", "placement_strategy": "DDP"}, "permutation"),
        ({"name": "ddp", "optimize": "speed"}, "only sagemaker"),
        ({"name": "sagemakr"}, "sagemaker"),
    ],
)
def test_a_wrong_system_is_refused_with_the_nearest(
    system: dict[str, object], message: str
) -> None:
    data = {
        "model": "gpt2",
        "cluster": {"name": "p4d", "gpus": 8},
        "training": {"global_batch": 8, "sequence": 512},
        "search": {"system": system},
    }
    with pytest.raises(InputError, match=message):
        scenario_from_mapping(data)
