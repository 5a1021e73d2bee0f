"""Tests of the Chrome trace and the picture of a simulated iteration."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from costmodel.cost import Finish, MemoryMoment, StrategyCost
from costmodel.errors import InputError
from costmodel.linear import StageTerm, term
from costmodel.simulator import simulate
from costmodel.strategy import Strategy
from costmodel.timeline import Timeline
from planner.coefficients import coefficients
from planner.plans import Chunk, Placement, Plan
from planner.plot import COLOURS, boxes, png, svg, write_plot
from planner.simulation import arrangement_of
from planner.trace import TERM_TRACKS, TRACKS, trace, write_trace
from tests.planner.export.export_cases import plan

GIB = 1 << 30
STRATEGIES: Mapping[str, Strategy] = {
    "one stage": Strategy(dp=2, microbatches=2),
    "1f1b": Strategy(pp=3, tp=2, microbatches=4),
    "gpipe": Strategy(pp=2, microbatches=3, schedule="gpipe"),
    "interleaved": Strategy(pp=2, vpp=2, microbatches=4, schedule="interleaved"),
    "zero bubble": Strategy(pp=3, microbatches=4, schedule="zero_bubble"),
}


def seconds(name: str, layer: float, **more: float) -> StageTerm:
    return term(name, 1, layer=(layer,), **more)


def cost_of(strategy: Strategy, layers: int) -> StrategyCost:
    """Layers of 3 ms forward and 6 ms backward, a tenth of it tensor communication; 1 GiB a layer in flight."""
    gib = float(GIB)
    return StrategyCost(
        strategy=strategy,
        layer_kinds=(0,) * layers,
        forward=(seconds("matmul", 0.0027), seconds("tp_comm", 0.0003)),
        backward=(seconds("matmul", 0.0054), seconds("tp_comm", 0.0006)),
        weight_gradient=(seconds("matmul", 0.0024),),
        transfer_s=(0.0005,) * strategy.pp if strategy.pp > 1 else (),
        finish=(
            Finish(terms=(seconds("dp_comm", 0.001), seconds("optimizer", 0.0005))),
            Finish(terms=(seconds("optimizer", 0.0005),)),
        ),
        memory=(
            MemoryMoment(
                name="backward",
                terms=(term("weights", 1, layer=(gib,), flight_layer=(gib,)),),
            ),
            MemoryMoment(name="step", terms=(term("weights", 1, layer=(2 * gib,)),)),
        ),
        fixed_s=0.002,
    )


def case(name: str) -> tuple[Plan, Timeline, StrategyCost]:
    strategy = STRATEGIES[name]
    stages = strategy.pp * strategy.vpp
    chunks = tuple(Chunk(first_layer=2 * v, layers=2) for v in range(stages))
    placement = Placement(chunks=chunks)
    cost = cost_of(strategy, 2 * stages)
    timeline = simulate(coefficients(cost, 80 * GIB).work(arrangement_of(placement)))
    found = replace(plan(strategy, placement), iteration_s=timeline.iteration_ns / 1e9)
    return found, timeline, cost


def slices(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in data["traceEvents"] if event["ph"] == "X"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_trace_ends_when_the_iteration_does(name: str) -> None:
    found, timeline, cost = case(name)
    events = slices(trace(found, timeline, cost))
    end_us = max(event["ts"] + event["dur"] for event in events)
    assert end_us == pytest.approx(found.iteration_s * 1e6, rel=1e-12)
    assert min(event["ts"] for event in events) == 0


@pytest.mark.parametrize("name", STRATEGIES)
def test_slices_of_a_track_never_overlap_but_for_transfers_in_flight(name: str) -> None:
    found, timeline, cost = case(name)
    for rank in range(found.strategy.pp):
        for track in range(len(TRACKS)):
            here = [
                e
                for e in slices(trace(found, timeline, cost))
                if (e["pid"], e["tid"]) == (rank, track)
            ]
            here.sort(key=lambda event: event["ts"])
            edges = [(event["ts"], event["ts"] + event["dur"]) for event in here]
            if track != 2:
                assert all(b[0] >= a[1] - 1e-9 for a, b in pairwise(edges))


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_slices_of_a_rank_sum_to_its_tasks_and_finish(name: str) -> None:
    found, timeline, cost = case(name)
    events = slices(trace(found, timeline, cost))
    for rank in range(found.strategy.pp):
        mine = [e for e in events if e["pid"] == rank and "from stage" not in e["args"]]
        total = sum(event["dur"] for event in mine) * 1e3
        assert total == pytest.approx(timeline.busy_ns(rank) + timeline.work.finish_ns[rank])


def test_tensor_communication_has_its_track() -> None:
    found, timeline, cost = case("1f1b")
    events = slices(trace(found, timeline, cost))
    forward = [event for event in events if event["name"] == "forward 0" and event["pid"] == 0]
    assert [(event["tid"], event["dur"]) for event in forward] == [(0, 5400.0), (1, 600.0)]


def test_the_longest_finish_is_drawn() -> None:
    found, timeline, cost = case("1f1b")
    tail = [e["name"] for e in slices(trace(found, timeline, cost)) if not e["args"]]
    assert tail == ["dp_comm", "optimizer", "fixed"] * 3


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_transfer_is_an_arrow_between_neighbours(name: str) -> None:
    found, timeline, cost = case(name)
    events = trace(found, timeline, cost)["traceEvents"]
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    strategy = found.strategy
    stages = strategy.pp * strategy.vpp
    expected = 0 if strategy.pp == 1 else 2 * (stages - 1) * strategy.microbatches
    assert starts.keys() == ends.keys()
    assert len(starts) == expected
    for number, start in starts.items():
        assert start["ts"] < ends[number]["ts"]
        assert start["pid"] != ends[number]["pid"]


def test_memory_rises_with_micro_batches_in_flight_and_ends_in_the_step() -> None:
    found, timeline, cost = case("1f1b")
    events = trace(found, timeline, cost)["traceEvents"]
    first = [e["args"]["reserved"] for e in events if e["ph"] == "C" and e["pid"] == 0]
    # Two layers of 1 GiB, and 2 GiB for each of at most three micro-batches in flight; 4 GiB in the step.
    assert first[:4] == [2.0, 4.0, 6.0, 8.0]
    assert max(first) == 8.0
    assert first[-2:] == [2.0, 4.0]


def test_ranks_and_tracks_are_named() -> None:
    found, timeline, cost = case("1f1b")
    names = [e for e in trace(found, timeline, cost)["traceEvents"] if e["name"] == "process_name"]
    assert [event["args"]["name"] for event in names] == [
        "PP 0 / GPUs 0-1",
        "PP 1 / GPUs 2-3",
        "PP 2 / GPUs 4-5",
    ]


def test_every_communication_term_of_the_prices_has_a_track() -> None:
    names = set(TERM_TRACKS)
    assert {name for name in names if name.endswith("_comm")} == {
        "tp_comm",
        "cp_comm",
        "ep_comm",
        "pp_comm",
        "fsdp_comm",
        "dp_comm",
    }


def test_a_trace_file_is_compressed_and_the_same_twice(tmp_path: Path) -> None:
    found, timeline, cost = case("interleaved")
    first = write_trace(tmp_path / "a.json.gz", found, timeline, cost).read_bytes()
    second = write_trace(tmp_path / "b.json.gz", found, timeline, cost).read_bytes()
    assert first == second
    assert json.loads(gzip.decompress(first)) == trace(found, timeline, cost)
    plain = write_trace(tmp_path / "a.json", found, timeline, cost).read_text()
    assert json.loads(plain)["metadata"]["shardplan"] == "pp2 vpp2"


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_picture_shows_every_task(name: str) -> None:
    _, timeline, _ = case(name)
    root = ET.fromstring(svg(timeline, "a <b> & c"))  # noqa: S314
    tips = [item.text for item in root.iter() if item.tag.endswith("title")]
    assert tips[0] == "a <b> & c"
    assert len(tips) - 1 == len(list(boxes(timeline)))
    assert {box.kind for box in boxes(timeline)} <= COLOURS.keys()


def test_pictures_are_written_by_their_ending(tmp_path: Path) -> None:
    _, timeline, _ = case("1f1b")
    assert write_plot(tmp_path / "a.svg", timeline, "t").read_text().startswith("<svg")
    with pytest.raises(InputError, match=r"must end in \.svg or \.png"):
        write_plot(tmp_path / "a.pdf", timeline, "t")


def test_png_is_drawn_by_matplotlib() -> None:
    pytest.importorskip("matplotlib")
    _, timeline, _ = case("zero bubble")
    assert png(timeline, "t").startswith(b"\x89PNG")
