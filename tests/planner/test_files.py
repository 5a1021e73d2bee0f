"""Tests of writing sets of files."""

from pathlib import Path

import pytest

from costmodel.errors import InputError
from planner.files import write_files


def test_files_are_written_with_their_modes(tmp_path: Path) -> None:
    paths = write_files(tmp_path / "new" / "folder", {"run.sh": "x", "a.bin": b"\x00"})
    assert [path.read_bytes() for path in paths] == [b"x", b"\x00"]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o755, 0o644]


def test_a_set_that_cannot_be_finished_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_files(tmp_path, {"a.txt": "1", "missing/b.txt": "2"})
    assert [path.name for path in tmp_path.iterdir()] == ["sub"]


def test_old_files_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    write_files(tmp_path, {"a.txt": "new"})
    assert (tmp_path / "a.txt").read_text() == "new"
