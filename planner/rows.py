"""Lower bounds of the iteration that look at one stage each, for all stages and ranges of layers at once.

Every row is a longest-path argument over the schedule. With P_s, R_s the time of one micro-batch before and after
stage s (forward and backward, transfers included), PF_s the forward part of P_s, t = f + b, w_s = min(m, p - s) and D
the finish, an iteration takes at least

    1F1B       P_s + m t_s + [R_s - (w_s-1) f_s]^+ + [R_s - (w_s-1) b_s]^+ + Q_s    (the larger bracket if m <= w_s)
    GPipe      P_s + t_s + R_s + (m-1) t_s + Q_s
    ZB-H1      P'_s + m t'_s + max(0, m-1-s) w_s + [R'_s - (w_s-1) f_s]^+ + min w + Q_s    (' without weight gradients)

    no flush   m t_s + D_s

and with PF_s, all of t_s and D_s for paths that end on rank s. The brackets are idle time: rank s waits for its first
and for its last backward, less what it computes meanwhile. The last backward travels back to some rank e <= s that ends
with its finish: Q_s = max_{e<=s} (D_e - PB_e), with PB_e the backwards that remain below e.
"""

from functools import cached_property

import numpy as np

from planner.coefficients import Coefficients, Ints
from planner.stage_tables import NEVER, StageTables


