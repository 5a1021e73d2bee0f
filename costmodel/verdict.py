"""Does it fit? A three-way answer, because allocated memory is sure and reserved memory is not.

``fits``: everything the model knows of, with what the allocator is expected to hold back, stays under the limit; only
such a plan is offered. ``oom``: even the least credible need (allocated less its error band, half the context) exceeds
what the device has. ``borderline``: in between; the allocator can give back what it cached, at a price, or fail.
"""

from collections.abc import Iterable
from typing import Literal

from costmodel.memory import DEVICE_TERMS, StageMemory
from costmodel.spec import DeviceSpec

Verdict = Literal["fits", "borderline", "oom"]

# 90th percentile of the allocated error over the measured rows is 2 % where the framework's constants are known and
# 8 % on MoE and other stacks (tests/costmodel/test_measured_memory.py).
ALLOCATED_BAND = 0.05
CONTEXT_FLOOR = 0.5


def verdict(peaks: Iterable[StageMemory], limit_bytes: float, capacity_bytes: float) -> Verdict:
    """Return whether ranks with these ``peaks`` fit.

    Args:
        peaks: Peak of each pipeline rank.
        limit_bytes: What a plan may use.
        capacity_bytes: What the device has; at least ``limit_bytes``.
    """
    ranks = list(peaks)
    if all(rank.reserved_bytes <= limit_bytes for rank in ranks):
        return "fits"
    if any(least_bytes(rank) > capacity_bytes for rank in ranks):
        return "oom"
    return "borderline"


def least_bytes(peak: StageMemory) -> float:
    """Return the least a rank can need: allocated at the low end of its band, and half of the context."""
    context = sum(peak.terms.get(name, 0.0) for name in DEVICE_TERMS)
    return peak.allocated_bytes * (1 - ALLOCATED_BAND) + CONTEXT_FLOOR * context


def device_verdict(peaks: Iterable[StageMemory], device: DeviceSpec) -> Verdict:
    """Return whether ranks with these ``peaks`` fit on ``device``, with its usable memory as the limit."""
    return verdict(peaks, device.usable_bytes, device.memory_bytes)
