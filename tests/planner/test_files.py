"""Tests of writing sets of files."""

import os
from pathlib import Path

import pytest

from costmodel.errors import InputError
from planner.files import check_writable, write_all, write_files


def test_files_are_written_with_their_modes(tmp_path: Path) -> None:
    paths = write_files(tmp_path / "new" / "folder", {"run.sh": "x", "a.bin": b"\x00"})
    assert [path.read_bytes() for path in paths] == [b"x", b"\x00"]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o755, 0o644]


def test_a_set_that_cannot_be_finished_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("old")
    with pytest.raises(InputError, match="cannot be written"):
        write_files(tmp_path, {"a.txt": "1", "blocked/b.txt": "2"})
    assert [path.name for path in tmp_path.iterdir()] == ["blocked"]


def test_files_of_different_folders_are_one_set(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("old")
    with pytest.raises(InputError, match="blocked"):
        write_all({tmp_path / "one" / "a.txt": "1", tmp_path / "blocked" / "b.txt": "2"})
    assert not list(tmp_path.rglob("a.txt"))
    write_all({tmp_path / "one" / "a.txt": "1", tmp_path / "two" / "b.txt": "2"})
    assert sorted(path.name for path in tmp_path.rglob("*.txt")) == ["a.txt", "b.txt"]


def test_old_files_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    write_files(tmp_path, {"a.txt": "new"})
    assert (tmp_path / "a.txt").read_text() == "new"


def test_streams_are_written_in_place() -> None:
    write_all({Path(os.devnull): "x"})
    assert not Path(os.devnull).is_file()


def test_paths_that_cannot_be_written_are_refused_beforehand(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    for path in (tmp_path, tmp_path / "file" / "below.txt"):
        with pytest.raises(InputError, match="cannot be written"):
            check_writable(path)
    check_writable(tmp_path / "new" / "folder" / "a.txt")
    check_writable(tmp_path / "file")
    check_writable(Path(os.devnull))
