"""The direction of imports and the rooms of heavy packages, read from the source."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("planner", "costmodel", "profiler")
FORBIDDEN = {
    "costmodel": {"planner", "profiler", "torch", "ortools"},
    "planner": {"profiler"},
    "profiler": {"planner", "ortools"},
}
ROOMS = {
    "torch": ("profiler/", "planner/tracing"),
    "ortools": ("planner/solver/", "planner/pool/solver"),
    "yaml": ("costmodel/load.py",),
}


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way_and_stay_in_their_rooms(path: Path) -> None:
    relative = str(path.relative_to(ROOT))
    tops = {name.split(".")[0] for name in imported(path)}
    assert not tops & FORBIDDEN[relative.split("/")[0]]
    for package, rooms in ROOMS.items():
        if package in tops:
            assert relative.startswith(rooms), f"{package} has its own room: {rooms}"


def test_no_module_imports_itself_through_others() -> None:
    modules = {str(p.relative_to(ROOT))[:-3].replace("/", "."): imported(p) for p in sources()}
    modules = {name.removesuffix(".__init__"): uses for name, uses in modules.items()}
    left = {name: uses & set(modules) - {name} for name, uses in modules.items()}
    while left:
        free = {name for name, uses in left.items() if not uses & set(left)}
        assert free, f"import loop among {sorted(left)}"
        left = {name: uses for name, uses in left.items() if name not in free}


def test_the_command_line_starts_without_heavy_packages() -> None:
    heavy = "ortools pandas torch plotly pydantic rich networkx numpy yaml"
    code = f"import sys, planner.cli; print([m for m in '{heavy}'.split() if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.strip() == "[]", run.stderr
