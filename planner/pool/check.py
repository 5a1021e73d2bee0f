"""What a schedule must satisfy, without solver: every schedule passes here before it is shown."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from planner.pool.instance import Block, Instance, Work


def violations(instance: Instance, blocks: Sequence[Block]) -> tuple[str, ...]:
    """Return what is wrong with a schedule, in words; empty means it holds."""
    return (
        *_missing(instance, blocks),
        *(text for block in blocks for text in _outside(instance, block)),
        *_overfull(instance, blocks),
        *(
            text
            for index, work in enumerate(instance.works)
            for text in _order(work, index, blocks)
        ),
    )


def _missing(instance: Instance, blocks: Sequence[Block]) -> Iterator[str]:
    wanted = [(j, p) for j, work in enumerate(instance.works) for p in range(len(work.pieces))]
    if sorted((block.work, block.piece) for block in blocks) != wanted:
        yield "every piece of every job must run exactly once"


def _outside(instance: Instance, block: Block) -> Iterator[str]:
    work = instance.works[block.work]
    if block.mode not in work.pieces[block.piece]:
        yield f"{work.name}: the mode is not on its front"
    first, end = instance.windows[block.mode.group]
    if block.start < first or block.end > end:
        yield f"{work.name}: runs outside the hours of its group"
    expected = block.mode.ticks + work.restart * block.restarted
    if block.end - block.start != expected:
        yield f"{work.name}: lasts {block.end - block.start} ticks instead of {expected}"


def _overfull(instance: Instance, blocks: Sequence[Block]) -> Iterator[str]:
    changes: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for block in blocks:
        changes[block.mode.group][block.start] += block.mode.nodes
        changes[block.mode.group][block.end] -= block.mode.nodes
    for group, steps in sorted(changes.items()):
        used = 0
        for tick in sorted(steps):
            used += steps[tick]
            if used > instance.capacities[group]:
                yield f"group {group}: {used} nodes at tick {tick} of {instance.capacities[group]}"


def _order(work: Work, index: int, blocks: Sequence[Block]) -> Iterator[str]:
    own = sorted((b for b in blocks if b.work == index), key=lambda block: block.piece)
    for before, after in itertools.pairwise(own):
        if after.start < before.end:
            yield f"{work.name}: piece {after.piece} starts before piece {before.piece} ends"
        continues = after.start == before.end and after.mode.point == before.mode.point
        if not after.restarted and not continues:
            yield f"{work.name}: piece {after.piece} must pay the restart if it moves or waits"
    if own and own[0].restarted:
        yield f"{work.name}: the first piece pays no restart"
