"""Calibration: known constants are found again, nonsense is refused, files round-trip."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from costmodel.calibration import read_calibration, write_calibration
from costmodel.constants import fitted
from costmodel.errors import InputError
from planner.accuracy.predict import predict_runs
from planner.accuracy.refit import RUNS
from planner.accuracy.report import calibrated_predictions
from planner.accuracy.runs import Run, read_rows, read_runs
from planner.accuracy.summary import accuracy_of, accuracy_to_json
from planner.calibrate import calibrate_runs, spreads
from planner.commands.accuracy import command as accuracy_command
from planner.commands.calibrate import command as calibrate_command


def runs_of(source: str, count: int) -> list[Run]:
    found, _ = read_runs(read_rows([RUNS]), "core")
    return [run for run in found if run.source == source][:count]


def remeasured(runs: list[Run], changes: dict[str, float]) -> list[Run]:
    """Return the runs as a cluster with other constants would have measured them."""
    return [
        replace(item.run, iteration_s=item.iteration_s)
        for item in predict_runs(runs, calibration=changes)
    ]


def test_runs_that_fit_the_shipped_constants_change_nothing() -> None:
    calibration = calibrate_runs(remeasured(runs_of("llm_foundry", 3), {}))
    assert all(item.after == pytest.approx(item.before, rel=0.01) for item in calibration.changes)


def test_a_slower_card_is_found_from_three_runs() -> None:
    name = "matmul.ceiling.hopper"
    slower = {name: fitted()[name] * 0.8}
    runs = remeasured(runs_of("llm_foundry", 40)[::9], slower)
    used = [run for run in runs if run.cluster.device.name == "h100-sxm"][:3]
    calibration = calibrate_runs(used)
    assert calibration.values[name] < 0.9 * fitted()[name]
    assert calibration.error_after < calibration.error_before / 2


def test_no_calibration_moves_a_constant_without_evidence() -> None:
    calibration = calibrate_runs(runs_of("llm_foundry", 3))
    assert not any("omnipath" in item.name or "volta" in item.name for item in calibration.changes)
    assert all(item.deviation <= spreads()[item.name] + 1e-9 for item in calibration.changes)


def test_nonsense_runs_are_refused_by_name() -> None:
    good, bad = runs_of("llm_foundry", 2)
    calibration = calibrate_runs([good, replace(bad, iteration_s=1e-3)])
    assert list(calibration.refused) == [bad.id]
    with pytest.raises(InputError, match="no run to calibrate to"):
        calibrate_runs([replace(good, iteration_s=1e9)])


def test_a_calibration_file_reads_back_what_was_written(tmp_path: Path) -> None:
    calibration = calibrate_runs(runs_of("torchtitan", 3))
    path = tmp_path / "cal.yaml"
    path.write_text(write_calibration(calibration))
    assert read_calibration(path) == pytest.approx(calibration.values)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("calibration: 2\nconstants: {}\n", "must be a calibration file"),
        ("calibration: 1\nconstants: {warp: 1.0}\n", "must name a constant"),
        ("calibration: 1\nconstants: {kernel.gap: -1.0}\n", "must be positive"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(tmp_path: Path, text: str, rule: str) -> None:
    path = tmp_path / "cal.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=rule):
        read_calibration(path)


def test_calibrating_predicts_only_runs_that_were_not_used() -> None:
    runs = runs_of("torchtitan", 6)
    predictions = list(calibrated_predictions(runs, 3))
    assert len(predictions) == 5 * 3
    assert not list(calibrated_predictions(runs[:4], 3))


def test_the_json_has_the_documented_keys() -> None:
    data = accuracy_to_json(accuracy_of(predict_runs(runs_of("vtrain_ground_truth", 30))))
    assert {"all", "sources", "unpredicted"} <= set(data)
    assert {
        "runs", "median_abs_error", "mean_abs_error", "p90_abs_error", "bias", "kendall_tau", "regret",
        "allocated_median_abs_error", "reserved_median_abs_error",
    } <= set(data["all"])  # fmt: skip
    assert data["all"] == data["sources"]["vtrain_ground_truth"]


def few_rows(tmp_path: Path) -> Path:
    lines = RUNS.read_text(encoding="utf-8").splitlines()
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([lines[0], *lines[60:70]]) + "\n")
    return path


def test_the_accuracy_command_prints_a_table_and_writes_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    result = CliRunner().invoke(
        accuracy_command, [str(few_rows(tmp_path)), "--report", str(report)]
    )
    assert result.exit_code == 0
    assert "median" in result.output
    assert "<svg" in report.read_text()


def test_the_calibrate_command_says_what_each_constant_became(tmp_path: Path) -> None:
    output = tmp_path / "cal.yaml"
    result = CliRunner().invoke(calibrate_command, [str(few_rows(tmp_path)), "-o", str(output)])
    assert result.exit_code == 0
    assert "median error" in result.output
    assert read_calibration(output)
