"""Peak memory of a stage, from which tensors autograd keeps operator by operator.

Kept tensors follow Korthikanti et al. 2022 (arXiv 2205.05198, section 4.1): every operator keeps its input if its gradient needs
it, softmax its output, dropout a mask of one byte. A run of recomputed operators keeps only what enters it; a run does not reach over the
first norm of a layer. A stage also holds what it sent on until the gradient of it returns, and the residual that rides along.
Parameters: fp16 weight and gradient, fp32 master and two Adam moments, 16 bytes each, so eight times the fp16 weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from costmodel.errors import InputError
from costmodel.fields import nearest_names
from costmodel.importers.operators import OperatorRow
from costmodel.recompose.operator_prices import EMBEDDING, HEAD, OperatorPrices
from costmodel.recompose.plan_file import MeasuredPlan

_FP16 = 2
_STATES = 8  # times the fp16 weights: weight, gradient, fp32 master and two moments
_STEP_STATES = 9  # after the fp32 gradient took the place of the fp16 gradient
_FIRST_NORM = "enc-1st-layernorm"
_ADDS_RESIDUAL = frozenset({EMBEDDING, "enc-post-attention-dropout", "enc-post-MLP-dropout"})
_AFTER_RESIDUAL = frozenset(
    {"enc-MLP-GEMM-1", "enc-MLP-gelu", "enc-MLP-GEMM-2", "enc-post-MLP-dropout"}
)

Unit = Literal["rows", "rows/tp", "scores", "logits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What an operator makes and keeps, in units of ``Sizes``.

    Attributes:
        output: Size of the output.
        unit: Of the output.
        keeps_input, keeps_output: Whether the backward needs them.
        own: What it keeps besides, in the same unit.
    """

    output: float
    unit: Unit = "rows"
    keeps_input: bool = True
    keeps_output: bool = False
    own: float = 0.0


