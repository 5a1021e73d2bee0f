"""Unique events: the few distinct things an iteration of a thousand GPUs consists of.

An event is what gets one price: an operator with its local shapes, dtype and direction, or a collective with
its bytes, group and link class (DistSim, CF'23). Equal events are equal values, so a dict removes duplicates;
``key`` is the stable text under which tables store them.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from costmodel.errors import InputError

Direction = Literal["forward", "backward"]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeEvent:
    """A kernel on one device.

    Attributes:
        op: Operator kind as priced: "matmul", "grouped_matmul", "flash_attention", "standard_attention",
            "elementwise", "norm", "embedding", "cross_entropy", "optimizer", ..
        shape: Local sizes in the order the op defines, for example (M, N, K) of a matmul.
        dtype: Arithmetic type: "bf16", "fp16", "fp32", "tf32", "fp8".
        direction: Forward or backward; a matmul's two gradients are forward events of their own shapes.
    """

    op: str
    shape: tuple[int, ...]
    dtype: str
    direction: Direction = "forward"

    @property
    def key(self) -> str:
        """Stable text: ``matmul/4096x8192x8192/bf16/forward``."""
        sizes = "x".join(str(size) for size in self.shape)
        return f"{self.op}/{sizes}/{self.dtype}/{self.direction}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommEvent:
    """A collective or transfer over a group of ranks.

    Attributes:
        collective: What is exchanged; ``bytes`` is the largest buffer of one rank: all_reduce the tensor,
            all_gather the gathered output, reduce_scatter the input, all_to_all one rank's input,
            send_recv the message.
        bytes: Size of that buffer.
        group_size: Ranks in the group.
        per_node: How many of them share a node (a rank's node holds ``per_node`` ranks of the group).
        level: Index of the outermost link level the group crosses (LinkLevel order, nearest first).
    """

    collective: Collective
    bytes: int
    group_size: int
    per_node: int
    level: int

    @property
    def key(self) -> str:
        """Stable text: ``all_reduce/67108864B/8ranks/8pernode/level0``."""
        return f"{self.collective}/{self.bytes}B/{self.group_size}ranks/{self.per_node}pernode/level{self.level}"


Event = ComputeEvent | CommEvent

_COMM_KEY = re.compile(r"^(\w+)/(\d+)B/(\d+)ranks/(\d+)pernode/level(\d+)$")
_COMPUTE_KEY = re.compile(r"^([\w.\-]+)/(\d+(?:x\d+)*)/(\w+)/(\w+)$")


def parse_event(key: str) -> Event:
    """Return the event whose ``key`` is given.

    Raises:
        InputError: If the text is the key of no event.
    """
    if match := _COMM_KEY.match(key):
        name, *sizes = match.groups()
        return CommEvent(
            collective=_one_of(name, get_args(Collective), key),
            **dict(zip(_COMM_SIZES, map(int, sizes), strict=True)),
        )
    if match := _COMPUTE_KEY.match(key):
        op, shape, dtype, direction = match.groups()
        return ComputeEvent(
            op=op,
            shape=tuple(map(int, shape.split("x"))),
            dtype=dtype,
            direction=_one_of(direction, get_args(Direction), key),
        )
    raise InputError("must be the key of an event", key="event", value=key, nearest=_EXAMPLES)


_COMM_SIZES = ("bytes", "group_size", "per_node", "level")
_EXAMPLES = ("matmul/4096x8192x8192/bf16/forward", "all_reduce/1048576B/8ranks/8pernode/level0")


def _one_of(name: str, names: tuple[str, ...], key: str) -> Any:
    if name not in names:
        raise InputError(f"must name one of {', '.join(names)}", key="event", value=key)
    return name
