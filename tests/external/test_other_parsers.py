"""The configuration readers of DeepSpeed, accelerate, transformers, torchtitan, nanotron and Hydra take our files."""

import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from costmodel.load import parse_yaml
from costmodel.strategy import Strategy
from planner.export import export
from planner.export.nanotron import own_split
from planner.export.target import Launch
from planner.export.torchtitan import flags, module_names
from tests.planner.export.export_cases import deepseek, gpt2, launch, llama

pytestmark = [pytest.mark.external, pytest.mark.filterwarnings("ignore")]

DATA = Strategy(dp=16, zero=3, micro_batch=2, microbatches=4)
FSDP: Mapping[str, Launch] = {
    "sharded": launch(llama(), replace(DATA, recompute="full")),
    "sharded in groups": launch(llama(), replace(DATA, dp=8, zero=2, tp=2, zero_group=4)),
    "context": launch(llama(), replace(DATA, dp=4, cp=4)),
    "replicated": launch(gpt2(), Strategy(dp=8, microbatches=2)),
}
ZERO: Mapping[str, Launch] = {
    "stage 0": launch(gpt2(), replace(DATA, zero=0)),
    "stage 1": launch(llama(), replace(DATA, zero=1, offload_optimizer=1.0)),
    "stage 2": launch(llama(), replace(DATA, zero=2, recompute="full")),
    "stage 3": launch(llama(), replace(DATA, offload_optimizer=0.5)),
    "pipeline": launch(llama(), replace(DATA, dp=4, pp=4, zero=1, recompute="full")),
    "tensor": launch(llama(), replace(DATA, dp=8, tp=2, zero=2)),
}
PIPED = Strategy(dp=2, tp=2, pp=4, micro_batch=2, microbatches=8, sequence_parallel=True, zero=2)
TITAN: Mapping[str, Launch] = {
    "sharded": launch(llama(), DATA),
    "sharded in groups": launch(llama(), replace(DATA, zero_group=4, tp=2)),
    "context": launch(llama(), replace(DATA, dp=4, cp=4)),
    "pipeline": launch(llama(), PIPED, (7, 9, 8, 8)),
    "interleaved": launch(llama(), replace(PIPED, vpp=2, schedule="interleaved")),
    "zero bubble": launch(llama(), replace(PIPED, schedule="zero_bubble", recompute="full")),
    "experts": launch(deepseek(), replace(DATA, ep=8, recompute="selective")),
}


def written(name: str, case: Launch, folder: Path) -> dict[str, Path]:
    paths = export(
        case.plan,
        model=case.model,
        cluster=case.cluster,
        training=case.training,
        target_name=name,
        directory=folder,
    )
    return {path.name: path for path in paths}


