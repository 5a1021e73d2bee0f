"""Writing files so that a reader sees either the old set or the new, never half of one."""

import os
from collections.abc import Mapping
from pathlib import Path

from costmodel.errors import InputError


def write_files(directory: Path, texts: Mapping[str, str | bytes]) -> tuple[Path, ...]:
    """Write ``texts`` by file name under ``directory``; shell scripts are made executable.

    Everything is written beside its place first and moved only when all of it stands.

    Raises:
        InputError: If the directory cannot be made or written.
    """
    partial: list[tuple[Path, Path]] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            final = directory / name
            beside = directory / f".{name}.{os.getpid()}.partial"
            partial.append((beside, final))
            beside.write_bytes(text if isinstance(text, bytes) else text.encode())
            beside.chmod(0o755 if name.endswith(".sh") else 0o644)
        for beside, final in partial:
            beside.replace(final)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(directory)) from error
    finally:
        for beside, _ in partial:
            beside.unlink(missing_ok=True)
    return tuple(final for _, final in partial)
