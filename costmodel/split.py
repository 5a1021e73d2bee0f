"""What one rank executes of each operator under a strategy: operators become compute events with local shapes.

A matmul Y = X W of M tokens has three products: forward (M, N, K), gradient of the input (M, K, N) and gradient of
the weight (K, N, M) with their own shapes, so a backward is never "twice the forward".
"""

from dataclasses import dataclass, field
from typing import Literal

from costmodel.errors import UnsupportedError
from costmodel.events import ComputeEvent, Direction
from costmodel.frameworks import Framework
from costmodel.graph import Operator
from costmodel.lanes import highest, holds, pick, rounded
from costmodel.spec import AttentionSpec, TrainingSpec
from costmodel.strategy import Strategy

Part = Literal["matmul", "attention", "elementwise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """Sizes of one rank's share of a micro-batch.

    Attributes:
        batch: Sequences.
        queries, keys: Tokens of a sequence that this rank's queries, and all keys, count.
        tp: Tensor-parallel ranks; ``row_split`` is tp where norms and residuals are split too.
        ep, etp: Expert- and expert-tensor-parallel ranks.
        dtype: Arithmetic of the matmuls; ``plain`` that of everything else.
        attention: "flash" or "standard".
    """

    batch: int
    queries: int
    keys: int
    tp: int
    row_split: int
    ep: int
    etp: int
    dtype: str
    plain: str
    attention: str

    @property
    def tokens(self) -> int:
        """Tokens whose columns or heads this rank computes."""
        return self.batch * self.queries

    @property
    def rows(self) -> int:
        """Tokens whose norms and residuals this rank computes."""
        return -(-self.tokens // self.row_split)


@dataclass(frozen=True, slots=True)
class Work:
    """Events of one operator or layer: forward, backward without and backward of the weights."""

    forward: list[tuple[Part, ComputeEvent]] = field(default_factory=list)
    backward: list[tuple[Part, ComputeEvent]] = field(default_factory=list)
    weight: list[tuple[Part, ComputeEvent]] = field(default_factory=list)

    def extend(self, other: "Work") -> None:
        """Append the events of ``other``."""
        self.forward.extend(other.forward)
        self.backward.extend(other.backward)
        self.weight.extend(other.weight)


def local_sizes(training: TrainingSpec, strategy: Strategy, *, decoder: bool = False) -> Local:
    """Return the sizes of one rank's share of a micro-batch."""
    sequence = (
        training.decoder_sequence if decoder and training.decoder_sequence else training.sequence
    )
    plain = "bf16" if training.precision == "fp8" else training.precision
    return Local(
        batch=strategy.micro_batch,
        queries=-(-sequence // strategy.cp),
        keys=sequence,
        tp=strategy.tp,
        row_split=pick(strategy.sequence_parallel, strategy.tp, 1),
        ep=strategy.ep,
        etp=strategy.etp,
        dtype=training.precision,
        plain=plain,
        attention=training.attention,
    )


def operator_work(operator: Operator, local: Local, framework: Framework) -> Work:
    """Return the events of ``operator`` on one rank and micro-batch."""
    match operator.kind:
        case "matmul":
            return (
                _expert(operator, local, framework)
                if operator.experts
                else _dense(operator, local, framework)
            )
        case "attention":
            return _attention(operator, local)
        case "activation":
            return _activation(operator, local)
        case "norm" | "residual" | "rope" | "router":
            return _rowwise(operator, local)
        case "embedding":
            return _embedding(operator, local, framework)
        case "dispatch":
            return _permute(operator, local)
        case "opaque":
            return _opaque(operator, local)
        case "loss":
            return Work()


def local_width(operator: Operator, tp: int) -> tuple[int, int]:
    """Return (N, K) of a matmul on one rank; replicated key and value heads are counted as held."""
    inputs, outputs = operator.inputs, operator.outputs
    if operator.split == "row":
        return outputs, -(-inputs // tp)
    if operator.split == "column" and operator.attention is not None:
        spec = operator.attention
        kv = highest(1, -(-spec.kv_heads // tp))
        return (-(-spec.heads // tp) + 2 * kv) * spec.head_dim, inputs
    if operator.split in ("column", "vocab", "heads"):
        return -(-outputs // tp), inputs
    return outputs, inputs


def _matmul(
    work: Work, operator: Operator, local: Local, m: int, n: int, k: int, groups: int | None = None
) -> None:
    op = "matmul" if groups is None else "grouped_matmul"
    dtype = local.plain if operator.split == "vocab" else local.dtype

    def event(*shape: int, direction: Direction = "forward") -> tuple[Part, ComputeEvent]:
        sizes = shape if groups is None else (groups, *shape)
        return "matmul", ComputeEvent(op=op, shape=sizes, dtype=dtype, direction=direction)

    work.forward.append(event(m, n, k))
    work.backward.append(event(m, k, n))
    if operator.trainable:
        work.weight.append(event(k, n, m))
    if dtype == "fp8":
        _casts(work, m if groups is None else m * groups, n, k)


def _casts(work: Work, m: int, n: int, k: int) -> None:
    """Add the quantisation of a matmul's input and of its output's gradient.

    Each is read in 16 bits and written in 8 bits, plain and transposed (Transformer Engine): 4 bytes an element.
    """
    work.forward.append(("elementwise", ComputeEvent(op="cast", shape=(4 * m * k,), dtype="fp8")))
    work.backward.append(("elementwise", ComputeEvent(op="cast", shape=(4 * m * n,), dtype="fp8")))


def _accumulate(work: Work, parameters: float, framework: Framework) -> None:
    if framework.accumulate_bytes and holds(parameters > 0):
        moved = rounded(parameters * framework.accumulate_bytes)
        event = ComputeEvent(op="accumulate", shape=(moved,), dtype="fp32")
        work.weight.append(("elementwise", event))


def _dense(operator: Operator, local: Local, framework: Framework) -> Work:
    work = Work()
    width, inputs = local_width(operator, local.tp)
    _matmul(work, operator, local, local.tokens, width, inputs)
    if operator.trainable:
        _accumulate(work, 1.0 * width * inputs, framework)
    return work


def expert_tokens(operator: Operator, local: Local) -> int:
    """Return the routed tokens that one rank's experts compute when routing is even."""
    return -(-local.tokens * operator.topk * local.etp // local.tp)


def _expert(operator: Operator, local: Local, framework: Framework) -> Work:
    work = Work()
    held = highest(1, operator.experts // local.ep)
    width, inputs = local_width(operator, local.etp)
    # Dispatchers pad each expert's tokens to the alignment of 8-bit matmuls.
    tokens = -(-expert_tokens(operator, local) // held // 16) * 16
    _matmul(work, operator, local, tokens, width, inputs, held)
    if operator.trainable:
        _accumulate(work, 1.0 * held * width * inputs, framework)
    return work


def _attention(operator: Operator, local: Local) -> Work:
    spec = attention_of(operator)
    op = "flash_attention" if local.attention == "flash" else "standard_attention"
    shape = (
        local.batch,
        -(-spec.heads // local.tp),
        highest(1, -(-spec.kv_heads // local.tp)),
        local.queries,
        local.keys,
        *_head_widths(spec),
        int(spec.causal),
        spec.window or 0,
    )
    return Work(
        forward=[("attention", ComputeEvent(op=op, shape=shape, dtype=local.plain))],
        backward=[
            ("attention", ComputeEvent(op=op, shape=shape, dtype=local.plain, direction="backward"))
        ],
    )


def attention_of(operator: Operator) -> AttentionSpec:
    """Return the heads of an attention core.

    Raises:
        UnsupportedError: If the operator carries none (a traced module's core has to be ``opaque``).
    """
    if operator.attention is None:
        raise UnsupportedError(f"operator {operator.name} is an attention core without heads")
    return operator.attention


def _head_widths(spec: AttentionSpec) -> tuple[int, int]:
    if spec.latent:
        return spec.qk_nope_head_dim + spec.qk_rope_head_dim, spec.v_head_dim
    return spec.head_dim, spec.head_dim


def _both(op: str, shape: tuple[int, ...], dtype: str) -> Work:
    forward = ComputeEvent(op=op, shape=shape, dtype=dtype)
    backward = ComputeEvent(op=op, shape=shape, dtype=dtype, direction="backward")
    return Work(forward=[("elementwise", forward)], backward=[("elementwise", backward)])


def _activation(operator: Operator, local: Local) -> Work:
    tokens, ranks = local.tokens, local.tp
    if operator.experts:
        tokens, ranks = expert_tokens(operator, local), local.etp
    shape = (tokens, -(-operator.inputs // ranks), -(-operator.outputs // ranks))
    return _both("activation", shape, local.plain)


def _rowwise(operator: Operator, local: Local) -> Work:
    if operator.split == "heads":
        return _both(operator.kind, (local.tokens, -(-operator.inputs // local.tp)), local.plain)
    width = operator.outputs if operator.kind == "router" else operator.inputs
    return _both(operator.kind, (local.rows, width), local.plain)


def _embedding(operator: Operator, local: Local, framework: Framework) -> Work:
    work = _both("embedding", (local.tokens, operator.outputs), local.plain)
    if operator.trainable:
        _accumulate(work, operator.weights / local.tp, framework)
    return work


def _permute(operator: Operator, local: Local) -> Work:
    """Return the permutations around the experts, priced per pass by the constant ``moe.permute``."""
    moved = expert_tokens(operator, local) * operator.inputs * 4
    event = ComputeEvent(op="permute", shape=(moved,), dtype=local.plain)
    return Work(forward=[("elementwise", event)], backward=[("elementwise", event)])


def _opaque(operator: Operator, local: Local) -> Work:
    flops, moved = operator.flops * local.batch, operator.traffic_bytes * local.batch
    ratio = operator.backward_ratio
    forward = ComputeEvent(op="opaque", shape=(rounded(flops), rounded(moved)), dtype=local.dtype)
    shape = (rounded(flops * ratio), rounded(moved * ratio))
    backward = ComputeEvent(op="opaque", shape=shape, dtype=local.dtype, direction="backward")
    return Work(forward=[("matmul", forward)], backward=[("matmul", backward)])
