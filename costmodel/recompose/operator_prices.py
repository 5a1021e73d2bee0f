"""Seconds of a stage's operators: what the table holds, and by physics what its measurement left out or distorted.

* **Weight gradients.** Where the backward was timed for the gradient of the input only, the weight gradient is a further product
  of the same FLOPs, in a layout that was never measured. It is priced at the best rate that the table shows for any product that
  is no larger in M, N or K: cuBLAS chooses among the same kernels, and a larger product does not run less efficiently.
* **Accumulation.** Autograd adds each weight gradient to the one that is there: two reads and a write of fp16, 6 bytes a weight.
  A burst over one operator does not do it. (An embedding's backward writes its dense gradient itself: measured.)
* **Power.** A burst of one product draws more power than the same product among memory-bound operators. On a card whose long bursts
  are throttled (their rate falls below that of short ones) a product is priced at the best rate of products that are no larger; in a
  row that holds an all-reduce, at that rate plus the all-reduce of the collective table. Cards that are not throttled keep their rows.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from costmodel.errors import InputError
from costmodel.events import CommEvent
from costmodel.importers.operators import (
    Matmul,
    OperatorKey,
    OperatorRow,
    matmul_flops,
    pure_matmuls,
)
from costmodel.recompose.plan_file import MeasuredPlan, PlacedOperator
from costmodel.table import Table

HEAD = "gpt-post-process"
EMBEDDING = "encoder-embedding"
_ACCUMULATION_BYTES = 6  # read the new gradient, read and write the sum, fp16
_FP16 = 2
# Of the data sheet's bandwidth, streaming kernels over gradients. Fitted: the gradient reductions of the recorded
# stages of scenarios/profiles/plans, whose 12 bytes per parameter (finish.py) pass at 0.71 to 0.77 of it.
STREAM_EFFICIENCY = 0.77
# A card is throttled if products of 2 ms and more run below 0.8 of the 90th percentile of those under 1 ms. Among
# the profiles the ratio is 0.6 on L4 (72 W) and 0.86 and more on A10G, V100 and A100: any threshold between separates.
_LONG_S, _SHORT_S, _THROTTLED = 2e-3, 1e-3, 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSeconds:
    """One operator and micro-batch.

    Attributes:
        forward_s, backward_s: As measured, or unthrottled; the backward without the next two.
        weight_gradient_s, accumulation_s: What the measurement left out.
        recomputation_s: Its forward once more, if it is recomputed.
    """

    forward_s: float
    backward_s: float
    weight_gradient_s: float = 0.0
    accumulation_s: float = 0.0
    recomputation_s: float = 0.0

    @property
    def whole_backward_s(self) -> float:
        """Everything between the arrival of the gradient and its departure."""
        return self.backward_s + self.weight_gradient_s + self.accumulation_s + self.recomputation_s


@dataclass(frozen=True, kw_only=True)
class OperatorPrices:
    """Prices of the operators of one profile.

    Attributes:
        rows: Usable rows of the profile.
        collectives: Measured collectives of the same machine.
        bandwidth_bytes_per_s: Memory bandwidth of the device's data sheet.
    """

    rows: tuple[OperatorRow, ...]
    collectives: Table
    bandwidth_bytes_per_s: float
    _rates: dict[tuple[Matmul, ...], float] = field(default_factory=dict)

    @cached_property
    def by_key(self) -> Mapping[OperatorKey, OperatorRow]:
        """Rows by what distinguishes them."""
        return {row.key: row for row in self.rows}

    @cached_property
    def products(self) -> tuple[tuple[Matmul, float], ...]:
        """Size and FLOP/s of every time that is one product without a collective."""
        return tuple(
            (sizes, matmul_flops(sizes) / seconds) for sizes, seconds in pure_matmuls(self.rows)
        )

    @cached_property
    def throttled(self) -> bool:
        """Whether long bursts of products run slower than short ones: the power limit binds."""
        timed = [(matmul_flops(sizes) / rate, rate) for sizes, rate in self.products]
        long = [rate for seconds, rate in timed if seconds >= _LONG_S]
        short = [rate for seconds, rate in timed if seconds <= _SHORT_S]
        if not long or len(short) < 2:
            return False
        return statistics.median(long) < _THROTTLED * statistics.quantiles(short, n=10)[-1]

    @property
    def stream_bytes_per_s(self) -> float:
        """What streaming kernels over parameters reach."""
        return self.bandwidth_bytes_per_s * STREAM_EFFICIENCY

    def row(self, plan: MeasuredPlan, placed: PlacedOperator) -> OperatorRow:
        """Return the row of an operator of a plan.

        Raises:
            InputError: If the table has none.
        """
        key = OperatorKey(
            model=plan.model,
            op=placed.op,
            tp=placed.tp,
            micro_batch=plan.micro_batch // placed.dp,
            algo=placed.algo,
        )
        if key not in self.by_key:
            raise InputError(f"is not in profile {plan.profile}", key=placed.op, value=key)
        return self.by_key[key]

    def seconds(self, plan: MeasuredPlan, placed: PlacedOperator) -> OperatorSeconds:
        """Return the price of an operator of a plan."""
        row = self.row(plan, placed)
        forward_s = self._pass(row, row.forward_s, "forward")
        return OperatorSeconds(
            forward_s=forward_s,
            backward_s=self._pass(row, row.backward_s, "backward"),
            weight_gradient_s=self._weight_gradient(row, plan),
            accumulation_s=self._accumulation(row),
            recomputation_s=forward_s if placed.recomputed else 0.0,
        )

    def rate(self, *shapes: Matmul) -> float:
        """Return the best FLOP/s measured for a product no larger in any size than one of ``shapes``.

        Raises:
            InputError: If the table has none.
        """
        if shapes not in self._rates:
            found = [
                rate for other, rate in self.products if any(_within(other, s) for s in shapes)
            ]
            if not found:
                raise InputError("no measured product is as small", key="matmul", value=shapes[0])
            self._rates[shapes] = max(found)
        return self._rates[shapes]

    def _pass(
        self, row: OperatorRow, measured_s: float, direction: Literal["forward", "backward"]
    ) -> float:
        sizes = row.matmul
        holds_two = direction == "backward" and row.weight_gradient_inside
        if sizes is None or not self.throttled or holds_two:
            return measured_s
        turned = (sizes[0], sizes[2], sizes[1])
        if not row.reduces(direction):
            oriented = sizes if direction == "forward" else turned
            return min(measured_s, matmul_flops(sizes) / self.rate(oriented))
        product_s = matmul_flops(sizes) / self.rate(sizes, turned)
        return min(measured_s, product_s + self._all_reduce(row))

    def _all_reduce(self, row: OperatorRow) -> float:
        event = CommEvent(
            collective="all_reduce",
            bytes=_FP16 * row.seq * row.key.micro_batch * row.hidden,
            group_size=row.key.tp,
            per_node=row.key.tp,
            level=0,
        )
        price = self.collectives.lookup(event)
        return price.seconds if price else float("inf")

    def _weight_gradient(self, row: OperatorRow, plan: MeasuredPlan) -> float:
        if row.weight_gradient_inside:
            return 0.0
        sizes = row.matmul
        if row.key.op == HEAD:
            tokens = row.seq * row.key.micro_batch
            sizes = (tokens, plan.vocab // row.key.tp, row.hidden)
        if sizes is None:
            return 0.0
        turned = (sizes[0], sizes[2], sizes[1])
        return matmul_flops(sizes) / self.rate(sizes, turned)

    def _accumulation(self, row: OperatorRow) -> float:
        if row.matmul is None and row.key.op != HEAD:
            return 0.0
        return row.weight_bytes / _FP16 * _ACCUMULATION_BYTES / self.stream_bytes_per_s


def _within(sizes: Matmul, limits: Matmul) -> bool:
    return all(size <= limit for size, limit in zip(sizes, limits, strict=True))
