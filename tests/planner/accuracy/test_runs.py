"""Rows become runs, or say why they are none."""

from pathlib import Path

import pytest

from costmodel.errors import InputError, ShardplanError
from costmodel.strategy import Strategy
from planner.accuracy.refit import RUNS
from planner.accuracy.runs import default_placement, read_rows, read_runs, run_of
from planner.accuracy.stack import framework_of, options_of

ROW = {
    "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336", "ffn_kind": "swiglu",
    "vocab": "128256", "seq": "8192", "gpus": "64", "gpu_type": "H100-SXM5-80GB", "tp": "4", "pp": "2", "dp": "8",
    "micro_batch": "1", "global_batch": "128", "precision": "bf16", "iteration_s": "4.2",
}  # fmt: skip


def test_a_row_becomes_model_cluster_training_and_strategy() -> None:
    run = run_of(ROW)
    assert run.graph.parameters == pytest.approx(8.03e9, rel=0.01)
    assert (run.strategy.microbatches, run.cluster.gpus, run.training.sequence) == (16, 64, 8192)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dp": "4"}, "must be the number of GPUs"),
        ({"global_batch": "100"}, "must be a multiple of dp"),
        ({"hidden": "wide"}, "must be a number"),
        ({"layers": ""}, "is not stated"),
        ({"gpus": "-64"}, "must be positive"),
        ({"gpu_type": "TPUv4"}, "is no GPU of the catalog"),
        ({"precision": "nvfp4"}, "is not modelled"),
        ({"recompute": "some"}, "must be none, selective or full"),
        ({"zero_stage": "5"}, "must be 0, 1, 2, 3 or fsdp"),
        ({"vpp": "3", "global_batch": "8"}, "interleaving needs micro-batches"),
        ({"iteration_s": "nan"}, "must be positive"),
    ],
)
def test_a_nonsense_row_says_what_is_wrong_with_it(change: dict[str, str], reason: str) -> None:
    with pytest.raises(ShardplanError, match=reason):
        run_of(ROW | change)


def test_no_row_is_dropped_silently() -> None:
    rows = [ROW | {"id": "good"}, ROW | {"id": "bad", "gpu_type": ""}]
    runs, unread = read_runs(rows)
    assert [run.id for run in runs] == ["good"]
    assert [item.id for item in unread] == ["bad"]


def test_files_without_the_needed_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="must have the columns gpus, layers, hidden"):
        read_rows([path])
    with pytest.raises(InputError, match="cannot be read"):
        read_rows([tmp_path / "missing.csv"])


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"where": "mosaicml/llm-foundry:README.md"}, "composer"),
        ({"notes": "measured with microsoft/Megatron-DeepSpeed"}, "megatron-deepspeed"),
        ({"where": "huggingface/nanotron:bench.csv"}, "nanotron"),
        ({"notes": "transformer-impl=transformer_engine; Megatron"}, "megatron"),
        ({"where": "NVIDIA/Megatron-LM", "attention": "standard"}, "megatron-lm"),
        ({"zero_stage": "fsdp"}, "fsdp"),
        ({"framework": "torchtitan", "where": "megatron"}, "torchtitan"),
        ({}, "unknown"),
    ],
)
def test_the_framework_is_read_from_what_the_row_says(row: dict[str, str], name: str) -> None:
    assert framework_of(row) == name


def test_switches_are_read_from_the_notes() -> None:
    row = {"notes": "async TP; torch.compile; op-level selective AC"}
    assert options_of(row, "torchtitan") == {
        "tp_overlap": "on",
        "selective": "operators",
        "block": "compiled",
    }


@pytest.mark.parametrize(
    ("layers", "stages", "counts"),
    [
        (80, 4, (20, 20, 20, 20)),
        (126, 64, (1, *(2,) * 62, 1)),  # Llama-3.1-405B: embedding and loss count as layers
        (31, 4, (8, 8, 8, 7)),
        (78, 12, (*(7,) * 11, 1)),  # DeepSpeed fills stages from the front
    ],
)
def test_layers_stand_where_frameworks_put_them(
    layers: int, stages: int, counts: tuple[int, ...]
) -> None:
    placement = default_placement(layers, Strategy(pp=stages, recompute="full"))
    assert placement.layer_counts() == counts
    assert sum(chunk.recomputed for chunk in placement.chunks) == layers


def test_nearly_all_shipped_rows_can_be_read() -> None:
    runs, unread = read_runs(read_rows([RUNS]))
    assert len(runs) > 950
    assert len(unread) < 20
