"""``python -m planner.accuracy.refit``: fit the shipped constants, cross-validate them, write bands and tables.

Run from the root of the source tree; ``--validate`` takes some minutes. Writes ``costmodel/fitted.json`` and, with
``--validate``, ``planner/bands.json`` and the table of cross-validated statistics.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from costmodel.constants import BY_NAME
from costmodel.frameworks import framework
from planner.accuracy.fit import TieredFit, leading, tiered_fit
from planner.accuracy.predict import Prediction
from planner.accuracy.runs import Run, read_rows, read_runs
from planner.accuracy.summary import accuracy_of
from planner.accuracy.text import accuracy_to_text
from planner.accuracy.validation import after_runs, fold_of, held_out, trained
from planner.bands import kinds

ROOT = Path(__file__).resolve().parent.parent.parent
RUNS = ROOT / "scenarios" / "measured" / "runs.csv"
FITTED = ROOT / "costmodel" / "fitted.json"
BANDS = ROOT / "planner" / "bands.json"
TABLE = ROOT / "scenarios" / "measured" / "cross-validated.txt"
COMMAND = "python -m planner.accuracy.refit"
CALIBRATION_RUNS = 3
LEAST_RUNS = 20  # kinds of fewer runs take the band of the wider kind
_LOW, _HIGH = 0.10, 0.90


def main(arguments: Sequence[str]) -> None:
    """Fit, write, and with ``--validate`` cross-validate."""
    runs, _ = read_runs(read_rows([RUNS]))
    timed = [run for run in runs if run.iteration_s]
    found = tiered_fit(timed)
    values = {name: found.values[name] for name in BY_NAME if name in found.values}
    spreads = {name: round(found.deviation[name], 4) for name in values}
    data = {"command": COMMAND, "runs": len(timed), "values": values, "deviations": spreads}
    FITTED.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if "--validate" in arguments:
        validate(timed, found)


def validate(runs: Sequence[Run], whole: TieredFit) -> None:
    """Cross-validate by group and by source, write bands and tables."""
    folds, sources = [fold_of(run) for run in runs], [run.source for run in runs]
    by_fold = held_out(runs, folds, trained(runs, folds, whole, evaluations=0))
    fits = trained(runs, sources, whole, evaluations=1)
    by_source = held_out(runs, sources, fits)
    calibrated = after_runs(fits, runs, CALIBRATION_RUNS)
    bands = _bands(_telling(by_fold), by_source, _telling(calibrated))
    devices = sorted({run.cluster.device.name for run in runs if run.tier == "core"})
    BANDS.write_text(
        json.dumps({"command": f"{COMMAND} --validate", "devices": devices, "bands": bands}, indent=1) + "\n",
        encoding="utf-8",
    )  # fmt: skip
    parts = [
        ("5 folds by group", by_fold),
        ("source left out", by_source),
        ("source left out, after 3 runs of it", calibrated),
    ]
    sections = [_section(title, items) for title, items in parts]
    coverage = f"## Coverage of the bands\n\n{_coverage(_telling(by_fold), by_source)}\n"
    TABLE.write_text("\n".join([*sections, coverage]), encoding="utf-8")


def _section(title: str, predictions: Sequence[Prediction]) -> str:
    texts = []
    for tier in ("core", "extra"):
        text = accuracy_to_text(accuracy_of([p for p in predictions if p.run.tier == tier]))
        texts.append(f"## {title}, tier {tier}\n\n{text}")
    return "\n".join(texts)


def _bands(
    known: Sequence[Prediction], new: Sequence[Prediction], calibrated: Sequence[Prediction]
) -> dict[str, list[float]]:
    """Return quantiles of measured over predicted by kind."""
    ratios: dict[str, list[float]] = {"any": [_ratio(item) for item in new]}
    for state, predictions in (("known", known), ("new", new), ("calibrated", calibrated)):
        for item in predictions:
            if state == "known" and not framework(item.run.training.framework).known:
                continue
            for kind in kinds(item.run.graph, item.run.training, item.run.cluster, state=state):
                ratios.setdefault(kind, []).append(_ratio(item))
    return {
        kind: [round(float(np.quantile(values, level)), 3) for level in (_LOW, _HIGH)]
        for kind, values in sorted(ratios.items())
        if len(values) >= LEAST_RUNS
    }


def _telling(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return the predictions whose errors say something of the model.

    Of dense 16-bit runs the extra tier holds those of shared, noisy machines and of models beyond it (unpadded BERT).
    What is new may be all of that, so bands of new kinds are made from all runs.
    """
    return [
        item
        for item in predictions
        if leading(item.run)
        or item.run.training.precision not in ("bf16", "fp16")
        or any(operator.experts for layer in item.run.graph.kinds for operator in layer.operators)
    ]


def _coverage(known: Sequence[Prediction], new: Sequence[Prediction]) -> str:
    """Return how many core runs stand in bands made without their own fold, or without their own source."""
    lines = []
    for state, items, part in (
        ("known", known, lambda item: fold_of(item.run)),
        ("new", new, lambda item: item.run.source),
    ):
        inside = [_inside(item, state, items, part) for item in items if item.run.tier == "core"]
        lines.append(
            f"{state}: {np.mean(inside):.1%} of {len(inside)} core runs in the 80 % band of the others"
        )
    return "\n".join(lines)


def _inside(
    item: Prediction, state: str, items: Sequence[Prediction], part: Callable[[Prediction], object]
) -> bool:
    for kind in kinds(item.run.graph, item.run.training, item.run.cluster, state=state):
        ratios = [
            _ratio(other)
            for other in items
            if part(other) != part(item)
            and kind in kinds(other.run.graph, other.run.training, other.run.cluster, state=state)
        ]
        if len(ratios) >= LEAST_RUNS:
            low, high = np.quantile(ratios, [_LOW, _HIGH])
            return bool(low <= _ratio(item) <= high)
    return False


def _ratio(item: Prediction) -> float:
    return (item.run.iteration_s or item.iteration_s) / item.iteration_s


if __name__ == "__main__":
    main(sys.argv[1:])
