"""A makespan bound by refutation: for a given T, no choice of modes satisfies all rows.

The rows bind the choice of modes of all jobs together, which a bound per job cannot: a mode that is cheap in
energy may be too long to share a node with anything. CP-SAT decides the choice exactly. Rows come from the families
of planner.pool.bound and, where those admit a choice, from the cutting-stock program of that very choice.
"""

from collections import Counter
from dataclasses import dataclass

from ortools.sat.python import cp_model

from planner.pool.bound import Row, dual_feasible, energy_bound, rows_within
from planner.pool.cutting import Prices
from planner.pool.instance import Instance, Mode
from planner.pool.solver_cutting import refuting_prices

# Deterministic seconds per choice; one that ends undecided counts as not refuted.
_SECONDS_PER_CHOICE = 1.0
# The search for the largest refuted T stops at this share of T.
_RESOLUTION = 1e-4
# With made-to-measure rows it stops at this share, or after so many of them in all.
_CUT_RESOLUTION = 2e-3
_MAX_CUTS = 60
# With more different durations than this fewer rows: with 30 they raised the bound by 2.4 % and led to schedules 3 %
# shorter, with 120 they left the bound as it was at a second each (benchmarks/pool.py).
_MANY_LENGTHS = 60
_FEW_CUTS = 8
# Choices kept, those of the smallest T.
_MAX_CHOICES = 4

