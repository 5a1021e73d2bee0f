"""The wheel holds all that the command needs, and works from elsewhere."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("planner", "costmodel", "profiler", "scenarios")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the tree, without network, and unpack it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", str(source), "--wheel-dir", str(folder)]
    command += ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(next(folder.glob("shardplan-*.whl"))) as wheel:
        wheel.extractall(folder / "unpacked")
    return folder / "unpacked"


def shipped(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for package in PACKAGES
        for path in (folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_every_file_of_the_packages_is_in_the_wheel(unpacked: Path) -> None:
    assert shipped(ROOT) - shipped(unpacked) == set()
    assert {
        "planner/py.typed",
        "planner/report/page.css",
        "scenarios/models/llama.yaml",
    } <= shipped(unpacked)


def test_the_wheel_plans_from_anywhere(unpacked: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "model: llama-3.2-1b\ncluster: {name: 4xrtx-4090, gpus: 2}\ntraining: {global_batch: 4}\n"
    )
    code = "from planner import plan, __file__ as home; print(home); print(plan('mine.yaml', top=1).best.fits)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
    )
    assert run.stderr == ""
    assert run.stdout.split() == [str(unpacked / "planner" / "__init__.py"), "True"]


def test_the_command_says_its_version_and_completes_in_the_shell(unpacked: Path) -> None:
    code = "from planner.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    command = [sys.executable, "-c", code]
    version = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, env=environment
    )
    assert version.stdout.startswith("shardplan, version ")
    environment |= {
        "_SHARDPLAN_COMPLETE": "bash_complete",
        "COMP_WORDS": "shardplan wh",
        "COMP_CWORD": "1",
    }
    completed = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert completed.stdout.split() == ["plain,whatif"]
