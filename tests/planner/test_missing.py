"""Needed events, what a table lacks of them, and the commands around tables."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from costmodel.catalog import ROOT
from costmodel.events import CommEvent, ComputeEvent
from costmodel.strategy import Strategy
from costmodel.table import Entry, Source, Table, append
from planner.commands.importing import command as import_command
from planner.commands.profile import command as profile_command
from planner.commands.recompose import command as recompose_command
from planner.missing import missing_events, needed_events, savings
from planner.scenario import Scenario
from planner.scenario_file import load_scenario
from planner.scenario_pricer import make_pricer

EXAMPLE = ROOT / "examples" / "llama-3.1-70b-64xh100.yaml"
DATA = Path(__file__).parents[1] / "data"
STRATEGY = Strategy(tp=8, pp=4, dp=2, micro_batch=1, microbatches=512)


@cache
def _scenario() -> Scenario:
    return load_scenario(EXAMPLE)


def test_needed_events_are_what_the_pricer_looks_up_with_counts_of_an_iteration() -> None:
    events = needed_events(_scenario(), [STRATEGY])
    up = ComputeEvent(op="matmul", shape=(8192, 7168, 8192), dtype="bf16")
    assert events[up] == 80 * 512 * 2  # the up projection forward and its equal-shaped gradient
    assert any(isinstance(event, CommEvent) and event.group_size == 8 for event in events)
    assert not any(isinstance(event, CommEvent) and event.group_size == 1 for event in events)


def test_strategies_share_events() -> None:
    one = needed_events(_scenario(), [STRATEGY])
    both = needed_events(_scenario(), [STRATEGY, replace(STRATEGY, pp=8, dp=1, microbatches=1024)])
    assert len(both) < 2 * len(one)


def test_missing_events_are_those_no_table_holds() -> None:
    events = needed_events(_scenario(), [STRATEGY])
    known = next(iter(events))
    table = Table(sources=(Source(device="d"),), entries=(Entry(event=known, seconds=1.0),))
    assert set(events) - set(missing_events(events, [table])) == {known}


def test_the_saving_grows_with_the_number_of_gpus() -> None:
    found = savings(_scenario(), STRATEGY, sizes=(48, 64, 1024))
    assert [saving.gpus for saving in found] == [64, 1024]
    assert 0 < found[1].share < found[0].share < 0.13


def test_tables_of_a_scenario_come_before_the_formulas(tmp_path: Path) -> None:
    events = needed_events(_scenario(), [STRATEGY])
    event = next(e for e in events if isinstance(e, ComputeEvent) and e.op == "flash_attention")
    append(tmp_path / "t.json", Source(device="d"), [Entry(event=event, seconds=123.0)])
    pricer = make_pricer(replace(_scenario(), prices=(tmp_path / "t.json",)))
    assert pricer.prices.compute([event])[0] == pytest.approx(123.0)


def test_profile_lists_what_is_wanted(tmp_path: Path) -> None:
    arguments = [str(EXAMPLE), "-o", str(tmp_path / "w.json"), "--list", "--strategy", "tp=8,pp=4"]
    result = CliRunner().invoke(profile_command, arguments, standalone_mode=False)
    assert result.return_value == 0
    assert "unique events of tp8 pp4 dp2" in result.stderr
    assert "at 1024 GPUs" in result.stderr
    assert len(Table.load(tmp_path / "w.json").wanted) > 20


def test_import_turns_logs_traces_and_operator_tables_into_tables(tmp_path: Path) -> None:
    runner, table = CliRunner(), str(tmp_path / "t.json")
    logs = [str(DATA / name) for name in ("nccl_new.txt", "nccl_old.txt", "nccl_new.json")]
    traces = [str(DATA / "kineto_cpu.json")]
    for arguments in (["nccl-tests", *logs, "-o", table], ["kineto", *traces, "-o", table]):
        result = runner.invoke(import_command, arguments)
        assert result.exit_code == 0, result.output
    assert len(Table.load(table).sources) == 4
    csv = [str(ROOT / "profiles" / "operators.csv"), "--profile", "mist-v100", "--device", "v100"]
    result = runner.invoke(import_command, ["operators", *csv, "-o", str(tmp_path / "v.json")])
    assert result.exit_code == 0, result.output
    assert len(Table.load(tmp_path / "v.json").entries) > 200


def test_recompose_prints_a_line_a_plan() -> None:
    result = CliRunner().invoke(recompose_command, ["--json", "-"], standalone_mode=False)
    assert '"composition alone"' in result.output
