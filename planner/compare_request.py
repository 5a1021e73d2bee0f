"""What a user asks a comparison for: systems and numbers of GPUs as typed."""

from costmodel.errors import InputError
from costmodel.fields import nearest_names
from planner.compare import FREE
from planner.systems import MAIN_SYSTEMS, SYSTEMS


def read_systems(text: str) -> tuple[str, ...]:
    """Return the systems in ``ddp,zero-1,free``; ``all`` is every main system and the planner's free choice.

    Raises:
        InputError: If a name is not known.
    """
    names: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if name == "all":
            names += [*MAIN_SYSTEMS, FREE]
        elif name in SYSTEMS or name == FREE:
            names.append(name)
        else:
            near = nearest_names(name, [*SYSTEMS, FREE]) or MAIN_SYSTEMS
            raise InputError("must name known systems", key="--systems", value=name, nearest=near)
    return tuple(dict.fromkeys(names))


def read_counts(text: str | None, largest: int, *, key: str = "--gpus") -> tuple[int, ...]:
    """Return the counts in ``1,2,4`` in rising order; without text, the powers of two up to the largest and it.

    Raises:
        InputError: If a part is no whole number up to the largest.
    """
    if text is None:
        powers = (1 << exponent for exponent in range(largest.bit_length()))
        return tuple(sorted({*powers, largest}))
    counts = set()
    for part in (piece.strip() for piece in text.split(",")):
        if not part.isdecimal() or not 1 <= int(part) <= largest:
            rule = f"must be whole numbers from 1 to {largest}, comma-separated"
            raise InputError(rule, key=key, value=part, nearest=largest)
        counts.add(int(part))
    return tuple(sorted(counts))
