"""Plans with their measurement: which operators stand on which stage, and what a run of them took."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from costmodel.errors import InputError
from costmodel.load import read_json

TIMERS = (
    "forward_recv_s",
    "forward_send_s",
    "backward_recv_s",
    "backward_send_s",
    "forward_send_backward_recv_s",
    "backward_send_forward_recv_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedOperator:
    """One operator of a stage: its name, degrees and whether it is recomputed."""

    op: str
    tp: int
    dp: int
    algo: int
    recomputed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMeasurement:
    """What the timers and counters of one stage showed; seconds per iteration, MiB; None for what was not logged.

    Attributes:
        exchange_s: All pipeline transfers, waiting for neighbours inside.
    """

    forward_s: float
    backward_s: float
    exchange_s: float | None
    gradient_reduction_s: float | None
    embedding_exchange_s: float | None
    optimizer_s: float | None
    max_allocated_mib: float | None
    max_reserved_mib: float | None

    @property
    def finish_s(self) -> float | None:
        """What follows the last backward, None if a part of it was not logged."""
        parts = (self.gradient_reduction_s, self.embedding_exchange_s, self.optimizer_s)
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlan:
    """A plan of one of the plan files.

    Attributes:
        model: Name of the model in the operator table.
        seq, hidden, heads, vocab: Of the model; the vocabulary as padded.
        stages: Operators by stage.
        first_gpu: Number of each stage's first GPU.
        iteration_s: Measured; None if the run failed (``failure`` says how).
        measured: By stage; None where a stage was not logged.
    """

    name: str
    profile: str
    gpu_type: str
    model: str
    seq: int
    hidden: int
    heads: int
    vocab: int
    nodes: int
    gpus_per_node: int
    micro_batch: int
    microbatches: int
    stages: tuple[tuple[PlacedOperator, ...], ...]
    first_gpu: tuple[int, ...]
    iteration_s: float | None
    measured: tuple[StageMeasurement | None, ...]
    failure: str = ""

    def crosses_nodes(self, stage: int) -> bool:
        """Return whether the boundary behind ``stage`` lies between two nodes."""
        return self.first_gpu[stage + 1] % self.gpus_per_node == 0

    def tp(self, stage: int) -> int:
        """Return the tensor-parallel size of a stage's first operator."""
        return self.stages[stage][0].tp


def read_plan(path: Path) -> MeasuredPlan:
    """Read a plan file.

    Raises:
        InputError: If the file is no plan.
    """
    data = read_json(path)
    try:
        return _plan(cast("Mapping[str, Any]", data))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError("is no measured plan", file=str(path), value=repr(error)) from error


def plan_files(folder: Path) -> tuple[Path, ...]:
    """Return all ``*.json`` of a folder, or else of its ``plans``, in alphabetical order.

    Raises:
        InputError: If there is none.
    """
    files = sorted(folder.glob("*.json")) or sorted((folder / "plans").glob("*.json"))
    if not files:
        raise InputError("holds no plan files (*.json, or plans/*.json)", file=str(folder))
    return tuple(files)


def _plan(data: Mapping[str, Any]) -> MeasuredPlan:
    model, names, measured = data["model"], data["op_names"], data.get("measured") or {}
    operators = [*names["head"], *(names["layer"] * model["layers"]), *names["tail"]]
    gpus = [int(stage["gpus"]) for stage in data["stages"]]
    per_stage = measured.get("per_stage") or [None] * len(gpus)
    return MeasuredPlan(
        name=str(data["id"]),
        profile=str(data["profile"]),
        gpu_type=str(data["gpu_type"]),
        model=str(model["family"]),
        seq=int(model["seq"]),
        hidden=int(model["hidden"]),
        heads=int(model["heads"]),
        vocab=int(model["vocab_padded"]),
        nodes=int(data["nodes"]),
        gpus_per_node=int(data["gpus_per_node"]),
        micro_batch=int(data["micro_batch"]),
        microbatches=int(data["num_micro_batches"]),
        stages=tuple(_operators(stage["ops"], operators) for stage in data["stages"]),
        first_gpu=tuple(sum(gpus[:i]) for i in range(len(gpus))),
        iteration_s=measured.get("iteration_s"),
        measured=tuple(_measurement(stage) if stage else None for stage in per_stage),
        failure="out of memory" if measured.get("oom") else "",
    )


def _operators(runs: list[list[Any]], operators: list[str]) -> tuple[PlacedOperator, ...]:
    return tuple(
        PlacedOperator(
            op=operators[index], tp=int(tp), dp=int(dp), algo=int(algo), recomputed=bool(recomputed)
        )
        for first, last, tp, dp, algo, recomputed in runs
        for index in range(first, last + 1)
    )


def _measurement(stage: Mapping[str, Any]) -> StageMeasurement:
    def logged(key: str) -> float | None:
        value = stage.get(key)
        return None if value is None else float(value)

    timers = [seconds for seconds in map(logged, TIMERS) if seconds is not None]
    return StageMeasurement(
        forward_s=float(stage["forward_s"]),
        backward_s=float(stage["backward_s"]),
        exchange_s=sum(timers) if timers else None,
        gradient_reduction_s=logged("grad_all_reduce_s"),
        embedding_exchange_s=logged("embedding_sync_s"),
        optimizer_s=logged("optimizer_s"),
        max_allocated_mib=logged("max_allocated_mb"),
        max_reserved_mib=logged("max_reserved_mb"),
    )
