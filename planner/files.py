"""Writing files so that a reader sees either the old set or the new, never half of one."""

import os
from collections.abc import Mapping
from pathlib import Path

from costmodel.errors import InputError

Content = str | bytes


def write_files(directory: Path, texts: Mapping[str, Content]) -> tuple[Path, ...]:
    """Write ``texts`` by file name under ``directory``; see ``write_all``."""
    return write_all({directory / name: text for name, text in texts.items()})


def write_all(contents: Mapping[Path, Content]) -> tuple[Path, ...]:
    """Write every file, in whatever folders; shell scripts are made executable.

    Everything is written beside its place first and moved only when all of it stands. What exists and is no
    file or folder (a pipe, ``/dev/stdout``) is written to as it is.

    Raises:
        InputError: If a folder cannot be made or a file written; none is replaced then.
    """
    partial: list[tuple[Path, Path]] = []
    try:
        for final, content in contents.items():
            partial.append((final if _is_stream(final) else _beside(final), final))
            _write(*partial[-1], content)
        for beside, final in partial:
            beside.replace(final)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(final)) from error
    finally:
        for beside, final in partial:
            if beside != final:
                beside.unlink(missing_ok=True)
    return tuple(final for _, final in partial)


def check_writable(path: Path) -> None:
    """Refuse a path that ``write_all`` could not write, before any work is spent on its content.

    Raises:
        InputError: If the path is a folder, or no file can be made there.
    """
    if path.is_dir():
        raise InputError("cannot be written: it is a folder", file=str(path))
    existing = path if path.exists() else next(part for part in path.parents if part.exists())
    if existing != path and not existing.is_dir():
        raise InputError(f"cannot be written: {existing} is not a folder", file=str(path))
    folder = existing if existing.is_dir() or _is_stream(existing) else existing.parent
    if not os.access(folder, os.W_OK):
        raise InputError(f"cannot be written: no permission for {folder}", file=str(path))


def _is_stream(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _beside(final: Path) -> Path:
    final.parent.mkdir(parents=True, exist_ok=True)
    return final.with_name(f".{final.name}.{os.getpid()}.partial")


def _write(beside: Path, final: Path, content: Content) -> None:
    beside.write_bytes(content if isinstance(content, bytes) else content.encode())
    if final.name.endswith(".sh") and beside != final:
        mode = beside.stat().st_mode
        beside.chmod(mode | (mode & 0o444) >> 2)  # who may read it may run it
