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

import numpy as np

from planner.coefficients import Coefficients, Ints
from planner.stage_tables import NEVER, StageTables


class Rows:
    """The rows of a strategy with one chunk a rank.

    A row is what precedes the stage plus a part that only depends on the stage and its range. ``to_first`` and
    ``to_own`` are those parts for paths that go back to an earlier rank (its finish excluded) and that end on
    the stage's own rank (its finish included); ``step`` is what a stage adds to what precedes ``to_first``.

    Attributes:
        before, forward_before, after: Least sums before and after each cut, by its position.
        ending: Finish of a stage less the most that the backwards below it can take: least part in Q.
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
        self.to_first, self.to_own = self._parts()
        back = self._most_before(self.step - tables.forward)
        self.ending = tables.finish - back[:-1][:, :, None]

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

    def _parts(self) -> tuple[Ints, Ints]:
        schedule = self.given.shape.schedule
        if schedule == "gpipe":
            return self._gpipe()
        if schedule == "no_flush":
            return self._steady()
        return self._zero_bubble() if schedule == "zero_bubble" else self._wave()

    def _wave(self) -> tuple[Ints, Ints]:
        """1F1B."""
        t, m, after = self.tables, self.m, self.after[1:][:, None, :]
        flight = np.minimum(m, self.stages - np.arange(self.stages))[:, None, None]
        wait = np.maximum(after - (flight - 1) * t.forward, 0)
        last = np.maximum(after - (flight - 1) * t.backward, 0)
        busy = m * self.step + np.where(m > flight, wait + last, np.maximum(wait, last))
        return busy, busy + t.finish

    def _gpipe(self) -> tuple[Ints, Ints]:
        through = self.m * self.step + self.after[1:][:, None, :]
        return through, through + self.tables.finish

    def _steady(self) -> tuple[Ints, Ints]:
        """Without flush an iteration starts where the one before ends: nothing precedes a stage."""
        self.before, self.forward_before = np.zeros_like(self.before), np.zeros_like(self.before)
        busy = self.m * self.step
        return np.zeros_like(busy), busy + self.tables.finish

    def _zero_bubble(self) -> tuple[Ints, Ints]:
        """ZB-H1: before its last input gradient, rank s has done m - 1 - s weight gradients."""
        t, m, stages = self.tables, self.m, np.arange(self.stages)[:, None, None]
        flight = np.minimum(m, self.stages - stages)
        wait = np.maximum(self.after[1:][:, None, :] - (flight - 1) * t.forward, 0)
        least = int(t.weight.min(initial=NEVER, where=t.legal))
        done = np.maximum(m - 1 - stages, 0) * t.weight
        to_first = wait + m * self.step + done + least
        return to_first, wait + m * (t.forward + t.backward) + t.finish

    def values(self) -> Ints:
        """Return the larger row of each stage and range, with the least time before it and the least Q."""
        return np.stack([np.maximum(*self.stage(stage)) for stage in range(self.stages)])

    def stage(self, stage: int) -> tuple[Ints, Ints]:
        """Return both rows of a stage, the first with the least finish of rank 0; NEVER where not legal."""
        legal = self.tables.legal[stage]
        back = self.before[stage][:, None] + self.to_first[stage] + self.least_finish
        own = self.forward_before[stage][:, None] + self.to_own[stage]
        return np.where(legal, back, NEVER), np.where(legal, own, NEVER)

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
