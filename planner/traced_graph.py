"""From what a trace saw of each block to a ModelGraph: merging, roles, kinds. Knows nothing of torch.

A traced network is a chain of blocks in order of execution. Blocks without matrices join a neighbour; leading
lookup tables become the embedding, a trailing single matrix the head; equal blocks become one kind of layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.errors import InputError
from costmodel.graph import ModelGraph
from costmodel.operators import Layer, Operator
from costmodel.spec import LayerSpec, ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedOperator:
    """One matmul, convolution or attention of a block.

    Attributes:
        flops, traffic_bytes: Forward FLOPs and bytes moved, per sample.
        backward_ratio: Backward over forward FLOPs.
    """

    name: str
    flops: float
    traffic_bytes: float
    backward_ratio: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedBlock:
    """What a trace saw of one call of one module.

    Attributes:
        name: Class of the module.
        table: Whether it is a lookup table (an embedding).
        single: Whether it is one module without children.
        operators: Its matmuls, convolutions and attentions in order.
        rest_traffic_bytes: Bytes that all its other operators move forward, per sample.
        rest_ratio: Backward over forward bytes of the other operators.
        saved_bytes: Bytes kept for the backward pass, per sample.
        output_bytes: Bytes alive behind the block, per sample: all that a later block still needs.
        weights, biases: Parameters with two or more dimensions and with fewer, those seen before left out.
        frozen: Parameters of either sort that are not trained; not part of the two above.
        tied_weights: Elements of matrices that an earlier block holds already.
        batch_norms: Channels of each batch normalisation.
    """

    name: str
    table: bool = False
    single: bool = False
    operators: tuple[TracedOperator, ...] = ()
    rest_traffic_bytes: float = 0.0
    rest_ratio: float = 2.0
    saved_bytes: float = 0.0
    output_bytes: float = 0.0
    weights: int = 0
    biases: int = 0
    frozen: int = 0
    tied_weights: int = 0
    batch_norms: tuple[int, ...] = ()

    @property
    def light(self) -> bool:
        """Whether it is too small to be placed by itself: one module without a matrix."""
        return self.single and not self.operators and not self.table


def graph_of(name: str, blocks: Sequence[TracedBlock], element_bytes: int) -> ModelGraph:
    """Return the graph of a chain of traced blocks.

    Everything is per sample, so a sample counts as one token: scenarios of traced modules have ``sequence: 1``,
    and the model's ``hidden`` is the number of elements that the widest cut hands on.

    Raises:
        InputError: If no block is left between embedding and head.
    """
    groups = _merged(blocks)
    embedding = groups[:1] if groups and any(block.table for block in groups[0]) else []
    rest = groups[len(embedding) :]
    head = rest[-1:] if len(rest) > 1 and _closes(rest[-1]) else []
    middle = rest[: len(rest) - len(head)]
    if not middle:
        raise InputError("must have at least one layer between embedding and head", key="model")
    layers = [_layer(group) for group in middle]
    kinds = tuple(dict.fromkeys(layers))
    closing = head[0] if head else []
    tied = any(block.tied_weights for block in closing)
    return ModelGraph(
        model=_spec(name, kinds, layers, element_bytes),
        kinds=kinds,
        layers=tuple(kinds.index(layer) for layer in layers),
        embedding=_layer(embedding[0] if embedding else [], "embedding"),
        head=_layer(closing, "head", closing=True),
        tied=tied,
    )


def _merged(blocks: Sequence[TracedBlock]) -> list[list[TracedBlock]]:
    """Group each light block with the block before it, or with a head that follows; tables go together."""
    groups: list[list[TracedBlock]] = []
    heavy = [index for index, block in enumerate(blocks) if not block.light]
    last = heavy[-1] if heavy and blocks[heavy[-1]].single else len(blocks)
    waiting: list[TracedBlock] = []
    for index, block in enumerate(blocks):
        before_head = len(heavy) > 1 and heavy[-2] < index < last and last < len(blocks)
        if block.light and (not groups or before_head):
            waiting.append(block)
        elif block.light or (block.table and groups and any(item.table for item in groups[-1])):
            groups[-1].append(block)
        else:
            groups.append([*waiting, block])
            waiting = []
    return groups or ([waiting] if waiting else [])


def _closes(group: Sequence[TracedBlock]) -> bool:
    """Return whether a last group is a head: one module with one matrix, and what is light around it."""
    heavy = [block for block in group if not block.light]
    return len(heavy) == 1 and heavy[0].single


def _layer(group: Sequence[TracedBlock], name: str = "", *, closing: bool = False) -> Layer:
    title = name or next((block.name for block in group if not block.light), "block")
    operators: list[Operator] = []
    for block in group:
        operators += _operators(block, len(operators), closing=closing)
    live = group[-1].output_bytes if group else 0.0
    return Layer(
        name=title,
        operators=tuple(operators),
        output_bytes_per_sample=live,
        batch_norms=tuple(channels for block in group for channels in block.batch_norms),
    )


def _operators(block: TracedBlock, number: int, *, closing: bool) -> list[Operator]:
    """Return the operators of a block: its matmuls, then one that stands for all else."""
    found = [
        Operator(
            name=f"{block.name}.{number + index}.{item.name}",
            kind="opaque",
            flops=item.flops,
            traffic_bytes=item.traffic_bytes,
            backward_ratio=item.backward_ratio,
        )
        for index, item in enumerate(block.operators)
    ]
    tied = closing and block.tied_weights > 0
    rest = Operator(
        name="head.logits" if tied else f"{block.name}.{number + len(found)}.rest",
        kind="opaque",
        traffic_bytes=block.rest_traffic_bytes,
        saved_bytes=block.saved_bytes,
        backward_ratio=block.rest_ratio,
        weights=block.weights + (block.tied_weights if closing else 0),
        biases=block.biases,
    )
    frozen = Operator(
        name=f"{block.name}.{number + len(found)}.frozen",
        kind="opaque",
        weights=block.frozen,
        trainable=False,
    )
    return [*found, rest, *([frozen] if block.frozen else [])]


def _spec(
    name: str, kinds: Sequence[Layer], layers: Sequence[Layer], element_bytes: int
) -> ModelSpec:
    widest = max(layer.output_bytes_per_sample for layer in layers)
    return ModelSpec(
        name=name,
        hidden=max(1, round(widest / element_bytes)),
        kinds=tuple(LayerSpec(name=kind.name, attention=None, mlp=None, norms=0) for kind in kinds),
        layers=tuple(kinds.index(layer) for layer in layers),
        vocab=0,
        final_norm=False,
        source="traced module",
    )
