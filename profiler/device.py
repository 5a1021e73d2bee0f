"""The machine that measures: its accelerator or processor, and the provenance that its numbers carry."""

import datetime as dt
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from costmodel.table import Source
from costmodel.units import KIB, MIB

_CPU_INFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNKNOWN_CACHE = 32 * MIB
_LIMITS = {"clocks.max.sm": "SM clock up to", "power.limit": "power limit"}
"""What is asked of nvidia-smi, and how a table's note calls it."""
# Largest group that is measured rather than scaled: DistSim (CF'23, section 4.2) finds the law of larger ones safe.
LARGEST_GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What measures.

    Attributes:
        kind: "cuda" or "cpu".
        name: Of the accelerator or processor.
        driver: Version of the driver, empty on a CPU.
        cache_bytes: Last-level cache, which inputs have to exceed to be read from memory.
        ranks: Largest group that can be measured here.
        limits: Highest clock and power limit of the GPU, which its times depend on; empty if unknown.
    """

    kind: Literal["cuda", "cpu"]
    name: str
    driver: str
    cache_bytes: int
    ranks: int
    limits: str = ""

    def source(self, note: str) -> Source:
        """Return the provenance of what is measured now."""
        libraries = {"torch": torch.__version__, "python": platform.python_version()}
        if self.kind == "cuda":
            libraries["cuda"] = str(torch.version.cuda)
            libraries["nccl"] = ".".join(map(str, _nccl_version()))
        return Source(
            device=self.name,
            driver=self.driver,
            libraries=libraries,
            date=dt.datetime.now(tz=dt.UTC).date().isoformat(),
            origin="shardplan profile",
            note="; ".join(filter(None, (note, self.limits))),
        )


def machine(ranks: int | None = None) -> Machine:
    """Return the machine at hand; ``ranks`` limits the groups, by default to its GPUs or processors."""
    if torch.cuda.is_available():
        return _cuda(ranks)
    return Machine(
        kind="cpu",
        name=_processor(),
        driver="",
        cache_bytes=_last_level_cache(),
        ranks=min(ranks or os.cpu_count() or 1, LARGEST_GROUP),
    )


def _cuda(ranks: int | None) -> Machine:
    properties = torch.cuda.get_device_properties(0)
    return Machine(
        kind="cuda",
        name=properties.name,
        driver=_driver(),
        cache_bytes=int(properties.L2_cache_size),
        ranks=min(ranks or torch.cuda.device_count(), torch.cuda.device_count(), LARGEST_GROUP),
        limits=_limits(),
    )


def _limits() -> str:
    """Return what nvidia-smi says of the first GPU's clocks and power, empty where it is not there."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    query = [tool, "--id=0", f"--query-gpu={','.join(_LIMITS)}", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)  # noqa: S603 (looked up in PATH)
    return limits_of(done.stdout) if done.returncode == 0 else ""


def limits_of(line: str) -> str:
    """Return a line of nvidia-smi with the names of its values; what the GPU does not tell is left out."""
    values = [value.strip() for value in line.strip().split(",")]
    pairs = zip(_LIMITS.values(), values, strict=False)
    return ", ".join(f"{name} {value}" for name, value in pairs if value[:1].isdigit())


def _nccl_version() -> tuple[int, ...]:
    version: tuple[int, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return version


def _driver() -> str:
    version = Path("/proc/driver/nvidia/version")
    text = version.read_text() if version.exists() else ""
    found = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", text)
    return found[0] if found else ""


def _processor() -> str:
    text = _CPU_INFO.read_text() if _CPU_INFO.exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return f"{found[1].strip() if found else platform.machine()}, {os.cpu_count()} processors"


def _last_level_cache() -> int:
    sizes = [_kibibytes(path.read_text()) for path in _CACHES.glob("index*/size")]
    return max(sizes, default=_UNKNOWN_CACHE // KIB) * KIB


def _kibibytes(text: str) -> int:
    found = re.match(r"(\d+)([KM])", text)
    return int(found[1]) * (1024 if found[2] == "M" else 1) if found else 0