@pytest.mark.parametrize("name", ZERO)
def test_deepspeed_reads_the_configuration(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = pytest.importorskip("deepspeed.runtime.config")
    case = ZERO[name]
    file = written("deepspeed", case, tmp_path)["deepspeed.json"]
    ranks = case.strategy.dp

    class Ranks:
        """Stands for the process groups, of which the reader asks only the data-parallel size."""

        def get_data_parallel_world_size(self) -> int:
            return ranks

    monkeypatch.setattr(runtime.dist, "get_rank", lambda: 0)
    config = runtime.DeepSpeedConfig(str(file), mpu=Ranks())
    assert config.train_batch_size == case.strategy.global_batch
    assert config.gradient_accumulation_steps == case.strategy.microbatches
    assert config.zero_optimization_stage == case.strategy.zero
    offload = config.zero_config.offload_optimizer
    assert (offload.ratio if offload else 0.0) == case.strategy.offload_optimizer
    if case.strategy.pp > 1:
        assert config.pipeline["stages"] == case.strategy.pp


@pytest.mark.parametrize("name", FSDP)
def test_accelerate_reads_the_configuration(name: str, tmp_path: Path) -> None:
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    case = FSDP[name]
    file = written("accelerate", case, tmp_path)["accelerate.yaml"]
    config = config_args.load_config_from_file(str(file))
    assert config.num_processes == case.strategy.gpus
    sizes = config.parallelism_config
    if sizes:
        product = 1
        for key in ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size"):
            product *= sizes[f"parallelism_config_{key}"]
        assert product == case.strategy.gpus


@pytest.mark.parametrize("name", FSDP)
def test_accelerates_launcher_takes_the_configuration(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pytest.importorskip("accelerate.commands.launch")
    utils = pytest.importorskip("accelerate.utils.launch")
    case = FSDP[name]
    file = written("accelerate", case, tmp_path)["accelerate.yaml"]
    parser = module.launch_command_parser()
    arguments = parser.parse_args(["--config_file", str(file), "train.py"])
    arguments, *_ = module._validate_launch_command(arguments)
    environment = utils.prepare_multi_gpu_env(arguments)
    strategy = case.strategy
    if strategy.zero:
        reshard = environment["FSDP_RESHARD_AFTER_FORWARD"].lower()
        assert reshard == str(strategy.zero == 3).lower()
    if strategy.cp > 1:
        assert environment["PARALLELISM_CONFIG_CP_SIZE"] == str(strategy.cp)


@pytest.mark.parametrize("name", ["sharded", "replicated"])
def test_transformers_reads_the_training_arguments(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    case = FSDP[name]
    file = written("huggingface-trainer", case, tmp_path)["training_arguments.yaml"]
    values: Any = parse_yaml(file.read_text())
    values["use_cpu"] = True  # this machine has no GPU
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps(values))
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    (arguments,) = parser.parse_json_file(str(plain))
    assert arguments.per_device_train_batch_size == case.strategy.micro_batch
    assert arguments.gradient_accumulation_steps == case.strategy.microbatches
    if case.strategy.zero:
        assert arguments.fsdp_plugin_args["reshard_after_forward"] == (case.strategy.zero == 3)
        assert arguments.fsdp_plugin_args["fsdp_version"] == 2
        assert arguments.fsdp_plugin_args["activation_checkpointing"]


@pytest.mark.parametrize("name", TITAN)
def test_torchtitan_takes_the_command_line(name: str, tmp_path: Path) -> None:
    manager = pytest.importorskip("torchtitan.config.manager")
    case = TITAN[name]
    run = written("torchtitan", case, tmp_path)["run.sh"].read_text()
    module, config = (
        ("deepseek_v3", "deepseek_v3_16b") if name == "experts" else ("llama3", "llama3_8b")
    )
    assert f"export CONFIG={config}" in run
    words = [word for line in flags(case) for word in line.split()]
    kind = run.rpartition("activation-checkpoint:")[2].strip()
    parsed = manager.ConfigManager().parse_args(
        ["--module", module, "--config", config, *words, f"activation-checkpoint:{kind}"]
    )
    strategy, parallelism = case.strategy, parsed.parallelism
    assert parallelism.tensor_parallel_degree == strategy.tp
    assert parallelism.pipeline_parallel_degree == strategy.pp
    shards = parallelism.data_parallel_shard_degree * parallelism.data_parallel_replicate_degree
    assert shards == strategy.dp
    assert parsed.training.global_batch_size == strategy.global_batch
    if strategy.pp > 1:
        assert parallelism.module_fqns_per_model_part == module_names(case)


def nanotron_config() -> ModuleType:
    """Import nanotron.config; the release's logging and config import each other, so one goes first."""
    names = ("nanotron.config", "nanotron.config.config")
    if names[0] not in sys.modules:
        for name in names:
            stand_in = ModuleType(name)
            stand_in.__dict__.update(Config=object, LoggingArgs=object, __path__=[])
            sys.modules[name] = stand_in
        importlib.import_module("nanotron.logging")
        for name in names:
            del sys.modules[name]
    return importlib.import_module("nanotron.config")


def test_nanotron_reads_the_configuration(tmp_path: Path) -> None:
    pytest.importorskip("nanotron")
    config = nanotron_config()
    strategy = replace(PIPED, zero=1)
    case = launch(llama(), strategy, own_split(launch(llama(), strategy)))
    file = written("nanotron", case, tmp_path)["nanotron.yaml"]
    parsed = config.get_config_from_file(str(file))
    assert parsed.global_batch_size == strategy.global_batch
    assert parsed.model.model_config.num_hidden_layers == 32


def test_hydra_reads_the_overrides_of_bridge(tmp_path: Path) -> None:
    parser_module = pytest.importorskip("hydra.core.override_parser.overrides_parser")
    strategy = replace(PIPED, zero=1, vpp=2, schedule="interleaved", recompute="selective")
    case = launch(llama(), strategy, (3, 5, 4, 4, 4, 4, 4, 4))
    lines = written("megatron-bridge", case, tmp_path)["overrides.txt"].read_text().splitlines()
    words = [line for line in lines if not line.startswith("#")]
    parsed = parser_module.OverridesParser.create().parse_overrides(words)
    values = {item.key_or_group: item.value() for item in parsed}
    assert str(values["model.pipeline_model_parallel_layout"]).strip('"') == (
        "Et*3|t*5|(t*4|)*5,t*4L"
    )
    assert values["model.recompute_modules"] == ["core_attn"]
    assert values["train.global_batch_size"] == strategy.global_batch
