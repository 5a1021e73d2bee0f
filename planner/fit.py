"""Whether a given plan fits its GPUs: yes, no, or only if the allocator gives back what it cached."""

from costmodel.memory import StageMemory
from costmodel.spec import DeviceSpec
from costmodel.verdict import Verdict, device_capacity, verdict
from planner.plans import Plan


def plan_verdict(plan: Plan, device: DeviceSpec) -> Verdict:
    """Return whether ``plan`` fits; a limit set below the device's usable memory is also its capacity."""
    if plan.fits:
        return "fits"
    peaks = [
        StageMemory(
            stage.memory_bytes, stage.allocated_bytes, stage.peak_moment, dict(stage.memory)
        )
        for stage in plan.stages
    ]
    limit = plan.memory_limit_bytes
    capacity = limit if limit < device.usable_bytes else max(limit, device_capacity(device))
    found = verdict(peaks, limit, capacity)
    return "borderline" if found == "fits" else found
