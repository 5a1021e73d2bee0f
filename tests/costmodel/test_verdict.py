"""The three answers to "does it fit", each with the smallest case and its twin."""

import pytest

from costmodel import catalog
from costmodel.memory import StageMemory
from costmodel.verdict import Verdict, device_verdict, verdict


def peak(allocated: float, fragmentation: float = 0.0, cached: float = 0.0) -> StageMemory:
    """A rank that allocates, loses to fragmentation, caches, and has a context of 1."""
    terms = {"fragmentation": fragmentation, "cached": cached, "context": 1.0}
    return StageMemory(allocated + fragmentation + cached + 1, allocated, "loss", terms)


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        (peak(8), "fits"),
        (peak(8.01), "borderline"),
        (peak(9), "borderline"),
        (peak(9.01), "oom"),
        (peak(5, cached=3), "fits"),
        (peak(5, cached=30), "borderline"),
        (peak(5, fragmentation=8), "borderline"),
        (peak(5, fragmentation=8.1), "oom"),
    ],
)
def test_limit_9_and_capacity_10(rank: StageMemory, expected: Verdict) -> None:
    assert verdict([rank], 9.0, 10.0) == expected


def test_the_worst_rank_decides() -> None:
    assert verdict([peak(1), peak(8.5)], 9.0, 10.0) == "borderline"
    assert verdict([peak(1), peak(20)], 9.0, 10.0) == "oom"


def test_a_device_keeps_some_memory_back() -> None:
    device = catalog.device("a100-sxm-80gb")
    rank = StageMemory(device.memory_bytes - 1.0, device.memory_bytes - 2.0, "loss", {})
    assert device_verdict([rank], device) == "oom"
    assert device_verdict([rank._replace(reserved_bytes=1.0)], device) == "fits"