_DROPOUT = Footprint(output=1, keeps_input=False, own=0.5)
_FOOTPRINTS: Mapping[str, Footprint] = {
    EMBEDDING: _DROPOUT,
    _FIRST_NORM: Footprint(output=1),
    "enc-attention-qkv": Footprint(output=3, unit="rows/tp"),
    "enc-attention-score": Footprint(output=1, unit="scores"),
    "enc-attention-softmax": Footprint(
        output=1, unit="scores", keeps_input=False, keeps_output=True
    ),
    "enc-attention-dropout": Footprint(output=1, unit="scores", keeps_input=False, own=0.5),
    "enc-attention-context": Footprint(output=1, unit="rows/tp"),
    "enc-attention-dense": Footprint(output=1),
    "enc-post-attention-dropout": _DROPOUT,
    "enc-2nd-layernorm": Footprint(output=1),
    "enc-MLP-GEMM-1": Footprint(output=4, unit="rows/tp"),
    "enc-MLP-gelu": Footprint(output=4, unit="rows/tp"),
    "enc-MLP-GEMM-2": Footprint(output=1),
    "enc-post-MLP-dropout": _DROPOUT,
    "final-layernorm": Footprint(output=1),
    # the fp32 softmax of the logits stays for the backward of the loss
    HEAD: Footprint(output=0, unit="logits", own=2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Predicted peaks of one stage in bytes."""

    allocated_bytes: float
    reserved_bytes: float


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """Tensors of one stage; index -1 is what the stage received.

    Attributes:
        runs: Number of the run of recomputed operators that each operator belongs to, -1 for none.
    """

    rows: tuple[OperatorRow, ...]
    recomputed: tuple[bool, ...]
    vocab: int

    @cached_property
    def runs(self) -> tuple[int, ...]:
        """Number of the recomputed run of each operator, -1 for none."""
        runs: list[int] = []
        last = -1
        for index, recomputed in enumerate(self.recomputed):
            starts = index == 0 or not self.recomputed[index - 1] or self.op(index) == _FIRST_NORM
            last += recomputed and starts
            runs.append(last if recomputed else -1)
        return tuple(runs)

    def op(self, index: int) -> str:
        """Return the name of an operator."""
        return self.rows[index].key.op

    def made(self, index: int) -> float:
        """Return the bytes of an operator's output; of the stage's input for -1."""
        if index < 0:
            return self.rows[0].input_bytes
        footprint = _FOOTPRINTS[self.op(index)]
        return footprint.output * self.unit(footprint.unit, index)

    def own(self, index: int) -> float:
        """Return the bytes an operator keeps besides its input and output."""
        footprint = _FOOTPRINTS[self.op(index)]
        return footprint.own * self.unit(footprint.unit, index)

    def unit(self, unit: Unit, index: int) -> float:
        """Return the fp16 bytes of a unit at an operator."""
        row = self.rows[index]
        tokens = row.seq * row.key.micro_batch
        rows = float(_FP16 * tokens * row.hidden)
        if unit == "scores":
            return _FP16 * tokens * row.seq * row.heads / row.key.tp
        if unit == "logits":
            return _FP16 * tokens * self.vocab / row.key.tp
        return rows / row.key.tp if unit == "rows/tp" else rows

    @cached_property
    def kept(self) -> frozenset[int]:
        """Operators whose outputs are kept from forward to backward."""
        kept: set[int] = set()
        for index in range(len(self.rows)):
            footprint = _FOOTPRINTS[self.op(index)]
            if self.runs[index] < 0:
                kept |= {index - 1} if footprint.keeps_input else set()
                kept |= {index} if footprint.keeps_output else set()
            elif index == 0 or self.runs[index - 1] != self.runs[index]:
                kept |= {index - 1, self.residual(index)}
            kept |= self._leaving_residual(index)
        return frozenset(kept)

    def _leaving_residual(self, index: int) -> set[int]:
        """Return the residual made inside a recomputed run that leaves it within the layer."""
        if self.runs[index] < 0 or self.op(index) != "enc-post-attention-dropout":
            return set()
        behind = next(
            (i for i in range(index, len(self.rows)) if self.runs[i] != self.runs[index]), None
        )
        leaves = behind is not None and self.op(behind) in _AFTER_RESIDUAL
        return {index} if leaves else set()

    def residual(self, index: int) -> int:
        """Return the operator before ``index`` that made the residual stream, -1 for the stage's input."""
        return next((i for i in range(index - 1, -1, -1) if self.op(i) in _ADDS_RESIDUAL), -1)

    @cached_property
    def held(self) -> float:
        """Bytes sent on that nothing else keeps: the output and the residual that rides along."""
        last = len(self.rows) - 1
        sent = self.rows[last].output_bytes
        if not sent:
            return 0.0
        maker = last if self.op(last) in _ADDS_RESIDUAL else self.residual(last)
        riding = max(sent - self.made(last), 0.0) if maker not in self.kept else 0.0
        return riding + (self.made(last) if last not in self.kept else 0.0)

    def alive(self, index: int) -> float:
        """Return the bytes one micro-batch keeps of operators up to ``index``."""
        tensors = sum(self.made(i) for i in self.kept if i <= index)
        own = sum(self.own(i) for i in range(index + 1) if self.runs[i] < 0)
        return tensors + own + self.held

    def working(self, index: int) -> float:
        """Return what the backward of an operator needs beside: its recomputed run, gradients, new weight gradient."""
        gradients = self.made(index) + self.made(index - 1) + self.rows[index].weight_bytes
        if self.op(index) == HEAD:
            gradients += self.unit("logits", index)
        return gradients + self._repeated(index)

    def _repeated(self, index: int) -> float:
        if self.runs[index] < 0:
            return 0.0
        run = [i for i in range(index + 1) if self.runs[i] == self.runs[index]]
        made = {i - 1 for i in run if _FOOTPRINTS[self.op(i)].keeps_input}
        made |= {i for i in run if _FOOTPRINTS[self.op(i)].keeps_output}
        again = sum(self.made(i) for i in made - self.kept if i >= 0)
        return again + sum(self.own(i) for i in run)


def stage_memory(plan: MeasuredPlan, prices: OperatorPrices, stage: int) -> StageMemory:
    """Return the peaks of a stage, which holds as many micro-batches as stages follow it, itself included.

    The reserved peak adds what the caching allocator cannot reuse: the flattened gradient of the reduction is one
    block as large as the weights, which no gap left by activations fits, and a gap of up to the largest tensor stays.

    Raises:
        InputError: If it is not known what an operator keeps.
    """
    for operator in plan.stages[stage]:
        if operator.op not in _FOOTPRINTS:
            raise InputError(
                "is no operator whose kept tensors are known",
                key=f"stage {stage}",
                value=operator.op,
                nearest=nearest_names(operator.op, _FOOTPRINTS),
            )
    tensors = _Stage(
        rows=tuple(prices.row(plan, operator) for operator in plan.stages[stage]),
        recomputed=tuple(operator.recomputed for operator in plan.stages[stage]),
        vocab=plan.vocab,
    )
    weights = [row.weight_bytes for row in tensors.rows]
    in_flight = min(len(plan.stages) - stage, plan.microbatches)
    allocated = max(_backward_peak(tensors, in_flight, sum(weights)), _step_peak(weights))
    largest = max(tensors.made(index) for index in range(len(tensors.rows)))
    return StageMemory(allocated_bytes=allocated, reserved_bytes=allocated + sum(weights) + largest)


def _backward_peak(tensors: _Stage, in_flight: int, weights: float) -> float:
    last = len(tensors.rows) - 1
    others = (in_flight - 1) * tensors.alive(last)
    peak = max(tensors.alive(i) + tensors.working(i) for i in range(last + 1))
    return _STATES * weights + others + peak


def _step_peak(weights: Sequence[float]) -> float:
    """Return the optimizer's peak: all fp32 gradients and one temporary of the largest parameter in fp32."""
    return _STEP_STATES * sum(weights) + 2 * max(weights)
