"""One of two gloo processes: executes exported schedule files and saves loss and gradients.

Run as ``python -m tests.planner.export.pipeline_worker RANK FOLDER``; the folder holds one CSV for each case and
``cases.json`` with the number of stages and micro-batches of each.
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

WIDTH, LAYERS, RANKS = 8, 8, 2


def network() -> nn.Sequential:
    """Return a small network, the same in every process."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS))
    )


def batch(microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets of two samples for each micro-batch."""
    torch.manual_seed(1)
    return torch.randn(2 * microbatches, WIDTH), torch.randn(2 * microbatches, WIDTH)


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error."""
    return nn.functional.mse_loss(output, target)


def stage_layers(counts: list[int], stage: int) -> range:
    """Return the layers of a stage."""
    first = sum(counts[:stage])
    return range(first, first + counts[stage])


def weight_gradient(block: nn.Module) -> torch.Tensor:
    """Return the gradient of a block's matrix."""
    gradient = next(block.parameters()).grad
    assert gradient is not None
    return gradient


def execute(file: Path, counts: list[int], microbatches: int, rank: int) -> dict[str, torch.Tensor]:
    """Run one schedule and return this rank's gradients by layer, and the loss on the last rank."""
    whole = network()
    stages = [
        PipelineStage(
            nn.Sequential(*(whole[layer] for layer in stage_layers(counts, stage))),
            stage,
            len(counts),
            torch.device("cpu"),
        )
        for stage in range(rank, len(counts), RANKS)
    ]
    runtime = _PipelineScheduleRuntime(  # type: ignore[no-untyped-call]
        stages, microbatches, loss_fn=loss_of
    )
    runtime._load_csv(str(file))
    inputs, targets = batch(microbatches)
    losses: list[torch.Tensor] = []
    arguments = (inputs,) if rank == 0 else ()
    if (len(counts) - 1) % RANKS == rank:
        runtime.step(*arguments, target=targets, losses=losses)
    else:
        runtime.step(*arguments)
    found = {
        f"{layer}": weight_gradient(whole[layer])
        for stage in range(rank, len(counts), RANKS)
        for layer in stage_layers(counts, stage)
    }
    return found | ({"loss": torch.stack(losses).mean()} if losses else {})


def main() -> None:
    """Run every case of the folder."""
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS
    )
    results = {
        name: execute(folder / f"{name}.csv", counts, microbatches, rank)
        for name, (counts, microbatches) in json.loads((folder / "cases.json").read_text()).items()
    }
    torch.save(results, folder / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
