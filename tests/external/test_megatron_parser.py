"""Megatron-core 0.19's own argument parser and checks take every exported flag file."""

import argparse
import importlib
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from planner.export.megatron import environment, flag_lines
from planner.export.target import Launch
from tests.planner.export.test_megatron import CASES

pytestmark = pytest.mark.external

# The release that holds megatron/training wants Python 3.12; its parser runs on 3.11 with typing.override.
RELEASE = Path(".venv-external/megatron-0.19/megatron")
OWN = ["--train-iters", "10", "--lr", "1e-4", "--tokenizer-type", "NullTokenizer", "--mock-data"]


@pytest.fixture(scope="module")
def megatron() -> ModuleType:
    """Import megatron.training.arguments from the release apart."""
    if not RELEASE.is_dir():
        pytest.skip("megatron-core 0.19.2 is not installed by make test-external")
    typing_extensions = pytest.importorskip("typing_extensions")
    package = pytest.importorskip("megatron")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not hasattr(typing, "override"):
            typing.override = typing_extensions.override  # type: ignore[attr-defined]
        package.__path__ = [str(RELEASE)]
        return importlib.import_module("megatron.training.arguments")


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch, megatron: ModuleType) -> Iterator[None]:
    """Answer the parser's questions about the GPU as an H100 would."""
    import torch

    monkeypatch.setattr(megatron, "get_device_arch_version", lambda: 9)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def validated(megatron: ModuleType, case: Launch, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return Megatron's arguments after its own checks."""
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    for name, value in environment(case).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WORLD_SIZE", str(case.strategy.gpus))
    monkeypatch.setenv("RANK", "0")
    parser = megatron.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    words = [word for line in flag_lines(case) for word in line]
    arguments = parser.parse_args([*words, *OWN, "--no-rope-fusion"])
    arguments.rank, arguments.world_size = 0, case.strategy.gpus
    megatron.validate_args(arguments)
    return arguments


def built_layers(config: Any, pp: int, vpp: int) -> tuple[int, ...]:
    """Return how many layers Megatron builds on each virtual stage, in model order."""
    enums = importlib.import_module("megatron.core.transformer.enums")
    block = importlib.import_module("megatron.core.transformer.transformer_block")
    layout = config.pipeline_model_parallel_layout
    if layout is not None:
        return tuple(
            layout.layout[stage % pp][stage // pp].count(enums.LayerType.decoder)
            for stage in range(pp * vpp)
        )
    return tuple(
        block.get_num_layers_to_build(config, vp_stage=stage // pp, pp_rank=stage % pp)
        for stage in range(pp * vpp)
    )


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("name", CASES)
def test_megatron_takes_the_flags_and_builds_the_planned_layers(
    name: str, megatron: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    arguments = validated(megatron, case, monkeypatch)
    strategy = case.strategy
    assert arguments.data_parallel_size == strategy.dp
    assert (arguments.virtual_pipeline_model_parallel_size or 1) == strategy.vpp
    assert arguments.num_experts is None or (arguments.expert_tensor_parallel_size == strategy.etp)
    config = megatron.core_transformer_config_from_args(arguments)
    counts = built_layers(config, strategy.pp, strategy.vpp)
    assert counts == case.placement.layer_counts()
