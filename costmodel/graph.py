"""The model graph: layers of few kinds, their order, and what they share.

A ModelSpec (or a traced module) becomes a ModelGraph; costmodel.operators describes the layers themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from costmodel.operators import Layer, Operator, OperatorKind, Split, block, embedding, head
from costmodel.spec import ModelSpec

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Layer", "ModelGraph", "Operator", "OperatorKind", "Split", "build_graph"]


@dataclass(frozen=True, kw_only=True)
class ModelGraph:
    """A model as the cost model sees it.

    Attributes:
        model: What the graph was made from; a traced module fills in name, hidden and layers only.
        kinds: Distinct kinds of layers.
        layers: Kind index of each layer in order.
        embedding, head: Layers before and behind; the head holds final norm, logits and loss.
        tied: Whether the head's matrix is the embedding's table (counted once).
    """

    model: ModelSpec
    kinds: tuple[Layer, ...]
    layers: tuple[int, ...]
    embedding: Layer
    head: Layer
    tied: bool

    @cached_property
    def parameters(self) -> int:
        """Parameters of the whole model, tied weights counted once."""
        blocks = sum(self.kinds[kind].parameters for kind in self.layers)
        return self.embedding.parameters + blocks + self.head.parameters - self.tied_weights

    @cached_property
    def tied_weights(self) -> int:
        """Elements shared by embedding and head."""
        if not self.tied:
            return 0
        return next(op.weights for op in self.head.operators if op.name == "head.logits")

    def kind_counts(self) -> tuple[int, ...]:
        """Return how many layers of each kind the model has."""
        return tuple(self.layers.count(kind) for kind in range(len(self.kinds)))

    def digraph(self) -> nx.DiGraph[str]:
        """Return the layers as a networkx graph; a tied head also has an edge from the embedding.

        Nodes carry ``layer`` (a Layer) and ``position``; edges carry ``relation``, "activation" or "tied".
        """
        import networkx as nx  # 0.1 s of import that --help does not need

        graph: nx.DiGraph[str] = nx.DiGraph()
        chain = [("embedding", self.embedding)]
        chain += [(f"layer.{i}", self.kinds[kind]) for i, kind in enumerate(self.layers)]
        chain.append(("head", self.head))
        for position, (name, layer) in enumerate(chain):
            graph.add_node(name, layer=layer, position=position)
        for (before, _), (after, _) in pairwise(chain):
            graph.add_edge(before, after, relation="activation")
        if self.tied:
            graph.add_edge("embedding", "head", relation="tied")
        return graph


def build_graph(model: ModelSpec) -> ModelGraph:
    """Return the graph of a transformer described by ``model``."""
    return ModelGraph(
        model=model,
        kinds=tuple(block(model, kind) for kind in model.kinds),
        layers=model.layers,
        embedding=embedding(model),
        head=head(model),
        tied=model.tied and model.vocab > 0,
    )
