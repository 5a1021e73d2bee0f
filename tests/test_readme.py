"""The README tells the truth: its output is real, its commands, options and links exist, and it is short."""

import re
from pathlib import Path

import click

from planner import cli
from tests.readme_parts import MIXED, README, ROOT, renewed, renewed_mixed, without_durations

TEXT = README.read_text()
LINES = [
    line.strip("$ ") for line in re.findall(r"(?:^\$ |`|^)(shardplan [^`\n]+)", TEXT, re.MULTILINE)
]


def options_of(words: list[str]) -> set[str]:
    """Return the options of the command that a line starts with."""
    context = click.Context(cli.cli)
    command = cli.cli.get_command(context, words[1])
    assert command is not None, words
    if isinstance(command, click.Group):
        inner = command.get_command(context, words[2])
        assert inner is not None, words
        command = inner
    return {name for parameter in command.params for name in parameter.opts}


def test_every_command_and_option_shown_exists() -> None:
    assert len(LINES) > 15
    for line in LINES:
        words = line.split("#")[0].split()
        shown = {word for word in words if re.match(r"--?[a-z]", word)}
        assert shown <= options_of(words), line


def test_every_command_is_shown() -> None:
    assert {line.split()[1] for line in LINES} == set(cli.COMMANDS) - {"recompose"}


def test_files_and_links_exist() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT) + re.findall(r"scenarios/[\w./-]+", TEXT)
    assert targets
    assert all((ROOT / target).exists() for target in targets)


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"\bmake ([a-z-]+)", TEXT)
    assert targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_printed_parts_are_what_is_printed() -> None:
    now = without_durations(renewed(TEXT))
    assert without_durations(TEXT) == now, "make examples writes them anew"


def test_the_answer_for_a_mixed_cluster_is_what_is_printed() -> None:
    text = MIXED.read_text()
    now = without_durations(renewed_mixed(text))
    assert without_durations(text) == now, "make examples writes it anew"


def test_the_readme_stays_short() -> None:
    assert len(TEXT.splitlines()) < 200
    assert not [path for path in docs() if str(path.relative_to(ROOT)) not in TEXT]


def docs() -> list[Path]:
    """Return the pages beside the README."""
    return sorted((ROOT / "docs").glob("*.md"))
