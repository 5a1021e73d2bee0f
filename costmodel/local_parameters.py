"""Parameters of one rank: how tensor, expert and vocabulary parallelism cut each operator's elements."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.graph import Layer, ModelGraph, Operator
from costmodel.lanes import highest, pick


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalElements:
    """Elements of a layer on one rank.

    Attributes:
        dense: Trained elements that all data- and context-parallel ranks repeat.
        expert: Trained elements of experts, repeated only by the replicas of an expert.
        frozen: Elements without gradient; ``quantised`` those kept in 4 bits.
    """

    dense: float = 0.0
    expert: float = 0.0
    frozen: float = 0.0
    quantised: float = 0.0

    @property
    def total(self) -> float:
        """All elements."""
        return self.dense + self.expert + self.frozen + self.quantised


def layer_elements(
    layer: Layer, *, tp: int, ep: int, etp: int, vocab_multiple: int
) -> LocalElements:
    """Return the elements of ``layer`` on one rank.

    Key and value heads fewer than ranks are repeated (Megatron), norms and row biases are whole on every rank
    (Shoeybi et al. 2019, section 3), and the vocabulary is padded to a multiple of ``vocab_multiple * tp``.
    """
    dense = expert = frozen = 0.0
    for operator in layer.operators:
        size = operator_elements(operator, tp=tp, ep=ep, etp=etp, vocab_multiple=vocab_multiple)
        if not operator.trainable:
            frozen += size
        elif operator.experts and operator.kind == "matmul":
            expert += size
        else:
            dense += size
    return LocalElements(dense=dense, expert=expert, frozen=frozen)


def operator_elements(
    operator: Operator, *, tp: int, ep: int, etp: int, vocab_multiple: int
) -> float:
    """Return the elements of one operator on one rank."""
    if operator.experts and operator.kind == "matmul":
        biases = operator.biases / (ep * (etp if operator.split == "column" else 1))
        return operator.weights / (ep * etp) + biases
    if operator.split == "vocab":
        rows = operator.inputs if operator.kind == "embedding" else operator.outputs
        grown = padded(rows, vocab_multiple * tp) / highest(rows, 1) / tp
        return (operator.weights + operator.biases) * grown
    if operator.split == "column":
        return (operator.weights + operator.biases) * column_share(operator, tp)
    if operator.split in ("row", "heads"):
        return operator.weights / tp + operator.biases
    return float(operator.weights + operator.biases)


def column_share(operator: Operator, tp: int) -> float:
    """Return the share of a column-split operator's outputs on one of ``tp`` ranks."""
    spec = operator.attention
    if spec is None or spec.latent:
        return 1 / tp
    width = spec.heads + 2 * spec.kv_heads
    return pick(spec.kv_heads >= tp, 1 / tp, (spec.heads / tp + 2) / width)


def padded(size: int, multiple: int) -> int:
    """Return ``size`` rounded up to a multiple."""
    return -(-size // multiple) * multiple


def adapted(
    layer: Layer, whole: LocalElements, rank: int, *, tp: int, ep: int, quantised: bool
) -> LocalElements:
    """Return the elements when only low-rank adapters beside each matmul of ``layer`` train.

    An adapter of rank r adds r * (inputs + outputs) elements (Hu et al. 2021, arXiv 2106.09685, section 4.1).
    """
    added = 0.0
    for operator in layer.operators:
        if operator.kind == "matmul" and operator.split != "vocab":
            cut_inputs = tp if operator.split == "row" else 1
            cut_outputs = tp if operator.split == "column" else 1
            sides = operator.inputs / cut_inputs + operator.outputs / cut_outputs
            added += rank * sides * highest(1.0, operator.experts / ep)
    if quantised:
        return LocalElements(dense=added, quantised=whole.total)
    return LocalElements(dense=added, frozen=whole.total)


def weight_shapes(graph: ModelGraph) -> list[tuple[int, bool]]:
    """Return elements of each distinct trained weight of the layers, and whether it is an expert's."""
    shapes = {
        (operator.inputs, operator.outputs, bool(operator.experts))
        for layer in graph.kinds
        for operator in layer.operators
        if operator.kind == "matmul" and operator.trainable
    }
    return [(inputs * outputs, routed) for inputs, outputs, routed in sorted(shapes)]
