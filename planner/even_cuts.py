"""Placements with stages or chunks as equal as they can be, from which frameworks choose by default."""

from itertools import accumulate


def equal_cuts(layers: int, stages: int) -> tuple[tuple[int, ...], ...]:
    """Return the placements of a framework that only splits evenly.

    Equal stages, or one layer less on the first and/or last stage, which hold embedding and head instead
    (Megatron-LM: account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split).
    """
    found = []
    for first, last in ((0, 0), (1, 0), (0, 1), (1, 1)):
        size, rest = divmod(layers + first + last, stages)
        sizes = [size] * stages
        sizes[0] -= first
        sizes[-1] -= last
        if not rest and min(sizes) > 0:
            found.append(_cuts(sizes))
    return tuple(dict.fromkeys(found))


def balanced_cuts(layers: int, stages: int) -> tuple[tuple[int, ...], ...]:
    """Return placements whose stages differ by at most one layer; none if there are too few layers.

    The larger stages stand together at the front, the back, in the middle, behind the first or before the
    last stage, or are spread evenly. Splits that count embedding or head as a layer are among them.
    """
    if layers < stages:
        return ()
    small, more = divmod(layers, stages)
    free = stages - more
    starts = (free // 2, min(1, free), max(0, free - 1), 0, free)
    found = [_cuts([small + (at <= s < at + more) for s in range(stages)]) for at in starts]
    found.append(tuple(stage * layers // stages for stage in range(stages + 1)))
    return tuple(dict.fromkeys(found))


def _cuts(sizes: list[int]) -> tuple[int, ...]:
    return (0, *accumulate(sizes))
