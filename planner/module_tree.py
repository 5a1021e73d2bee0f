"""A model as the tree of its modules with what each costs: what a framework sees before it partitions.

Leaves in order of execution are a chain that pipeline placements cut; the tree is what SageMaker's heuristic walks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from costmodel.graph import Layer
from costmodel.linear import ChunkContent, StageTerm
from costmodel.pricing import Pricer
from costmodel.strategy import Strategy
from planner.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One module; only leaves have costs of their own.

    Attributes:
        name: Path of the module, unique in its tree.
        forward_s, backward_s: Seconds of one micro-batch.
        weights: Bytes of training state (weights, gradients, optimizer) of each of its parameters, by name;
            leaves that name the same parameter share it.
        activation_bytes: Kept of one micro-batch from forward to backward.
        output_bytes: Handed to the next leaf.
        children: In order of execution; empty for a leaf.
    """

    name: str
    forward_s: float = 0.0
    backward_s: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)
    activation_bytes: float = 0.0
    output_bytes: float = 0.0
    children: tuple["Module", ...] = ()

    def leaves(self) -> tuple["Module", ...]:
        """Return the leaves below, in order of execution."""
        if not self.children:
            return (self,)
        return tuple(leaf for child in self.children for leaf in child.leaves())

    def parameters(self) -> dict[str, float]:
        """Return the state bytes of every parameter below, shared ones once."""
        return {name: size for leaf in self.leaves() for name, size in leaf.weights.items()}

    @property
    def seconds(self) -> float:
        """Forward and backward of one micro-batch of everything below."""
        return sum(leaf.forward_s + leaf.backward_s for leaf in self.leaves())

    @property
    def memory_bytes(self) -> float:
        """State and kept activations of everything below, shared parameters once."""
        return sum(self.parameters().values()) + sum(
            leaf.activation_bytes for leaf in self.leaves()
        )


def tree_of(scenario: Scenario, pricer: Pricer, micro_batch: int) -> Module:
    """Return the module tree of the scenario's model on single GPUs: embedding, stacks of blocks, head."""
    return _TreeBuilder(scenario, pricer, micro_batch).tree()


class _TreeBuilder:
    """Takes the prices of embedding, blocks and head apart."""

    def __init__(self, scenario: Scenario, pricer: Pricer, micro_batch: int) -> None:
        self.graph, self.training = scenario.graph, scenario.training
        strategy = Strategy(micro_batch=micro_batch, microbatches=2, pp=2)
        self.forward, self.backward, _ = pricer.block(strategy)
        self.memory = pricer.memory(strategy)[0].terms
        width = 4 if self.training.precision in ("fp32", "tf32") else 2
        self.micro_batch = micro_batch
        self.stream = width * micro_batch * self.training.sequence * self.graph.model.hidden

    def tree(self) -> Module:
        """Return the whole tree; a tied table belongs to embedding and head alike."""
        layers = range(len(self.graph.layers))
        start = self.graph.model.decoder_start
        blocks = [self._block(index) for index in layers]
        stacks = [("encoder", blocks[:start]), ("decoder", blocks[start:])] if start else []
        body = tuple(
            Module(name=name, children=tuple(children))
            for name, children in stacks or [("blocks", blocks)]
        )
        ends = self._end("embedding", first=True), self._end("head", first=False)
        return Module(name="model", children=(ends[0], *body, ends[1]))

    def _block(self, index: int) -> Module:
        kinds = len(self.graph.kinds)
        one = tuple(int(kind == self.graph.layers[index]) for kind in range(kinds))
        content = ChunkContent(layers=one, recomputed=(0,) * kinds, first=False, last=False)
        return self._leaf(f"block.{index}", content, self.graph.kinds[self.graph.layers[index]])

    def _end(self, name: str, *, first: bool) -> Module:
        nothing = (0,) * len(self.graph.kinds)
        content = ChunkContent(layers=nothing, recomputed=nothing, first=first, last=not first)
        layer = self.graph.embedding if first else self.graph.head
        return self._leaf(name, content, layer, "tied table" if self.graph.tied else "")

    def _leaf(self, name: str, content: ChunkContent, layer: Layer, shared: str = "") -> Module:
        states = self._bytes(("parameters", "gradients", "optimizer"), content)
        return Module(
            name=name,
            forward_s=self._seconds(self.forward, content),
            backward_s=self._seconds(self.backward, content),
            weights={shared or name: states},
            activation_bytes=self._bytes(("activations", "logits"), content),
            output_bytes=layer.output_bytes_per_sample * self.micro_batch or self.stream,
        )

    def _seconds(self, terms: tuple[StageTerm, ...], content: ChunkContent) -> float:
        waits = ("pp_comm", "overhead")
        return sum(term.value((content,)) for term in terms if term.name not in waits)

    def _bytes(self, names: tuple[str, ...], content: ChunkContent) -> float:
        return sum(term.value((content,)) for term in self.memory if term.name in names)
