"""Event -> seconds with provenance: measured tables first, formulas for the rest, each event priced once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from costmodel.communication import comm_seconds
from costmodel.compute import ComputePricer
from costmodel.constants import Constants
from costmodel.events import CommEvent, ComputeEvent, Event
from costmodel.frameworks import Framework
from costmodel.lanes import has_lanes
from costmodel.spec import ClusterSpec


class PriceTable(Protocol):
    """Measured prices of events."""

    def lookup(self, event: Event) -> tuple[float, str] | None:
        """Return seconds and provenance ("measured", "interpolated"), or None if it does not know."""


class EventPrices:
    """Prices of the events of one device, cluster and framework.

    Args:
        cluster: Its first group's device and link levels count.
        framework: Fusion and kernel generations.
        constants: The constants of the model.
        tables: Measured tables, asked in order before any formula.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        framework: Framework,
        constants: Constants,
        tables: Sequence[PriceTable] = (),
    ) -> None:
        self._cluster, self._constants, self.tables = cluster, constants, tuple(tables)
        self._compute = ComputePricer(cluster.device, framework, constants)
        self._seconds: dict[Event, float] = {}
        self.provenance: dict[Event, str] = {}

    def compute(self, events: Sequence[ComputeEvent]) -> list[float]:
        """Return the seconds of each event, priced together; events with lanes are not remembered."""
        if any(has_lanes(size) for event in events for size in event.shape):
            if self.tables:
                return [self._distinct(event) for event in events]
            return self._compute.seconds(events)
        missing = [event for event in dict.fromkeys(events) if not self._known(event)]
        for event, seconds in zip(missing, self._compute.seconds(missing), strict=True):
            self._keep(event, seconds, "analytic")
        return [self._seconds[event] for event in events]

    def _distinct(self, event: ComputeEvent) -> float:
        """Look each distinct shape of an event with lanes up in the tables."""
        distinct, lanes = _distinct_rows(event.shape)
        each = [replace(event, shape=sizes) for sizes in distinct]
        return cast("float", np.array(self.compute(each))[lanes])

    def comm(self, event: CommEvent) -> float:
        """Return the seconds of a collective when nothing else runs beside it; lanes as in ``compute``."""
        sizes = (event.bytes, event.group_size, event.per_node, event.level)
        if any(map(has_lanes, sizes)):
            if not self.tables:
                return comm_seconds(event, self._cluster, self._constants)
            distinct, lanes = _distinct_rows(sizes)
            each = [
                CommEvent(
                    collective=event.collective,
                    bytes=size,
                    group_size=ranks,
                    per_node=per_node,
                    level=level,
                )
                for size, ranks, per_node, level in distinct
            ]
            return cast("float", np.array([self.comm(item) for item in each])[lanes])
        if not self._known(event):
            self._keep(event, comm_seconds(event, self._cluster, self._constants), "analytic")
        return self._seconds[event]

    @property
    def priced(self) -> Mapping[Event, float]:
        """Seconds of every event priced so far."""
        return MappingProxyType(self._seconds)

    def _keep(self, event: Event, seconds: float, provenance: str) -> None:
        self._seconds[event], self.provenance[event] = seconds, provenance

    def _known(self, event: Event) -> bool:
        if event in self._seconds:
            return True
        for table in self.tables:
            if found := table.lookup(event):
                self._keep(event, *found)
                return True
        return False


def _distinct_rows(sizes: Sequence[int]) -> tuple[list[tuple[int, ...]], NDArray[np.intp]]:
    """Return the distinct rows of sizes with lanes, and which of them each lane is."""
    rows = np.stack(np.broadcast_arrays(*sizes), axis=-1).reshape(-1, len(sizes))
    distinct, lanes = np.unique(rows, axis=0, return_inverse=True)
    return [tuple(row) for row in distinct.tolist()], lanes.reshape(-1)
