"""Whether a given plan fits its GPUs: yes, no, or only if the allocator gives back what it cached."""

from collections.abc import Sequence

from costmodel.memory import StageMemory
from costmodel.spec import ClusterSpec, DeviceSpec
from costmodel.verdict import Verdict, device_capacity, verdict
from planner.plans import Plan, StageReport


def plan_verdict(plan: Plan, device: DeviceSpec) -> Verdict:
    """Return whether ``plan`` fits; a limit set below the device's usable memory is also its capacity."""
    if plan.fits:
        return "fits"
    return _verdict(plan.stages, plan.memory_limit_bytes, device)


def assigned_verdict(plan: Plan, cluster: ClusterSpec) -> Verdict:
    """Return whether ``plan``, whose ranks are assigned to device groups, fits: the worst verdict of its ranks."""
    groups = plan.placement.device_groups
    found = {
        _verdict((stage,), stage.memory_limit_bytes, cluster.groups[group].device)
        for stage, group in zip(plan.stages, groups, strict=True)
        if stage.memory_bytes > stage.memory_limit_bytes
    }
    return "oom" if "oom" in found else "borderline" if found else "fits"


def _verdict(stages: Sequence[StageReport], limit: float, device: DeviceSpec) -> Verdict:
    peaks = [
        StageMemory(
            stage.memory_bytes, stage.allocated_bytes, stage.peak_moment, dict(stage.memory)
        )
        for stage in stages
    ]
    capacity = limit if limit < device.usable_bytes else max(limit, device_capacity(device))
    found = verdict(peaks, limit, capacity)
    return "borderline" if found == "fits" else found
