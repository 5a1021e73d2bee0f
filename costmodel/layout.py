"""Megatron's pipeline layout string: which layers stand on which virtual stage, as one line of text.

Grammar (``--pipeline-model-parallel-layout``, megatron-core 0.16 to 0.20): ``E`` embedding, ``t`` decoder layer,
``m`` multi-token-prediction layer, ``L`` loss; ``|`` ends a virtual stage; ``x*n`` and ``(...)*n`` repeat;
commas are cosmetic; groups do not nest. Virtual stage ``v`` runs on pipeline rank ``v % pp`` as chunk ``v // pp``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from costmodel.errors import InputError, UnsupportedError

EMBEDDING, DECODER, MTP, LOSS, BOUNDARY = "E", "t", "m", "L", "|"

# Far above any real model (1000 layers x 1000 stages); keeps ``t*999999999`` from filling the memory.
_MAX_SYMBOLS = 100_000
_TOKEN = re.compile(r"(?:\((?P<group>[^()]+)\)|(?P<symbol>[EtmL|]))(?:\*(?P<count>\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Symbols of each virtual stage in model order, unrolled: ``("Ett", "tt", "tL")``."""

    stages: tuple[str, ...]

    def layer_counts(self) -> tuple[int, ...]:
        """Return the number of decoder layers of each virtual stage."""
        return tuple(stage.count(DECODER) for stage in self.stages)

    @property
    def text(self) -> str:
        """The canonical string: runs of equal symbols and of equal stages are folded."""
        parts: list[str] = []
        for stage, run in groupby(self.stages[:-1]):
            count, body = len(list(run)), _folded(stage) + BOUNDARY
            parts.append(f"({body})*{count}" if count > 1 else body)
        parts.append(_folded(self.stages[-1]))
        text = parts[0]
        for before, part in pairwise(parts):
            text += f",{part}" if before.startswith("(") and not part.startswith("(") else part
        return text.rstrip(",")


def layout_of(layer_counts: Sequence[int], mtp_layers: int = 0) -> Layout:
    """Return the layout with the embedding on the first and MTP layers and loss on the last stage."""
    stages = [DECODER * count for count in layer_counts]
    stages[0] = EMBEDDING + stages[0]
    stages[-1] += MTP * mtp_layers + LOSS
    return Layout(stages=tuple(stages))


def parse_layout(text: str, key: str = "pipeline_model_parallel_layout") -> Layout:
    """Read a layout string.

    Raises:
        InputError: If it holds another symbol, a nested or unrepeated group, a repetition below one, or
            unrolls to more than 100,000 symbols.
    """
    return Layout(stages=tuple(_unrolled(text.replace(",", ""), key, text).split(BOUNDARY)))


def check_layout(
    layout: Layout,
    *,
    layers: int,
    pp: int,
    mtp_layers: int = 0,
    key: str = "pipeline_model_parallel_layout",
) -> None:
    """Check the rules that Megatron's ``validate_layer_layout`` asserts.

    Raises:
        InputError: Naming the first rule that the layout breaks.
    """
    symbols = "".join(layout.stages)
    rules = (
        (len(layout.stages) % pp == 0, f"stages must be a multiple of pp = {pp}"),
        (symbols.startswith(EMBEDDING), "must start with the embedding E"),
        (symbols.endswith(LOSS), "must end with the loss L"),
        (symbols.count(EMBEDDING) == 1, "must hold the embedding E once"),
        (symbols.count(LOSS) == 1, "must hold the loss L once"),
        (symbols.count(DECODER) == layers, f"must hold {layers} decoder layers t"),
        (symbols.count(MTP) == mtp_layers, f"must hold {mtp_layers} prediction layers m"),
        (DECODER not in symbols.partition(MTP)[2], "decoder layers must stand before m"),
        (_mtp_stages_allowed(layout, pp), "all m must share one stage of the last virtual rank"),
    )
    for holds, rule in rules:
        if not holds:
            raise InputError(rule, key=key, value=layout.text)


def placed_counts(layout: Layout) -> tuple[int, ...]:
    """Return the layers of each virtual stage of a layout whose ends are where the cost model has them.

    Raises:
        UnsupportedError: If the embedding is not on the first stage, or MTP layers or loss are not on the last.
    """
    ends = EMBEDDING in layout.stages[0] and LOSS in layout.stages[-1]
    if not ends or any(MTP in stage for stage in layout.stages[:-1]):
        raise UnsupportedError(
            f"layout {layout.text}: embedding must stand on the first stage, MTP layers and loss on the last"
        )
    return layout.layer_counts()


def _mtp_stages_allowed(layout: Layout, pp: int) -> bool:
    holders = [index for index, stage in enumerate(layout.stages) if MTP in stage]
    if not holders:
        return True
    stage, last_chunk = holders[0], len(layout.stages) - pp
    return len(holders) == 1 and stage >= last_chunk and (pp == 1 or stage % pp != 0)


def _folded(stage: str) -> str:
    runs = [(symbol, len(list(run))) for symbol, run in groupby(stage)]
    return "".join(f"{symbol}*{count}" if count > 1 else symbol for symbol, count in runs)


def _unrolled(text: str, key: str, whole: str) -> str:
    parts: list[str] = []
    position = size = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or (match["group"] is not None and match["count"] is None):
            rule = f"must consist of E t m L | x*n (...)*n; cannot read {text[position:][:12]!r}"
            raise InputError(rule, key=key, value=whole)
        body = match["symbol"] or _unrolled(match["group"], key, whole)
        count = int((match["count"] or "1")[:9])  # nine digits already break the bound below
        if count < 1:
            raise InputError("must repeat at least once", key=key, value=whole)
        size += len(body) * count
        if size > _MAX_SYMBOLS:
            raise InputError(f"must unroll to at most {_MAX_SYMBOLS} symbols", key=key, value=whole)
        parts.append(body * count)
        position = match.end()
    return "".join(parts)
