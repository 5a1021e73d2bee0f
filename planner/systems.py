"""Published systems as presets: each restricts the space to what that system does (filled by name)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.scenario import Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One published system.

    Attributes:
        title: Name for people.
        bounds: Decisions it fixes or limits.
        source: Where its rules are written.
    """

    title: str
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    source: str = ""


SYSTEMS: Mapping[str, System] = {
    "ddp": System(
        title="PyTorch DistributedDataParallel",
        bounds={name: Bound(allowed=(1,)) for name in ("tp", "pp", "cp", "ep", "etp", "vpp")}
        | {"zero": Bound(allowed=(0,))},
        source="Li et al., PyTorch Distributed, VLDB 2020 (arXiv 2006.15704)",
    ),
}
