"""Does it fit? A three-way answer, because allocated memory is sure and what the allocator holds back is not.

``fits``: everything the model knows of, with what the allocator is expected to hold back, stays under the limit; only
such a plan is offered. ``oom``: what is allocated at once, with half of the fragmentation, exceeds the device even after
the allocator gave back all it had cached. ``borderline``: in between; it may run, slower, or fail after a while.
"""

from collections.abc import Iterable
from typing import Literal

from costmodel.catalog import DRIVER_RESERVE_BYTES
from costmodel.memory import StageMemory
from costmodel.spec import DeviceSpec

Verdict = Literal["fits", "borderline", "oom"]

# Runs have lived with 94 % of the device allocated (fms-acceleration, Llama-3-8B on one A100) and died with 83 %
# (Megatron-Bridge's Nemotron on H100): half of the expected fragmentation separates the known ones best.
FRAGMENTATION_FLOOR = 0.5


def verdict(peaks: Iterable[StageMemory], limit_bytes: float, capacity_bytes: float) -> Verdict:
    """Return whether ranks with these ``peaks`` fit.

    Args:
        peaks: Peak of each pipeline rank.
        limit_bytes: What a plan may use.
        capacity_bytes: What a process can get from the device; at least ``limit_bytes``.
    """
    ranks = list(peaks)
    if all(rank.reserved_bytes <= limit_bytes for rank in ranks):
        return "fits"
    if any(least_bytes(rank) > capacity_bytes for rank in ranks):
        return "oom"
    return "borderline"


def least_bytes(peak: StageMemory) -> float:
    """Return what a rank needs when the allocator has given back everything cached."""
    loose = peak.terms.get("fragmentation", 0.0)
    return peak.allocated_bytes + FRAGMENTATION_FLOOR * loose + peak.terms.get("context", 0.0)


def device_verdict(peaks: Iterable[StageMemory], device: DeviceSpec) -> Verdict:
    """Return whether ranks with these ``peaks`` fit on ``device``, with its usable memory as the limit."""
    return verdict(peaks, device.usable_bytes, device_capacity(device))


def device_capacity(device: DeviceSpec) -> int:
    """Return the bytes that a process can get from ``device``."""
    return device.memory_bytes - DRIVER_RESERVE_BYTES