Choice = tuple[tuple[Mode, ...], ...]
_Chosen = list[tuple[cp_model.IntVar, Mode]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What is proven of the objective, and choices of modes that the proof could not exclude.

    Attributes:
        value: No schedule does better.
        choices: The mode of each piece of each job; promising, as every relaxation admits them.
    """

    value: int
    choices: tuple[Choice, ...] = ()


def makespan_bound(instance: Instance, known: int, *, cuts: int = _MAX_CUTS) -> Bound:
    """Return a T that no schedule undercuts, at least the energy bound.

    Args:
        instance: The pool.
        known: Makespan of some schedule, where the search for the bound ends.
        cuts: Made-to-measure rows to add at most.
    """
    low = min(energy_bound(instance), known)
    if _lengths(instance) > _MANY_LENGTHS:
        cuts = min(cuts, _FEW_CUTS)
    refuter = _Refuter(instance, cuts)
    choices: list[Choice] = []
    proven = _largest_refuted(refuter, low - 1, known, _RESOLUTION, choices, sharp=False)
    if cuts:
        choices = []
        proven = _largest_refuted(refuter, proven, known, _CUT_RESOLUTION, choices, sharp=True)
    value = max(low, min(proven + 1, known))
    return Bound(value=value, choices=tuple(choices[-_MAX_CHOICES:]))


def _lengths(instance: Instance) -> int:
    return len({m.ticks for work in instance.works for piece in work.pieces for m in piece})


def is_refuted(instance: Instance, ticks: int) -> bool:
    """Return whether it is proven that not everything can be done within ``ticks``."""
    return _Refuter(instance, _MAX_CUTS).choice(ticks, sharp=True) is None


def _largest_refuted(
    refuter: "_Refuter",
    low: int,
    high: int,
    resolution: float,
    choices: list[Choice],
    *,
    sharp: bool,
) -> int:
    """Return a refuted T by halving, and append what was not; ``low`` is refuted, ``high`` not tested."""
    at = low + 1
    while high - low > max(1, resolution * low):
        choice = refuter.choice(at, sharp=sharp)
        if choice is None:
            low = at
        else:
            high = at
            if choice not in choices:
                choices.append(choice)
        at = (low + high) // 2
    return low


class _Refuter:
    """Asks for choices of modes within T; prices found for one T make rows for all."""

    def __init__(self, instance: Instance, cuts: int) -> None:
        self._instance = instance
        self._cuts = cuts
        self._prices: list[tuple[int, Prices]] = []

    def choice(self, ticks: int, *, sharp: bool) -> Choice | None:
        """Return a choice of modes that obeys all rows within ``ticks``, None if it is proven there is none.

        Args:
            ticks: T.
            sharp: Whether to look for rows made to measure where the families admit a choice.
        """
        model = cp_model.CpModel()
        chosen = _choose_all(model, self._instance, ticks)
        if chosen is None:
            return None
        for group in range(len(self._instance.capacities)):
            _add_families(model, self._instance, group, ticks, chosen)
        for group, prices in self._prices if sharp else ():
            self._add_priced(model, group, prices, ticks, chosen)
        while True:
            picked = _solved(model, chosen)
            if picked is None:
                return None
            if not (sharp and self._cuts and self._sharpen(model, picked, ticks, chosen)):
                return _by_work(self._instance, picked)

    def _sharpen(
        self, model: cp_model.CpModel, picked: list[Mode], ticks: int, chosen: list[_Chosen]
    ) -> bool:
        """Add a row that excludes ``picked``; return whether there is one."""
        for group, capacity in enumerate(self._instance.capacities):
            demand: Counter[int] = Counter()
            for mode in picked:
                if mode.group == group:
                    demand[mode.ticks] += mode.nodes
            prices = refuting_prices(demand, capacity, _length(self._instance, group, ticks))
            if prices is not None:
                self._cuts -= 1
                self._prices.append((group, prices))
                self._add_priced(model, group, prices, ticks, chosen)
                return True
        return False

    def _add_priced(
        self, model: cp_model.CpModel, group: int, prices: Prices, ticks: int, chosen: list[_Chosen]
    ) -> None:
        capacity = self._instance.capacities[group]
        terms = _terms(chosen, group)
        weights = prices.weights(
            sorted({mode.ticks for _, mode in terms}), _length(self._instance, group, ticks)
        )
        nodes = dual_feasible(sorted({mode.nodes for _, mode in terms}), capacity)[0]
        _add_row(model, Row(nodes=nodes, ticks=weights), terms)


def _choose_all(model: cp_model.CpModel, instance: Instance, ticks: int) -> list[_Chosen] | None:
    """Return a literal per mode of each piece; None if some piece has no mode that is short enough."""
    chosen: list[_Chosen] = []
    for work in instance.works:
        own = [_choose(model, instance, piece, ticks) for piece in work.pieces]
        if not all(own):
            return None
        model.add(sum(b * mode.ticks for piece in own for b, mode in piece) <= ticks)
        chosen += own
    return chosen


def _choose(
    model: cp_model.CpModel, instance: Instance, piece: tuple[Mode, ...], ticks: int
) -> _Chosen:
    own = [
        (model.new_bool_var(""), mode)
        for mode in piece
        if mode.ticks <= _length(instance, mode.group, ticks)
    ]
    if own:
        model.add_exactly_one(literal for literal, _ in own)
    return own


def _length(instance: Instance, group: int, ticks: int) -> int:
    first, end = instance.windows[group]
    return min(end, ticks) - first


def _terms(chosen: list[_Chosen], group: int) -> _Chosen:
    return [(b, mode) for piece in chosen for b, mode in piece if mode.group == group]


def _add_families(
    model: cp_model.CpModel, instance: Instance, group: int, ticks: int, chosen: list[_Chosen]
) -> None:
    terms = _terms(chosen, group)
    if not terms:
        return
    modes = (mode for _, mode in terms)
    for row in rows_within(modes, instance.capacities[group], _length(instance, group, ticks)):
        _add_row(model, row, terms)


def _add_row(model: cp_model.CpModel, row: Row, terms: _Chosen) -> None:
    model.add(sum(b * row.weight(mode) for b, mode in terms) <= row.limit)


def _solved(model: cp_model.CpModel, chosen: list[_Chosen]) -> list[Mode] | None:
    """Return the chosen modes; None if no choice is left. Undecided counts as any choice."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = _SECONDS_PER_CHOICE
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return [
            min((mode for _, mode in piece), key=lambda mode: mode.nodes * mode.ticks)
            for piece in chosen
        ]
    return [next(mode for b, mode in piece if solver.boolean_value(b)) for piece in chosen]


def _by_work(instance: Instance, picked: list[Mode]) -> Choice:
    modes = iter(picked)
    return tuple(tuple(next(modes) for _ in work.pieces) for work in instance.works)