class Rows:
    """The rows of a strategy with one chunk a rank.

    A row is what precedes the stage plus a part that only depends on the stage and its range. ``to_first`` and
    ``to_own`` are those parts for paths that go back to an earlier rank (its finish excluded) and that end on
    the stage's own rank (its finish included); ``step`` is what a stage adds to what precedes ``to_first``.
    They are computed stage by stage, which keeps them in the processor's cache.

    Attributes:
        before, forward_before, after: Least sums before and after each cut, by its position.
        total: Least time of one micro-batch through all stages.
    """

    def __init__(self, given: Coefficients, tables: StageTables) -> None:
        self.given, self.tables = given, tables
        self.stages, self.m = tables.stages, given.shape.microbatches
        self.hops = np.array([*given.transfer_ns[: self.stages - 1], 0], dtype=np.int64)
        self.split = given.shape.schedule == "zero_bubble"
        self.flushes = given.shape.schedule != "no_flush"
        self.step = tables.forward + tables.backward - (tables.weight if self.split else 0)
        self.before = self._least_before(self.step, 2)
        self.forward_before = self._least_before(tables.forward, 1)
        self.after = self._least_after(self.step, 2)
        self.total = int(self.before[-1].min())
        self.least_finish = int(tables.finish[0].min(initial=NEVER, where=tables.legal[0]))
        if not self.flushes:
            # An iteration starts where the one before ends: nothing precedes a stage.
            self.before, self.forward_before = (
                np.zeros_like(self.before),
                np.zeros_like(self.before),
            )

    @cached_property
    def ending(self) -> Ints:
        """Finish of a stage less the most that the backwards below it can take: least part in Q."""
        back = self._most_before(self.step - self.tables.forward)
        return np.asarray(self.tables.finish - back[:-1][:, :, None])

    def _least_before(self, values: Ints, hops: int) -> Ints:
        """Return the least sum of ``values`` over the stages before each cut, by its position."""
        legal, least = self.tables.legal, [np.zeros(values.shape[1], dtype=np.int64)]
        for stage in range(self.stages):
            step = np.where(legal[stage], values[stage], NEVER) + least[-1][:, None]
            least.append(np.minimum(step.min(axis=0) + hops * self.hops[stage], NEVER))
        return np.stack(least)

    def _most_before(self, values: Ints) -> Ints:
        """Return the largest sum of ``values`` and hops over the stages before each cut, by its position."""
        legal, most = self.tables.legal, [np.zeros(values.shape[1], dtype=np.int64)]
        for stage in range(self.stages):
            step = np.where(legal[stage], values[stage] + most[-1][:, None], 0)
            most.append(step.max(axis=0) + self.hops[stage])
        return np.stack(most)

    def _least_after(self, values: Ints, hops: int) -> Ints:
        """Return the least sum of ``values`` over the stages after each cut, by its position."""
        legal, least = self.tables.legal, [np.zeros(values.shape[1], dtype=np.int64)]
        for stage in reversed(range(self.stages)):
            step = np.where(legal[stage], values[stage], NEVER) + least[-1][None, :]
            hop = hops * self.hops[stage - 1] if stage else 0
            least.append(np.minimum(step.min(axis=1) + hop, NEVER))
        return np.stack(least[::-1])

    def parts(self, stage: int) -> tuple[Ints, Ints]:
        """Return ``to_first`` and ``to_own`` of a stage."""
        forms = {
            "gpipe": self._gpipe,
            "no_flush": self._steady,
            "zero_bubble": self._zero_bubble,
        }
        return forms.get(self.given.shape.schedule, self._wave)(stage)

    def _flight(self, stage: int) -> int:
        return min(self.m, self.stages - stage)

    def _wave(self, stage: int) -> tuple[Ints, Ints]:
        """1F1B."""
        t, after, more = self.tables, self.after[stage + 1][None, :], self._flight(stage) - 1
        wait = np.maximum(after - more * t.forward[stage], 0)
        last = np.maximum(after - more * t.backward[stage], 0)
        busy = self.m * self.step[stage]
        busy += wait + last if self.m > more + 1 else np.maximum(wait, last)
        return busy, busy + t.finish[stage]

    def _gpipe(self, stage: int) -> tuple[Ints, Ints]:
        through = self.m * self.step[stage] + self.after[stage + 1][None, :]
        return through, through + self.tables.finish[stage]

    def _steady(self, stage: int) -> tuple[Ints, Ints]:
        """Without flush only the work of the stage itself counts."""
        busy = self.m * self.step[stage]
        return np.zeros_like(busy), busy + self.tables.finish[stage]

    def _zero_bubble(self, stage: int) -> tuple[Ints, Ints]:
        """ZB-H1: before its last input gradient, rank s has done m - 1 - s weight gradients."""
        t, m = self.tables, self.m
        wait = self.after[stage + 1][None, :] - (self._flight(stage) - 1) * t.forward[stage]
        wait = np.maximum(wait, 0)
        done = max(m - 1 - stage, 0) * t.weight[stage]
        to_first = wait + m * self.step[stage] + done + self._least_weight
        busy = m * (t.forward[stage] + t.backward[stage])
        return to_first, wait + busy + t.finish[stage]

    @cached_property
    def _least_weight(self) -> int:
        return int(self.tables.weight.min(initial=NEVER, where=self.tables.legal))

    def values(self) -> Ints:
        """Return ``larger`` of all stages."""
        return np.stack([self.larger(stage) for stage in range(self.stages)])

    def larger(self, stage: int) -> Ints:
        """Return the larger row of a stage, with the least time before it and the least Q; NEVER where not legal."""
        value = np.maximum(*self._rows(stage))
        return np.where(self.tables.legal[stage], value, NEVER)

    def stage(self, stage: int) -> tuple[Ints, Ints]:
        """Return both rows of a stage, the first with the least finish of rank 0; NEVER where not legal."""
        back, own = self._rows(stage)
        legal = self.tables.legal[stage]
        return np.where(legal, back, NEVER), np.where(legal, own, NEVER)

    def _rows(self, stage: int) -> tuple[Ints, Ints]:
        to_first, to_own = self.parts(stage)
        back = (self.before[stage] + self.least_finish)[:, None] + to_first
        return back, self.forward_before[stage][:, None] + to_own

    def textbook(self) -> int:
        """Return (m + p - 1) / p * sum t with latency once per p micro-batches, for 1F1B with m > p.

        A mean over the stages, so it holds for every split; for m <= p the mean of the simple chain rows,
        sum t / (1 - (1 - 1/m)^p), is the valid one.
        """
        m, p, schedule = self.m, self.stages, self.given.shape.schedule
        if p == 1 or schedule in ("zero_bubble", "no_flush"):
            return 0
        latency = 2 * int(self.hops.sum())
        compute = self.total - latency
        if schedule == "gpipe" or m > p:
            equal = len(set(self.given.transfer_ns[: p - 1])) == 1
            often = -(-m // p) if equal and schedule == "1f1b" else 1
            return -(-(m + p - 1) * compute // p) + often * latency + self.least_finish
        return int(compute / (1 - (1 - 1 / m) ** p) * (1 - 1e-12)) + self.least_finish
