"""What is validated: a transformer, a strategy and a placement, as a file that both sides of the launch read."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from costmodel.events import ComputeEvent, Direction
from costmodel.strategy import Strategy

FP32 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder of equal blocks in fp32: RMS norm, attention, MLP, no biases, untied head.

    Attributes:
        gated: Whether the MLP is SwiGLU (else GELU).
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated: bool
    layers: int
    vocab: int
    sequence: int

    def split(self, tp: int) -> "ModelShape":
        """Return the shape of one tensor-parallel rank's block."""
        cut = asdict(self)
        for name in ("heads", "kv_heads", "ffn"):
            cut[name] //= tp
        return ModelShape(**cut)

    @property
    def qkv_width(self) -> int:
        """Outputs of the fused projection of queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def up_width(self) -> int:
        """Outputs of the MLP's first matrix."""
        return self.ffn * (2 if self.gated else 1)

    @property
    def block_parameters(self) -> int:
        """Elements of one block."""
        attention = self.hidden * (self.qkv_width + self.heads * self.head_dim)
        return attention + self.hidden * (self.up_width + self.ffn) + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Elements of the embedding."""
        return self.vocab * self.hidden

    @property
    def head_parameters(self) -> int:
        """Elements of final norm and logits."""
        return self.vocab * self.hidden + self.hidden

    def block_saved_bytes(self, batch: int) -> int:
        """Return what autograd keeps of one block's forward.

        A norm keeps its input, the normalised input, its output (the next matrix' input) and a scale a token;
        attention keeps queries, keys and values, its output and a row sum a head; the MLP the first matrix' output
        and the activation, and SwiGLU the activated gate.
        """
        norms = 2 * (3 * self.hidden + 1)
        attention = self.qkv_width + self.heads * self.head_dim + self.heads
        activation = 4 * self.ffn if self.gated else 2 * self.ffn
        return FP32 * batch * self.sequence * (norms + attention + activation)

    def head_saved_bytes(self, batch: int) -> int:
        """Return what autograd keeps of the head: its norm, and the log-softmax and total weight of the loss."""
        return FP32 * (batch * self.sequence * (3 * self.hidden + 1 + self.vocab) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run.

    Attributes:
        layers: Layers of each virtual stage, in model order.
        rounds: Repeats of (events, iteration), interleaved.
    """

    shape: ModelShape
    strategy: Strategy
    layers: tuple[int, ...]
    rounds: int = 5

    @property
    def ranks(self) -> int:
        """Processes."""
        return self.strategy.gpus

    def first_layer(self, stage: int) -> int:
        """Return the first layer of a virtual stage."""
        return sum(self.layers[:stage])

    def stages_of(self, pp_rank: int) -> tuple[int, ...]:
        """Return the virtual stages of a pipeline rank."""
        return tuple(range(pp_rank, len(self.layers), self.strategy.pp))


def save_jobs(jobs: Sequence[Job], path: Path) -> None:
    """Write jobs as JSON."""
    path.write_text(json.dumps([asdict(job) for job in jobs]), encoding="utf-8")


def load_jobs(path: Path) -> list[Job]:
    """Read jobs that ``save_jobs`` wrote."""
    return [
        Job(
            shape=ModelShape(**data["shape"]),
            strategy=Strategy(**data["strategy"]),
            layers=tuple(data["layers"]),
            rounds=data["rounds"],
        )
        for data in json.loads(path.read_text(encoding="utf-8"))
    ]


def compute_events(shape: ModelShape, strategy: Strategy) -> dict[str, ComputeEvent]:
    """Return the unique compute events of a job by name: blocks, embedding and head, both ways."""
    batch, local = strategy.micro_batch, shape.split(strategy.tp)
    block = (
        *(batch, shape.sequence, shape.hidden),
        *(local.heads, local.kv_heads, shape.head_dim, local.ffn, int(shape.gated)),
    )
    sizes = {
        "block": block,
        "embedding": (batch, shape.sequence, shape.vocab, shape.hidden),
        "head": (batch, shape.sequence, shape.hidden, shape.vocab),
    }
    directions: tuple[Direction, ...] = ("forward", "backward")
    return {
        f"{name} {direction}": ComputeEvent(
            op=f"{name}_module", shape=size, dtype="fp32", direction=direction
        )
        for name, size in sizes.items()
        for direction in directions
    }
