"""The examples run, and print what is stored beside them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_is_stored(path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    stored = ROOT / "examples" / "output" / f"{path.stem}.txt"
    assert run.stdout == stored.read_text(), "make examples stores the output anew"


def test_every_output_belongs_to_an_example() -> None:
    stored = {path.stem for path in (ROOT / "examples" / "output").iterdir()}
    assert stored == {path.stem for path in EXAMPLES}
    makefile = (ROOT / "Makefile").read_text()
    assert all(path.stem in makefile for path in EXAMPLES)
