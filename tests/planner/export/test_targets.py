"""Tests that hold for every target, and of what each target writes and refuses."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from costmodel.errors import InputError
from costmodel.load import parse_yaml
from costmodel.spec import ModelSpec, TrainingSpec
from costmodel.strategy import Strategy
from planner.export import TARGET_NAMES, export, target
from planner.export.megatron import flag_lines
from planner.export.megatron_bridge import KEYS, run_lines
from planner.export.nanotron import own_split
from planner.export.target import PLAN_FIELDS, Launch
from planner.export.torchtitan import CONFIGS, module_names, schedule_csv
from planner.plans import Chunk, Placement
from tests.planner.export.export_cases import (
    deepseek,
    gpt2,
    launch,
    llama,
    mixtral,
    placement,
    plan,
    qwen2,
)

PLAIN = Strategy(dp=16, zero=3, micro_batch=2, microbatches=4)
PIPED = Strategy(dp=2, tp=2, pp=4, micro_batch=1, microbatches=8, sequence_parallel=True)
CASES: Mapping[str, Launch] = {
    "megatron": launch(llama(), PIPED),
    "megatron-bridge": launch(llama(), PIPED, (7, 9, 8, 8)),
    "torchtitan": launch(llama(), replace(PIPED, zero=2), (7, 9, 8, 8)),
    "deepspeed": launch(llama(), PLAIN),
    "accelerate": launch(llama(), replace(PLAIN, recompute="full")),
    "huggingface-trainer": launch(gpt2(), PLAIN),
    "nanotron": launch(llama(), replace(PIPED, zero=1, pp=1)),
    "galvatron": launch(llama(), replace(PIPED, zero=3), (7, 9, 8, 8), (1, 2, 3, 0)),
}
NEUTRAL = Strategy()
# One value per field that matters in a plan of its own; what each target says to it is tested below.
CHANGED: Mapping[str, Launch] = {
    "dp": launch(llama(), Strategy(dp=2)),
    "tp": launch(llama(), Strategy(tp=2)),
    "pp": launch(llama(), Strategy(pp=2)),
    "cp": launch(llama(), Strategy(cp=2)),
    "ep": launch(mixtral(), Strategy(dp=2, ep=2)),
    "etp": launch(mixtral(), Strategy(dp=2, tp=2, etp=2)),
    "vpp": launch(llama(), Strategy(pp=2, vpp=2, microbatches=2, schedule="interleaved")),
    "micro_batch": launch(llama(), Strategy(micro_batch=2)),
    "microbatches": launch(llama(), Strategy(microbatches=2)),
    "schedule": launch(llama(), Strategy(pp=2, schedule="zero_bubble")),
    "zero": launch(llama(), Strategy(dp=2, zero=1)),
    "zero_group": launch(llama(), Strategy(dp=4, zero=3, zero_group=2)),
    "sequence_parallel": launch(llama(), Strategy(tp=2, sequence_parallel=True)),
    "recompute": launch(llama(), Strategy(recompute="selective")),
    "offload_optimizer": launch(llama(), Strategy(dp=2, zero=3, offload_optimizer=0.5)),
    "offload_activations": launch(llama(), Strategy(offload_activations=0.5)),
    "placement_order": launch(llama(), Strategy(dp=2, pp=2, placement_order="tp-cp-ep-pp-dp")),
    "placement.first_layer": launch(llama(), Strategy(pp=2), (15, 17)),
    "placement.layers": launch(llama(), Strategy(pp=2), (15, 17)),
    "placement.recomputed": launch(llama(), Strategy(pp=2), recomputed=(3, 5)),
    "placement.device_groups": launch(llama(), Strategy(pp=2)),
}


def written(name: str, case: Launch, folder: Path) -> dict[str, str]:
    paths = export(
        case.plan,
        model=case.model,
        cluster=case.cluster,
        training=case.training,
        target_name=name,
        directory=folder,
    )
    return {path.name: path.read_text() for path in paths}


def refused(name: str, case: Launch) -> InputError:
    with pytest.raises(InputError, match="cannot express this plan") as caught:
        target(name).check(case)
    return caught.value


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_every_plan_field_is_either_exported_or_declared_inexpressible(name: str) -> None:
    chosen = target(name)
    assert chosen.exported | chosen.inexpressible.keys() == set(PLAN_FIELDS)
    assert not chosen.exported & chosen.inexpressible.keys()


def test_the_plan_fields_are_those_of_strategy_and_placement() -> None:
    assert {item.name for item in fields(Chunk)} | {item.name for item in fields(Placement)} == {
        name.removeprefix("placement.") for name in PLAN_FIELDS if name.startswith("placement.")
    } | {"chunks"}
    assert CHANGED.keys() == set(PLAN_FIELDS)


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_a_plan_that_needs_an_inexpressible_field_is_refused_by_its_reason(name: str) -> None:
    chosen = target(name)
    for field, reason in chosen.inexpressible.items():
        case = CHANGED[field]
        if field == "placement.device_groups":
            placed = replace(case.placement, device_groups=(0, 1))
            case = replace(case, plan=plan(case.strategy, placed))
        error = refused(name, case)
        assert error.key in chosen.inexpressible
        assert chosen.inexpressible[error.key or ""] in error.rule
        assert reason


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_every_file_names_target_version_and_model(name: str, tmp_path: Path) -> None:
    for file, text in written(name, CASES[name], tmp_path).items():
        if file != "schedule.csv":  # torch reads every row as a rank, so it holds no comment
            assert target(name).version in text
            assert CASES[name].model.name in text


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_every_script_is_bash(name: str, tmp_path: Path) -> None:
    for file in written(name, CASES[name], tmp_path):
        if file.endswith(".sh"):
            subprocess.run(["bash", "-n", tmp_path / file], check=True)


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_exports_are_the_same_twice(name: str, tmp_path: Path) -> None:
    first = written(name, CASES[name], tmp_path / "a")
    assert first == written(name, CASES[name], tmp_path / "b")


def test_scripts_pass_every_flag_of_the_file_on(tmp_path: Path) -> None:
    case = launch(llama(), replace(PIPED, pp=2, dp=2), (17, 15))
    written("megatron", case, tmp_path)
    echo = tmp_path / "torchrun"
    echo.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    echo.chmod(0o755)
    run = subprocess.run(
        [tmp_path / "run.sh", "--mock-data"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "MEGATRON_PATH": "/megatron"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = run.stdout.split("\n")[:-1]
    flags = [word for line in flag_lines(case) for word in line]
    assert words == [
        *("--nproc_per_node", "8", "--nnodes", "1"),
        *("/megatron/pretrain_gpt.py", *flags, "--mock-data"),
    ]


def test_bridge_has_a_key_for_every_flag_that_a_plan_needs(tmp_path: Path) -> None:
    cases = [
        launch(llama(), replace(PIPED, zero=1, offload_optimizer=0.5), (7, 9, 8, 8)),
        launch(llama(), replace(PIPED, zero=3, zero_group=1, placement_order="tp-cp-ep-pp-dp")),
        launch(llama(), replace(PIPED, vpp=2, schedule="interleaved", recompute="selective")),
        launch(mixtral(), replace(PIPED, recompute="full"), (7, 9, 9, 7)),
        launch(llama(), Strategy(offload_activations=0.5)),
        launch(
            llama(),
            replace(PIPED, zero=1),
            training=TrainingSpec(
                global_batch=16,
                sequence=1024,
                options={
                    "gradient_overlap": "on",
                    "gather_overlap": "on",
                    "tp_overlap": "on",
                    "gradient_dtype": "bf16",
                },
            ),
        ),
    ]
    used = {line[0] for case in cases for line in run_lines(case)}
    assert used == KEYS.keys()
    text = written("megatron-bridge", cases[0], tmp_path)["overrides.txt"]
    assert "train.global_batch_size=16" in text
    assert 'model.pipeline_model_parallel_layout="Et*7|t*9|t*8|t*8L"' in text


def test_the_schedule_file_holds_the_simulated_order() -> None:
    case = launch(llama(), Strategy(pp=2, microbatches=3), (16, 16))
    assert schedule_csv(case) == "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"


def test_interleaved_stages_are_numbered_over_ranks_and_chunks() -> None:
    strategy = Strategy(pp=2, vpp=2, microbatches=2, schedule="interleaved")
    rows = schedule_csv(launch(llama(), strategy)).splitlines()
    assert {cell[0] for cell in rows[0].split(",")} == {"0", "2"}
    assert {cell[0] for cell in rows[1].split(",")} == {"1", "3"}


def test_modules_of_a_stage_are_named_as_torchtitan_names_them(tmp_path: Path) -> None:
    case = launch(llama(4), Strategy(pp=2, microbatches=2), (1, 3))
    assert module_names(case) == [
        ["tok_embeddings", "layers.0"],
        ["layers.1", "layers.2", "layers.3", "norm", "lm_head"],
    ]
    texts = written("torchtitan", case, tmp_path)
    assert "schedule.csv" in texts
    assert "MODULE:?" in texts["run.sh"]


def test_a_registered_model_needs_no_variables(tmp_path: Path) -> None:
    assert (32, 4096, 128256) in CONFIGS
    text = written("torchtitan", CASES["torchtitan"], tmp_path)["run.sh"]
    assert "export CONFIG=llama3_8b" in text


def test_deepspeeds_three_batch_sizes_agree(tmp_path: Path) -> None:
    values = json.loads(written("deepspeed", CASES["deepspeed"], tmp_path)["deepspeed.json"])
    product = values["train_micro_batch_size_per_gpu"] * values["gradient_accumulation_steps"]
    assert values["train_batch_size"] == product * 16
    assert values["zero_optimization"]["stage"] == 3


def test_accelerate_replicates_what_is_sharded_in_groups(tmp_path: Path) -> None:
    case = launch(llama(), Strategy(dp=8, tp=2, zero=2, zero_group=4))
    text = written("accelerate", case, tmp_path)["accelerate.yaml"]
    values: Any = parse_yaml(text)
    assert values["parallelism_config"] == {
        "parallelism_config_dp_replicate_size": 2,
        "parallelism_config_dp_shard_size": 4,
        "parallelism_config_tp_size": 2,
        "parallelism_config_cp_size": 1,
    }
    assert values["fsdp_config"]["fsdp_reshard_after_forward"] is False


def test_plain_data_parallelism_is_ddp(tmp_path: Path) -> None:
    values: Any = parse_yaml(
        written("accelerate", launch(llama(), Strategy(dp=8)), tmp_path)["accelerate.yaml"]
    )
    assert values["distributed_type"] == "MULTI_GPU"
    assert "fsdp_config" not in values


def test_galvatron_marks_single_layers_for_recomputation(tmp_path: Path) -> None:
    values = json.loads(written("galvatron", CASES["galvatron"], tmp_path)["galvatron.json"])
    marks = [int(mark) for mark in values["checkpoint"].split(",")]
    assert values["pp_division"] == "7,9,8,8"
    assert marks == [1] + [0] * 6 + [1, 1] + [0] * 7 + [1, 1, 1] + [0] * 5 + [0] * 8


def test_nanotron_accepts_only_its_own_split(tmp_path: Path) -> None:
    case = launch(llama(), replace(PIPED, zero=1), (8, 8, 8, 8))
    own = own_split(case)
    # The head costs 2.16 layers, so a rank's share is 8.54: passed after layers 9, 18 and 26.
    assert own == (9, 9, 8, 6)
    assert refused("nanotron", case).nearest == "9/9/8/6"
    written("nanotron", launch(llama(), replace(PIPED, zero=1), own), tmp_path)


@pytest.mark.parametrize("name", ["megatron", "nanotron"])
@pytest.mark.parametrize("model", [replace(llama(), vocab=0, classes=10), deepseek()])
def test_models_without_flags_are_refused_by_targets_that_build_the_model(
    name: str, model: ModelSpec
) -> None:
    if name == "megatron" and model.vocab:
        target(name).check(launch(model, Strategy(dp=2)))
    else:
        assert (refused(name, launch(model, Strategy(dp=2))).key or "").startswith("model")


REFUSED: list[tuple[str, str, Launch]] = [
    ("accelerate", "pp", launch(llama(), PIPED)),
    ("accelerate", "zero", launch(llama(), Strategy(dp=2, zero=1))),
    ("accelerate", "tp", launch(llama(), Strategy(dp=2, tp=2))),
    ("accelerate", "recompute", launch(llama(), Strategy(dp=2, recompute="full"))),
    ("huggingface-trainer", "recompute", launch(llama(), Strategy(dp=2, recompute="selective"))),
    ("deepspeed", "zero", launch(llama(), Strategy(dp=2, pp=2, zero=2))),
    ("deepspeed", "tp", launch(llama(), Strategy(tp=2, pp=2))),
    (
        "deepspeed",
        "offload_optimizer",
        launch(llama(), Strategy(dp=2, zero=2, offload_optimizer=0.5)),
    ),
    ("deepspeed", "placement.layers", launch(llama(), Strategy(pp=2), (15, 17))),
    ("galvatron", "zero", launch(llama(), Strategy(dp=2, zero=1))),
    ("nanotron", "zero", launch(llama(), Strategy(dp=2, zero=2))),
    ("nanotron", "model", launch(qwen2(), Strategy(dp=2))),
    ("torchtitan", "zero", launch(llama(), Strategy(dp=2, zero=1))),
    ("torchtitan", "tp", launch(llama(), Strategy(tp=16))),
    ("torchtitan", "zero_group", launch(llama(), Strategy(dp=4, cp=4, zero=3, zero_group=2))),
    (
        "megatron-bridge",
        "training.options.optimizer",
        launch(
            llama(),
            Strategy(dp=2, zero=1),
            training=TrainingSpec(
                global_batch=2, sequence=1024, options={"optimizer": "precision_aware"}
            ),
        ),
    ),
    (
        "torchtitan",
        "training.precision",
        launch(
            llama(),
            Strategy(dp=2),
            training=TrainingSpec(global_batch=2, sequence=1024, precision="fp8"),
        ),
    ),
]


@pytest.mark.parametrize(("name", "field", "case"), REFUSED, ids=lambda item: str(item)[:24])
def test_what_a_target_cannot_do_is_refused_by_field(name: str, field: str, case: Launch) -> None:
    assert refused(name, case).key == field


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_one_gpu_alone_is_launched_by_every_target(name: str, tmp_path: Path) -> None:
    text = written(name, launch(llama(), NEUTRAL), tmp_path)["run.sh"]
    assert "NODE_RANK" not in text


def test_trainer_switches_recomputation_under_ddp(tmp_path: Path) -> None:
    case = launch(llama(), Strategy(dp=2, recompute="full"))
    text = written("huggingface-trainer", case, tmp_path)["training_arguments.yaml"]
    values: Any = parse_yaml(text)
    assert values["gradient_checkpointing"] is True
    assert placement((1,)).chunks[0].layers == 1
