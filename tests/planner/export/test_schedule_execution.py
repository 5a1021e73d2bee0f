"""torch executes the exported schedule files and computes what the unpipelined network computes."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from costmodel.strategy import Strategy
from planner.export.torchtitan import schedule_csv
from tests.planner.export.export_cases import launch, llama
from tests.planner.export.pipeline_worker import batch, loss_of, network, weight_gradient

ROOT = Path(__file__).parents[3]
CASES: Mapping[str, tuple[Strategy, list[int]]] = {
    "gpipe": (Strategy(pp=2, microbatches=4, schedule="gpipe"), [4, 4]),
    "1f1b": (Strategy(pp=2, microbatches=5), [3, 5]),
    "interleaved": (
        Strategy(pp=2, vpp=2, microbatches=4, schedule="interleaved"),
        [1, 3, 2, 2],
    ),
    "zero_bubble": (Strategy(pp=2, microbatches=4, schedule="zero_bubble"), [4, 4]),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, torch.Tensor]]:
    """Gradients by layer and loss of each case, as two gloo processes computed them."""
    folder = tmp_path_factory.mktemp("schedules")
    for name, (strategy, counts) in CASES.items():
        case = launch(llama(sum(counts)), strategy, counts)
        (folder / f"{name}.csv").write_text(schedule_csv(case))
    sizes = {name: (counts, plan.microbatches) for name, (plan, counts) in CASES.items()}
    (folder / "cases.json").write_text(json.dumps(sizes))
    command = [sys.executable, "-m", "tests.planner.export.pipeline_worker"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen(
            [*command, str(rank), str(folder)],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for worker in workers:
            _, errors = worker.communicate(timeout=60)
            assert worker.returncode == 0, errors
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    ranks = [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]
    return {name: ranks[0][name] | ranks[1][name] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_file_trains_like_the_unpipelined_network(
    name: str, results: dict[str, dict[str, torch.Tensor]]
) -> None:
    whole = network()
    inputs, targets = batch(CASES[name][0].microbatches)
    loss = loss_of(whole(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    found = results[name]
    torch.testing.assert_close(found["loss"], loss.detach())
    assert found.keys() == {"loss", *(str(layer) for layer in range(len(whole)))}
    for layer, block in enumerate(whole):
        torch.testing.assert_close(found[str(layer)], weight_gradient(block))
