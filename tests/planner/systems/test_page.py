"""Every command of the page "Which parallelism?" runs, and its system table is complete."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import cli
from planner.systems import SYSTEMS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "which-parallelism.md").read_text()
COMMANDS = [
    line for line in PAGE.splitlines() if line.startswith("shardplan ") and "my.yaml" not in line
]


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_answers(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    arguments = shlex.split(line.replace("grid.json", str(tmp_path / "grid.json")))[1:]
    if "--scaling" in arguments:
        arguments += ["--gpus", "1,8"]
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert result.return_value == 0, result.output
    assert result.output


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_page_names_every_system(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_pictures_of_the_page_exist() -> None:
    assert (ROOT / "docs" / "pictures" / "gpt2-medium-thetagpu.svg").is_file()


@pytest.mark.parametrize("name", ["survey", "partitions", "distsim"])
def test_the_page_has_a_place_for_each_table_of_the_benchmark(name: str) -> None:
    _, marker, rest = PAGE.partition(f"<!-- table: {name} -->\n")
    assert marker
    assert rest.startswith("| ")
    assert "\n<!-- end -->" in rest
