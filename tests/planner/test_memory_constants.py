"""The fitted memory constants carry over: refitted without a fifth of the groups, they predict that fifth as well."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from costmodel.memory import MemoryModel, stage_memory
from planner.accuracy.memory import held
from planner.accuracy.runs import Run, read_rows, read_runs

DATA = Path(__file__).parent.parent / "data" / "measured_memory.csv"
SCALES = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5)
FITTED = ("fragmentation", "cached", "context")
GRID = np.array(list(product(SCALES, repeat=len(FITTED))))


def predictions(run: Run) -> NDArray[np.float64]:
    """Return reserved bytes over the measured ones, for every scaling of the fitted terms."""
    moments = MemoryModel(run.graph, run.cluster, run.training).moments(run.strategy)
    inside = run.training.framework in ("torchtitan", "megatron")
    rows = []
    for chunks in held(run):
        for moment in moments:
            terms = stage_memory((moment,), chunks).terms
            loose = [terms.get(name, 0.0) for name in FITTED]
            rest = sum(terms.values()) - sum(loose)
            if inside:
                loose[2] = 0.0
            rows.append(rest + GRID @ np.array(loose))
    assert run.reserved_bytes is not None
    capped = np.minimum(np.max(rows, axis=0), run.cluster.device.memory_bytes)
    result: NDArray[np.float64] = capped / run.reserved_bytes
    return result


def left_out_errors(runs: list[Run]) -> list[float]:
    """Return the errors of each fifth under the scales that fit the other four best."""
    groups = sorted({run.group for run in runs})
    fold = np.array([groups.index(run.group) % 5 for run in runs])
    errors = np.abs(np.array([predictions(run) for run in runs]) - 1)
    found: list[float] = []
    for number in range(5):
        if (fold == number).any() and (fold != number).any():
            best = int(np.argmin(errors[fold != number].mean(axis=0)))
            found += list(errors[fold == number][:, best])
    return found


@pytest.mark.parametrize(
    ("family", "limit"),
    [("megatron", 3.0), ("megatron-deepspeed", 9.0), ("hf-trainer", 6.5), ("torchtitan", 4.0)],
)
def test_constants_refitted_on_four_fifths_predict_the_fifth(family: str, limit: float) -> None:
    runs, _ = read_runs(read_rows([DATA]))
    ours = [run for run in runs if run.training.framework == family and run.reserved_bytes]
    assert np.median(left_out_errors(ours)) * 100 < limit
