"""Lower bound and a good placement of one strategy, by dynamic programming over cut positions.

Every row of the bound is the time of one stage plus lower bounds of what comes before and after it, so the smallest
possible maximum over stages is found stage by stage (a bottleneck path through the cut positions). It works for any
sequence of layer kinds and respects the memory of each stage. The rows are longest-path arguments over the schedule:
with P_s, R_s the time of one micro-batch before and after stage s (forward and backward, transfers included),
t = f + b, w_s = min(m, p - s) and D the finish,

    1F1B       P_s + m t_s + [R_s - (w_s-1) f_s]^+ + [R_s - (w_s-1) b_s]^+ + D_0    (one bracket if m <= w_s)
    GPipe      sum t + (m-1) t_s + D_0
    ZB-H1      PF_s + m t_s + [R_s - (w_s-1) f_s]^+ + D_s
    no flush   m t_s + D_s

and likewise for paths that end on rank s.
"""

from dataclasses import dataclass

import numpy as np

from planner.coefficients import Arrangement, Coefficients
from planner.stage_tables import (
    NEVER,
    Ints,
    StageTables,
    Windows,
    stage_tables,
    whole_windows,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementBound:
    """What the dynamic programme found.

    Attributes:
        bound_ns: No placement within the windows is faster.
        arrangement: A placement that attains the smallest maximum of the rows.
    """

    bound_ns: int
    arrangement: Arrangement


def placement_bound(given: Coefficients, cutoff_ns: int | None = None) -> PlacementBound | None:
    """Bound the iteration of every placement of a strategy with one chunk a rank.

    Args:
        given: The strategy's coefficients.
        cutoff_ns: Placements known to take at least this long need not be looked at.

    Returns:
        None where no placement fits, or none takes less than the cutoff.
    """
    windows = narrow_windows(given, cutoff_ns)
    if windows is None:
        return None
    rows = Rows(given, stage_tables(given, windows))
    found = rows.smallest_maximum()
    if found is None:
        return None
    bound, cuts = found
    if cutoff_ns is not None and bound >= cutoff_ns:
        return None
    return PlacementBound(bound_ns=bound, arrangement=rows.arrangement(cuts))


def narrow_windows(given: Coefficients, cutoff_ns: int | None) -> Windows | None:
    """Return the cut positions of all placements that can take less than ``cutoff_ns``.

    A rank is busy for m t_s, after the forwards and before the backwards of one micro-batch on all other
    ranks before it; what a stage can hold within the cutoff bounds its cuts from both sides.
    """
    stages, layers = given.shape.ranks, len(given.layer_kinds)
    windows = whole_windows(layers, stages)
    if layers < stages or cutoff_ns is None:
        return windows if layers >= stages else None
    low, high = windows.low.copy(), windows.high.copy()
    per_layer = np.array(given.forward.layer) + np.array(given.backward.layer)
    work = np.array(given.counts, dtype=np.int64) @ per_layer.astype(np.int64)
    room = _room(given, cutoff_ns, work)
    if (room < 0).any():  # a stage exceeds the cutoff with no layer at all
        return None
    for stage in range(stages):
        reach = np.searchsorted(work, work[high[stage]] + room[stage], side="right") - 1
        high[stage + 1] = min(high[stage + 1], reach)
    for stage in reversed(range(stages)):
        reach = np.searchsorted(work, work[low[stage + 1]] - room[stage], side="left")
        low[stage] = max(low[stage], reach)
    return None if (low > high).any() else Windows(low, high)


def _room(given: Coefficients, cutoff_ns: int, work: Ints) -> Ints:
    """Return by stage the most layer time one micro-batch may take."""
    forward, backward, m = given.forward, given.backward, given.shape.microbatches
    stages = given.shape.ranks
    ends = np.full(stages, forward.fixed + backward.fixed, dtype=np.int64)
    ends[0] += forward.first + backward.first
    ends[-1] += forward.last + backward.last
    total = int(work[-1]) + int(ends.sum())
    if given.shape.schedule == "gpipe":
        share = (cutoff_ns - 1 - given.fixed_ns - total) // max(1, m - 1) if m > 1 else total
        return np.asarray(min(share, total) - ends)
    flight = np.minimum(m, stages - np.arange(stages))
    busy = (cutoff_ns - 1 - given.fixed_ns) // m - ends
    if given.shape.schedule in ("zero_bubble", "no_flush"):
        return busy
    # T >= sum t + (m - w_s) t_s for 1F1B: the "both" row of the idle brackets without R_s.
    rest = np.maximum(m - flight, 1)
    both = np.where(m > flight, (cutoff_ns - 1 - given.fixed_ns - total) // rest - ends, busy)
    return np.minimum(busy, both)


class Rows:
    """The rows of the bound for all stages and ranges at once."""

    def __init__(self, given: Coefficients, tables: StageTables) -> None:
        self.given, self.tables = given, tables
        self.stages, self.m = tables.stages, given.shape.microbatches
        self.hops = np.array([*given.transfer_ns[: self.stages - 1], 0], dtype=np.int64)
        self.forward_before = self._least_before(tables.forward)
        self.before = self._least_before(tables.forward + tables.backward, 2)
        self.after = self._least_after(tables.forward + tables.backward, 2)
        self.total = int(self.before[-1].min())

    def _least_before(self, values: Ints, hops: int = 1) -> Ints:
        """Return the least sum of ``values`` over the stages before each cut, by its position."""
        legal, least = self.tables.legal, [np.zeros(values.shape[1], dtype=np.int64)]
        for stage in range(self.stages):
            step = np.where(legal[stage], values[stage], NEVER) + least[-1][:, None]
            least.append(np.minimum(step.min(axis=0) + hops * self.hops[stage], NEVER))
        return np.stack(least)

    def _least_after(self, values: Ints, hops: int) -> Ints:
        """Return the least sum of ``values`` over the stages after each cut, by its position."""
        legal, least = self.tables.legal, [np.zeros(values.shape[1], dtype=np.int64)]
        for stage in reversed(range(self.stages)):
            step = np.where(legal[stage], values[stage], NEVER) + least[-1][None, :]
            hop = hops * self.hops[stage - 1] if stage else 0
            least.append(np.minimum(step.min(axis=1) + hop, NEVER))
        return np.stack(least[::-1])

    def smallest_maximum(self) -> tuple[int, list[int]] | None:
        """Return the bound and the positions of the cuts that attain the smallest maximum."""
        if self.total >= NEVER:
            return None
        rows = np.where(self.tables.legal, self._rows(), NEVER)
        reached, back = np.zeros(rows.shape[1], dtype=np.int64), []
        for stage in range(self.stages):
            worst = np.maximum(rows[stage], reached[:, None])
            back.append(worst.argmin(axis=0))
            reached = worst.min(axis=0)
        if reached[0] >= NEVER:
            return None
        offset, offsets = 0, [0]
        for choice in reversed(back):
            offset = int(choice[offset])
            offsets.append(offset)
        low = self.tables.windows.low
        cuts = [int(low[cut]) + offset for cut, offset in enumerate(reversed(offsets))]
        return max(int(reached[0]), self._textbook()), cuts

    def arrangement(self, cuts: list[int]) -> Arrangement:
        """Return the placement with these cuts and the fewest recomputed layers."""
        low = self.tables.windows.low
        at = [cut - int(low[index]) for index, cut in enumerate(cuts)]
        again = [int(self.tables.recomputed[s, at[s], at[s + 1]]) for s in range(self.stages)]
        return Arrangement(tuple(cuts), tuple(again))

    def _finish_of_first(self) -> int:
        """Return the least finish of rank 0."""
        return int(np.where(self.tables.legal[0], self.tables.finish[0], NEVER).min())

    def _textbook(self) -> int:
        """Return (m + p - 1) / p * sum t with latency once per p micro-batches, for 1F1B with m > p.

        A mean over the stages, so it holds for every split; for m <= p the mean of the simple chain rows,
        sum t / (1 - (1 - 1/m)^p), is the valid one.
        """
        m, p = self.m, self.stages
        if self.given.shape.schedule in ("zero_bubble", "no_flush"):
            return 0
        latency = 2 * sum(self.given.transfer_ns[: p - 1])
        compute, finish = self.total - latency, self._finish_of_first()
        if self.given.shape.schedule == "gpipe" or (m > p and p > 1):
            once = -(-m // p) if self._equal_hops() and self.given.shape.schedule == "1f1b" else 1
            return -(-(m + p - 1) * compute // p) + once * latency + finish
        return int(compute / (1 - (1 - 1 / m) ** p) * (1 - 1e-12)) + finish if p > 1 else 0

    def _equal_hops(self) -> bool:
        return len(set(self.given.transfer_ns[: self.stages - 1])) <= 1

    def _rows(self) -> Ints:
        schedule = self.given.shape.schedule
        if schedule == "gpipe":
            return self._gpipe_rows()
        if schedule == "no_flush":
            busy = self.m * (self.tables.forward + self.tables.backward)
            return np.asarray(busy + self.tables.finish)
        return self._zero_bubble_rows() if schedule == "zero_bubble" else self._wave_rows()

    def _wave_rows(self) -> Ints:
        """Return the 1F1B rows."""
        t, m = self.tables, self.m
        flight = np.minimum(m, self.stages - np.arange(self.stages))[:, None, None]
        after = self.after[1:][:, None, :]
        wait = np.maximum(after - (flight - 1) * t.forward, 0)
        last = np.maximum(after - (flight - 1) * t.backward, 0)
        idle = np.where(m > flight, wait + last, np.maximum(wait, last))
        busy = m * (t.forward + t.backward) + idle
        to_first = self.before[:-1][:, :, None] + busy + self._first_finish()
        to_own = self.forward_before[:-1][:, :, None] + busy + t.finish
        return np.maximum(to_first, to_own)

    def _first_finish(self) -> Ints:
        """Return the finish of rank 0: exact in its own rows, the least one in those of other stages."""
        finish = np.full_like(self.tables.finish, self._finish_of_first())
        finish[0] = self.tables.finish[0]
        return finish

    def _gpipe_rows(self) -> Ints:
        t, m = self.tables, self.m
        after = self.after[1:][:, None, :]
        once = self.before[:-1][:, :, None] + t.forward + t.backward + after
        to_first = once + (m - 1) * (t.forward + t.backward) + self._first_finish()
        own = self.forward_before[:-1][:, :, None] + m * (t.forward + t.backward) + after
        return np.asarray(np.maximum(to_first, own + t.finish))

    def _zero_bubble_rows(self) -> Ints:
        """Return the ZB-H1 rows: the path that stays on s, and the one that goes back to rank 0.

        Only input gradients are waited for, so what comes after and before counts without weight gradients;
        before its last input gradient rank s has done m - 1 - s weight gradients.
        """
        t, m, stages = self.tables, self.m, np.arange(self.stages)[:, None, None]
        flight = np.minimum(m, self.stages - stages)
        wait = self._least_after(t.forward + t.backward - t.weight, 2)[1:][:, None, :]
        wait = np.maximum(wait - (flight - 1) * t.forward, 0)
        start = self.forward_before[:-1][:, :, None] + wait
        own = start + m * (t.forward + t.backward) + t.finish
        back = self._least_before(t.backward - t.weight)[:-1][:, :, None]
        done = np.maximum(m - 1 - stages, 0)
        last_weight = np.where(t.legal[0], t.weight[0], NEVER).min()
        to_first = start + m * (t.forward + t.backward - t.weight) + done * t.weight + back
        rest = np.where(stages > 0, last_weight, t.weight)
        return np.asarray(np.maximum(own, to_first + rest + self._first_finish()))
