"""SageMaker's partition of a module tree: the greedy heuristic that this planner's placement is compared with.

Karakus et al., "Amazon SageMaker Model Parallelism" (arXiv 2111.05972), section 4.2: costs normalised by the whole
model, consecutive children grouped so that the largest group is smallest, devices given out by D'Hondt's method,
breadth first. It knows neither a memory limit nor what boundaries transfer, and may return to a device it has left.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.module_tree import Module
from planner.segments import min_max_segments, segment_costs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """Modules that are placed together: one, or several that share parameters."""

    modules: tuple[Module, ...]

    @property
    def parts(self) -> tuple[Module, ...]:
        """The modules one level below, in order of execution."""
        return tuple(part for module in self.modules for part in module.children or (module,))


def partition(root: Module, devices: int, memory_weight: float) -> dict[str, int]:
    """Return the device of each leaf, by its name.

    Args:
        root: The model.
        devices: Pipeline ranks.
        memory_weight: Weight of memory against compute: 0 is time alone, 1 memory alone.
    """
    placed: dict[str, int] = {}
    waiting = deque([(_Node(modules=(root,)), tuple(range(devices)))])
    while waiting:
        node, given = waiting.popleft()
        leaves = [leaf for module in node.modules for leaf in module.leaves()]
        if len(given) == 1 or len(leaves) == len(node.modules):
            placed |= {leaf.name: given[0] for leaf in leaves}
            continue
        children = _joined(node.parts)
        costs = [_cost(child, root, memory_weight) for child in children]
        waiting.extend(_assigned(children, costs, given))
    return placed


def _joined(modules: Sequence[Module]) -> list[_Node]:
    """Return nodes in order of execution; modules that share a parameter become one, where the first stands."""
    groups: list[tuple[list[Module], set[str]]] = []
    for module in modules:
        names = set(module.parameters())
        touching = [group for group in groups if group[1] & names]
        if not touching:
            groups.append(([module], names))
            continue
        first = touching[0]
        for group in touching[1:]:
            first[0].extend(group[0])
            first[1].update(group[1])
            groups.remove(group)
        first[0].append(module)
        first[1].update(names)
    return [_Node(modules=tuple(members)) for members, _ in groups]


def _cost(node: _Node, root: Module, memory_weight: float) -> float:
    """Return alpha memory + (1 - alpha) compute, each as a share of the whole model's."""
    together = Module(name="", children=node.modules)
    memory = together.memory_bytes / (root.memory_bytes or 1.0)
    compute = together.seconds / (root.seconds or 1.0)
    return memory_weight * memory + (1.0 - memory_weight) * compute


def _assigned(
    children: Sequence[_Node], costs: Sequence[float], devices: tuple[int, ...]
) -> Iterator[tuple[_Node, tuple[int, ...]]]:
    """Yield every child with the devices of its segment; a segment that gets none goes to the first device."""
    cuts = min_max_segments(costs, min(len(devices), len(children)))
    counts = dhondt(segment_costs(costs, cuts), len(devices))
    next_device = 0
    for start, stop, count in zip(cuts[:-1], cuts[1:], counts, strict=True):
        own = devices[next_device : next_device + count] or devices[:1]
        next_device += count
        inside = children[start:stop]
        if len(inside) == 1 or len(own) == 1:
            yield from ((child, own) for child in inside)
        else:
            yield from _assigned(inside, costs[start:stop], own)


def dhondt(costs: Sequence[float], seats: int) -> tuple[int, ...]:
    """Return how many of ``seats`` each gets: one after the other to the largest cost / (seats held + 1)."""
    held = [0] * len(costs)
    for _ in range(seats):
        winner = max(range(len(costs)), key=lambda i: (costs[i] / (held[i] + 1), -i))
        held[winner] += 1
    return tuple(held)


def partition_log(root: Module, placed: Mapping[str, int]) -> str:
    """Return the lines the library prints: each module with its device, as deep as its parts differ."""
    return "Partition assignments:\n" + "\n".join(_lines(root, placed))


def _lines(module: Module, placed: Mapping[str, int]) -> Iterator[str]:
    devices = {placed[leaf.name] for leaf in module.leaves()}
    if len(devices) == 1:
        yield f"{module.name}: {devices.pop()}"
        return
    for child in module.children:
        yield from _lines(child, placed)
