"""Importers of nccl-tests logs and Kineto traces."""

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.errors import InputError
from costmodel.events import CommEvent, ComputeEvent
from costmodel.importers.kineto import read_kineto
from costmodel.importers.nccl_tests import read_nccl_tests

DATA = Path(__file__).parents[1] / "data"


def _read(name: str) -> str:
    return (DATA / name).read_text()


def test_new_text_layout_with_iteration_columns_on_two_hosts() -> None:
    source, entries = read_nccl_tests(_read("nccl_new.txt"), "nccl_new.txt")
    expected = CommEvent(collective="all_to_all", bytes=1024, group_size=4, per_node=2, level=1)
    assert entries[0].event == expected
    assert [entry.seconds for entry in entries] == pytest.approx([35.5e-6, 121.85e-6])
    assert (source.device, entries[0].samples) == ("NVIDIA H100 80GB HBM3", 20)


def test_old_text_layout_without_redop_names_the_program_in_the_command() -> None:
    source, entries = read_nccl_tests(_read("nccl_old.txt"), "nccl_old.txt")
    expected = CommEvent(collective="all_gather", bytes=8 << 20, group_size=2, per_node=2, level=0)
    assert entries[0].event == expected
    assert entries[1].seconds == pytest.approx(340.2e-6)
    assert source.device == "Tesla V100-SXM2-16GB"


def test_mpirun_tags_before_the_lines_are_ignored() -> None:
    tagged = "\n".join(f"[1,0]<stdout>:{line}" for line in _read("nccl_old.txt").splitlines())
    assert read_nccl_tests(tagged, "x")[1] == read_nccl_tests(_read("nccl_old.txt"), "x")[1]


def test_json_layout_with_devices_in_config_or_beside_the_results() -> None:
    text = _read("nccl_new.json")
    moved = json.loads(text)
    moved["devices"] = moved["config"].pop("devices")
    for layout in (text, json.dumps(moved)):
        _, entries = read_nccl_tests(layout, "nccl_new.json")
        assert entries[0].event.key == "all_reduce/1048576B/2ranks/2pernode/level0"
        assert entries[0].seconds == pytest.approx(130.5e-6)


def test_what_a_log_does_not_say_can_be_given_or_is_refused() -> None:
    bare = "\n".join(_read("nccl_old.txt").splitlines()[7:])
    with pytest.raises(InputError, match="which collective"):
        read_nccl_tests(bare, "bare")
    with pytest.raises(InputError, match="2 devices"):
        read_nccl_tests(bare, "bare", collective="all_gather")
    _, entries = read_nccl_tests(bare, "bare", collective="all_gather", group_size=2)
    assert len(entries) == 2
    with pytest.raises(InputError, match="no line with a time"):
        read_nccl_tests("# nothing", "empty", collective="all_gather", group_size=2)


def test_a_cpu_trace_becomes_operator_events() -> None:
    source, entries = read_kineto([_read("kineto_cpu.json")], "kineto_cpu.json")
    matmul = ComputeEvent(op="matmul", shape=(64, 48, 32), dtype="fp32")
    found = {entry.event: entry for entry in entries}
    assert found[matmul].samples == 4
    assert found[matmul].spread is not None
    assert any(entry.event.key.startswith("aten.native_layer_norm/") for entry in entries)
    assert source.device == "CPU"


def _slice(cat: str, name: str, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": 0, "dur": dur, "args": args}


def _gpu_trace(reduce_us: float) -> str:
    dims, types = [[8], [16, 4], [4, 8]], ["c10::BFloat16"] * 3
    operator = {"External id": 7, "Input Dims": dims, "Input type": types}
    nccl = {
        "Collective name": "allreduce",
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
        "Group size": 4,
        "dtype": "BFloat16",
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1, 2, 3]",
    }
    events = [
        _slice("cpu_op", "aten::addmm", 90.0, **operator),
        _slice("kernel", "gemm", 10.0, **{"External id": 7}),
        _slice("kernel", "splitk_reduce", 2.0, **{"External id": 7}),
        _slice("kernel", "ncclDevKernel_AllReduce", reduce_us, **nccl),
    ]
    device = {"name": "NVIDIA L4"}
    return json.dumps({"traceEvents": events, "deviceProperties": [device, device]})


def test_kernels_add_up_under_their_operator_and_collectives_take_the_shortest_rank() -> None:
    source, entries = read_kineto([_gpu_trace(50.0), _gpu_trace(30.0)], "t.json")
    found = {entry.event.key: entry.seconds for entry in entries}
    assert found["matmul/16x8x4/bf16/forward"] == pytest.approx(12e-6)
    assert found["all_reduce/2048B/4ranks/2pernode/level1"] == pytest.approx(30e-6)
    assert source.device == "NVIDIA L4"


@pytest.mark.parametrize(
    ("text", "rule"),
    [("{", "JSON trace"), ("{}", "traceEvents"), ('{"traceEvents": []}', "no kernel")],
)
def test_traces_without_events_are_refused(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        read_kineto([text], "t.json")
