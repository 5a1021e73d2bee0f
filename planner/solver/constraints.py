"""Rules of a placement: one method each, its inequality in the docstring, and one list that calls them."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from costmodel.timeline import CriticalPath
from planner.solver.variables import Expression, PlacementVariables


class Constraints:
    """Adds the rules to a model.

    Symbols: n_s layers and r_s recomputed layers of stage s; f_s, b_s its forward and backward, t_s their sum;
    P_s, PF_s what a micro-batch takes before stage s, R_s after it; D_s the finish; w_s = min(m, p - s); O the
    iteration.
    """

    def __init__(self, variables: PlacementVariables, paths: Iterable[CriticalPath]) -> None:
        self.variables, self.paths = variables, tuple(paths)
        self.model, self.given = variables.model, variables.given
        self.stages, self.m = variables.stages, variables.given.shape.microbatches

    def add_all(self) -> None:
        """Call every rule."""
        self.stages_hold_layers()
        self.recomputes_what_it_holds()
        self.memory_fits()
        {
            "1f1b": self.chain_with_idle,
            "gpipe": self.two_flow_shops,
            "zero_bubble": self.split_backward,
            "no_flush": self.steady_state,
        }[self.given.shape.schedule]()
        self.mean_stage()
        self.critical_paths()

    def stages_hold_layers(self) -> None:
        """n_s >= 1."""
        for low, high in self._pairs():
            self._require(high - low >= 1)

    def recomputes_what_it_holds(self) -> None:
        """r_s <= n_s."""
        for stage, (low, high) in zip(self.stages, self._pairs(), strict=True):
            if not self.given.recompute_all:
                self._require(self.variables.recomputed[stage] <= high - low)

    def memory_fits(self) -> None:
        """kept_s(n, r) + w_s flight_s(n, r) + once [r_s > 0] <= limit, at every moment."""
        for stage in self.stages:
            once = self._recomputes_at_all(stage)
            for row, chunks in zip(self.given.memory, self.given.chunk_memory, strict=True):
                held = self.variables.value(chunks[stage][0], stage)
                total = held + row.kept.fixed + row.recompute_once * once
                self._require(total <= self.given.limit_kib)

    def _recomputes_at_all(self, stage: int) -> Expression:
        """u_s in {0, 1} with r_s <= n_max u_s."""
        recomputed = self.variables.recomputed[stage]
        if self.given.recompute_all or isinstance(recomputed, int):
            return int(self.given.recompute_all)
        once = self.model.new_bool_var("")
        self.model.add(recomputed == 0).only_enforce_if(~once)
        return once

    def chain_with_idle(self) -> None:
        """P_s + m t_s + Q_s <= O, and with R_s - (w_s-1) f_s, R_s - (w_s-1) b_s, or both added if m > w_s.

        Q_s >= D_e - PB_e for e <= s: the last backward goes back to rank e, which ends with its finish.
        Likewise PF_s + m t_s + .. + D_s <= O for paths that end on rank s. 1F1B only.
        """
        v, ending = self.variables, self._endings()
        for stage in self.stages:
            flight = min(self.m, len(self.stages) - stage)
            busy = self.m * (v.forward[stage] + v.backward[stage])
            after = self._after(stage)
            first = after - (flight - 1) * v.forward[stage]
            last = after - (flight - 1) * v.backward[stage]
            idles = [0, first, last] + [first + last] * (self.m > flight)
            for idle in idles:
                self._row(v.before[stage] + busy + idle + ending[stage])
                self._row(v.forward_before[stage] + busy + idle + v.finish[stage])

    def _endings(self) -> list[Expression]:
        """Return Q_s = max_{e <= s} (D_e - PB_e) by stage."""
        v, endings = self.variables, [self.variables.finish[0]]
        for stage in self.stages[1:]:
            ending = self.model.new_int_var(-(1 << 50), 1 << 50, "")
            below = v.before[stage] - v.forward_before[stage]
            self.model.add(ending >= endings[-1])
            self.model.add(ending >= v.finish[stage] - below)
            endings.append(ending)
        return endings

    def _after(self, stage: int) -> Expression:
        """Return R_s, which starts with the hop behind stage s."""
        v = self.variables
        return v.before[-1] - v.before[stage] - v.forward[stage] - v.backward[stage]

    def two_flow_shops(self) -> None:
        """PF_p + (m-1) F + sum_{j>=s} (b_j + c) + (m-1) B_s + D_s <= O; F >= f_j; B_s >= b_j for j >= s.

        Exact for GPipe.
        """
        v = self.variables
        slowest, behind = self._largest(v.forward), []
        for stage in reversed(self.stages):
            behind.append(v.backward[stage])
            worst = self._largest(behind)
            rest = v.before[-1] - v.before[stage] - v.forward_before[-1] + v.forward_before[stage]
            steps = (self.m - 1) * (slowest + worst)
            self._row(v.forward_before[-1] + rest + steps + v.finish[stage])

    def _largest(self, times: list[Expression]) -> Expression:
        largest = self.model.new_int_var(0, 1 << 50, "")
        for time in times:
            self.model.add(largest >= time)
        return largest

    def split_backward(self) -> None:
        """PF_s + m t_s + D_s <= O, also with R'_s - (w_s-1) f_s added, R' without weight gradients. ZB-H1 only."""
        v = self.variables
        for stage in self.stages:
            flight = min(self.m, len(self.stages) - stage)
            busy = self.m * (v.forward[stage] + v.backward[stage])
            after = self._after(stage) - sum(v.weight[stage + 1 :])
            for idle in (0, after - (flight - 1) * v.forward[stage]):
                self._row(v.forward_before[stage] + busy + idle + v.finish[stage])

    def steady_state(self) -> None:
        """Rank s is busy all the time: m t_s + D_s <= O. Exact without flush."""
        v = self.variables
        for stage in self.stages:
            self._row(self.m * (v.forward[stage] + v.backward[stage]) + v.finish[stage])

    def mean_stage(self) -> None:
        """(m+p-1) sum t + p D_0 <= p (O - latency), for 1F1B with m > p and for GPipe."""
        v, stages = self.variables, len(self.stages)
        schedule = self.given.shape.schedule
        apart = schedule in ("zero_bubble", "no_flush")
        if stages == 1 or apart or (schedule == "1f1b" and self.m <= stages):
            return
        hops = 2 * sum(self.given.transfer_ns[: stages - 1])
        compute = v.before[-1] - hops
        often = 1
        if schedule == "1f1b" and len(set(self.given.transfer_ns[: stages - 1])) == 1:
            often = -(-self.m // stages)
        left = (self.m + stages - 1) * compute + stages * (v.finish[0] + often * hops)
        self._require(left <= stages * v.iteration)

    def critical_paths(self) -> None:
        """sum_s (F_s f_s + B_s b_s + W_s w_s) + transfers + D_e <= O for every path known.

        A path visits tasks of the schedule, so its length is below the iteration of every placement.
        """
        v, hops = self.variables, self._hops()
        for path in self.paths:
            total = v.finish[path.rank]
            total += sum(count * hop for count, hop in zip(path.transfer, hops, strict=True))
            for stage in self.stages:
                total += path.forward[stage] * v.forward[stage]
                total += path.backward[stage] * v.backward[stage]
                rest = path.weight[stage] - path.backward[stage]
                if self.given.shape.schedule == "zero_bubble" and rest:
                    total += rest * v.weight[stage]
            self._row(total)

    def _hops(self) -> Sequence[Expression]:
        """Return the transfer over each boundary; no path of one chunk a rank takes the last, which wraps around."""
        return self.given.transfer_ns

    def _row(self, time: Expression) -> None:
        self._require(time <= self.variables.iteration)

    def _require(self, rule: Expression) -> None:
        """Add a rule; one between integers alone must hold already, or the model has no solution."""
        if isinstance(rule, bool):
            if not rule:
                self.model.add_bool_or([])
        else:
            self.model.add(rule)

    def _pairs(self) -> Iterable[tuple[Expression, Expression]]:
        return pairwise(self.variables.cuts)
