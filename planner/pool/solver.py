"""The shared schedule as a CP-SAT model: optional intervals per mode, cumulative nodes, energy rows."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from planner.pool.instance import Block, Instance, Mode, value_of
from planner.pool.model import Objective

# Jobs up to which ordering equal jobs helps; beyond, it slows the search (ten jobs
# of four types close in 0.04 s instead of over 12 s).
_ORDERED_JOBS = 20
# Jobs beyond which CP-SAT's strategies take turns in one deterministic order: 100 jobs came to 1.2 % instead of
# 2.0 % in 20 s, while 30 jobs stayed at 2.2 % instead of 1.6 % (benchmarks/pool.py).
_TURNS_FROM_JOBS = 60
_STRATEGIES = 8
# Deterministic seconds per second of the limit: the deterministic limit ends the search first, so that the
# same pool gives the same answer on any machine that is not far slower than the one this was set on.
_DETERMINISTIC_SHARE = 0.8
_DETERMINISTIC_SHARE_IN_TURNS = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One mode of one piece, with or without restart: ``literal`` says whether it runs so."""

    literal: cp_model.IntVar
    mode: Mode
    ticks: int
    restarted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceVariables:
    """Start, end and options of one piece."""

    work: int
    piece: int
    start: cp_model.IntVar
    end: cp_model.IntVar
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """All decisions: the pieces by job, the end of everything, and who is late."""

    pieces: tuple[tuple[PieceVariables, ...], ...]
    makespan: cp_model.IntVar
    late: tuple[cp_model.IntVar | None, ...]

    def options(self, group: int) -> list[tuple[PieceVariables, Option]]:
        """Return the options that use ``group``."""
        return [
            (piece, option)
            for job in self.pieces
            for piece in job
            for option in piece.options
            if option.mode.group == group
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the solver found: the schedule, if any, and a bound on the objective that no schedule undercuts.

    Attributes:
        infeasible: Whether it is proven that no schedule exists.
    """

    blocks: tuple[Block, ...] | None
    bound: int
    infeasible: bool = False


def solve(
    instance: Instance,
    known: Sequence[Block] | None,
    bound: int,
    gap: float,
    time_limit_s: float,
    workers: int = 1,
) -> Answer:
    """Improve ``known`` and the bound until they meet within ``gap`` or the time ends.

    Args:
        instance: The pool.
        known: A schedule to start from, if there is one.
        bound: A proven lower bound of the objective.
        gap: Relative distance at which the search may stop.
        time_limit_s: Wall seconds; with one worker a deterministic limit ends the search earlier.
        workers: Threads of CP-SAT; with more than one the answer may differ from run to run.
    """
    model = cp_model.CpModel()
    variables = _variables(model, instance, known)
    _add_rules(model, instance, variables)
    _minimize(model, instance, variables, bound)
    if known:
        _hint(model, instance, variables, known)
    solver = _solver(gap, time_limit_s, workers, len(instance.works) >= _TURNS_FROM_JOBS)
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Answer(blocks=tuple(known) if known else None, bound=bound, infeasible=not known)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    blocks = _blocks(solver, variables) if found else None
    best = min(
        (schedule for schedule in (blocks, known) if schedule),
        key=lambda schedule: value_of(instance, schedule),
        default=None,
    )
    proven = max(bound, _proven(instance, solver.best_objective_bound))
    return Answer(blocks=tuple(best) if best else None, bound=proven)


def _solver(gap: float, time_limit_s: float, workers: int, many: bool) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = workers
    parameters.random_seed = 0
    parameters.max_time_in_seconds = time_limit_s
    parameters.relative_gap_limit = gap
    if workers > 1:
        return solver
    share = _DETERMINISTIC_SHARE_IN_TURNS if many else _DETERMINISTIC_SHARE
    parameters.max_deterministic_time = time_limit_s * share
    if many:
        parameters.interleave_search = True
        parameters.num_workers = _STRATEGIES
    return solver


def _variables(
    model: cp_model.CpModel, instance: Instance, known: Sequence[Block] | None
) -> Variables:
    last = instance.horizon
    if known and instance.objective is Objective.MAKESPAN:
        last = value_of(instance, known)
    pieces = tuple(
        tuple(_piece(model, instance, job, piece, last) for piece in range(len(work.pieces)))
        for job, work in enumerate(instance.works)
    )
    late = tuple(
        None if work.deadline is None else model.new_bool_var("") for work in instance.works
    )
    return Variables(pieces=pieces, makespan=model.new_int_var(0, last, ""), late=late)


def _piece(
    model: cp_model.CpModel, instance: Instance, job: int, piece: int, last: int
) -> PieceVariables:
    work = instance.works[job]
    variants = [(mode, 0) for mode in work.pieces[piece]]
    if piece:
        variants += [(mode, 1) for mode in work.pieces[piece]]
    options = tuple(
        Option(
            literal=model.new_bool_var(""),
            mode=mode,
            ticks=mode.ticks + restarted * work.restart,
            restarted=bool(restarted),
        )
        for mode, restarted in variants
    )
    return PieceVariables(
        work=job,
        piece=piece,
        start=model.new_int_var(0, last, ""),
        end=model.new_int_var(0, last, ""),
        options=options,
    )


def _add_rules(model: cp_model.CpModel, instance: Instance, variables: Variables) -> None:
    for rule in (
        _one_option,
        _hours_of_groups,
        _nodes_of_groups,
        _piece_order,
        _continuation,
        _makespan,
        _deadlines,
        _energy,
        _energy_by_deadline,
        _equal_jobs,
    ):
        rule(model, instance, variables)


def _one_option(model: cp_model.CpModel, _: Instance, variables: Variables) -> None:
    """Each piece runs in exactly one option, and end = start + its ticks."""
    for piece in _all_pieces(variables):
        model.add_exactly_one(option.literal for option in piece.options)
        lasting = sum(option.ticks * option.literal for option in piece.options)
        model.add(piece.end == piece.start + lasting)


def _hours_of_groups(model: cp_model.CpModel, instance: Instance, variables: Variables) -> None:
    """First tick of the group <= start, end <= last tick of the group."""
    for group, (first, end) in enumerate(instance.windows):
        for piece, option in variables.options(group):
            if end - first < option.ticks:
                model.add(option.literal == 0)
                continue
            if first > 0:
                model.add(piece.start >= first).only_enforce_if(option.literal)
            if end < instance.horizon:
                model.add(piece.end <= end).only_enforce_if(option.literal)


def _nodes_of_groups(model: cp_model.CpModel, instance: Instance, variables: Variables) -> None:
    """At every tick the nodes of a group's running pieces sum to at most its nodes."""
    for group, capacity in enumerate(instance.capacities):
        own = variables.options(group)
        intervals = [
            model.new_optional_fixed_size_interval_var(piece.start, o.ticks, o.literal, "")
            for piece, o in own
        ]
        model.add_cumulative(intervals, [option.mode.nodes for _, option in own], capacity)


def _piece_order(model: cp_model.CpModel, _: Instance, variables: Variables) -> None:
    """A piece starts when its predecessor has ended, or later."""
    for job in variables.pieces:
        for before, after in itertools.pairwise(job):
            model.add(after.start >= before.end)


def _continuation(model: cp_model.CpModel, _: Instance, variables: Variables) -> None:
    """Without restart a piece starts at its predecessor's end, in the same point of the front."""
    for job in variables.pieces:
        for before, after in itertools.pairwise(job):
            for option in after.options:
                if option.restarted:
                    continue
                model.add(after.start == before.end).only_enforce_if(option.literal)
                same = [o.literal for o in before.options if o.mode.point == option.mode.point]
                model.add_bool_or(*same, ~option.literal)


def _makespan(model: cp_model.CpModel, _: Instance, variables: Variables) -> None:
    """Every job ends by the makespan."""
    for job in variables.pieces:
        model.add(job[-1].end <= variables.makespan)


def _deadlines(model: cp_model.CpModel, instance: Instance, variables: Variables) -> None:
    """A job not late ends by its deadline; for the cheapest schedule nobody may be late."""
    for job, work, late in zip(variables.pieces, instance.works, variables.late, strict=True):
        if late is None or work.deadline is None:
            continue
        model.add(job[-1].end <= work.deadline).only_enforce_if(~late)
        if instance.objective is Objective.COST:
            model.add(late == 0)


def _energy(model: cp_model.CpModel, instance: Instance, variables: Variables) -> None:
    """Nodes x ticks of all options chosen in a group <= its nodes x (makespan - first tick)."""
    for group, capacity in enumerate(instance.capacities):
        own = variables.options(group)
        if own:
            used = sum(o.mode.nodes * o.ticks * o.literal for _, o in own)
            window = variables.makespan - instance.windows[group][0]
            model.add(used <= capacity * window).only_enforce_if(_any_used(model, own))


def _any_used(
    model: cp_model.CpModel, own: Sequence[tuple[PieceVariables, Option]]
) -> cp_model.IntVar:
    used = model.new_bool_var("")
    for _, option in own:
        model.add_implication(option.literal, used)
    return used


def _energy_by_deadline(model: cp_model.CpModel, instance: Instance, variables: Variables) -> None:
    """For each deadline D: the least energy of jobs due by D and not late fits into all nodes until D."""
    if instance.objective not in (Objective.DEADLINES, Objective.COST):
        return
    for due in sorted({work.deadline for work in instance.works if work.deadline is not None}):
        available = sum(
            capacity * max(0, min(end, due) - first)
            for capacity, (first, end) in zip(instance.capacities, instance.windows, strict=True)
        )
        terms = [
            min(mode.nodes * mode.ticks for mode in piece) * (1 - late)
            for work, late in zip(instance.works, variables.late, strict=True)
            if late is not None and work.deadline is not None and work.deadline <= due
            for piece in work.pieces
        ]
        model.add(sum(terms) <= available)


def _equal_jobs(model: cp_model.CpModel, instance: Instance, variables: Variables) -> None:
    """Of two jobs that differ in name only the first one in the file starts first."""
    if len(instance.works) > _ORDERED_JOBS:
        return
    last: dict[object, PieceVariables] = {}
    for work, job in zip(instance.works, variables.pieces, strict=True):
        kind = (work.pieces, work.weight, work.restart, work.deadline)
        if kind in last:
            model.add(last[kind].start <= job[0].start)
        last[kind] = job[0]


def _minimize(
    model: cp_model.CpModel, instance: Instance, variables: Variables, bound: int
) -> None:
    match instance.objective:
        case Objective.MAKESPAN:
            model.add(variables.makespan >= bound)
            model.minimize(variables.makespan)
        case Objective.WEIGHTED_COMPLETION:
            ends = [job[-1].end for job in variables.pieces]
            total = sum(w.weight * end for w, end in zip(instance.works, ends, strict=True))
            model.add(total >= bound)
            model.minimize(total)
        case Objective.DEADLINES:
            missed = sum(
                work.weight * late
                for work, late in zip(instance.works, variables.late, strict=True)
                if late is not None
            )
            model.minimize((instance.horizon + 1) * missed + variables.makespan)
        case Objective.COST:
            model.minimize(
                sum(_cents(o) * o.literal for p in _all_pieces(variables) for o in p.options)
            )


def _proven(instance: Instance, bound: float) -> int:
    """Return the solver's bound as a whole objective value."""
    whole = -int(-bound // 1)
    if instance.objective is Objective.DEADLINES:
        return whole // (instance.horizon + 1)
    return whole


def _cents(option: Option) -> int:
    return -int(-(option.mode.cents_per_tick * option.ticks - 1e-9) // 1)


def _all_pieces(variables: Variables) -> Iterable[PieceVariables]:
    return (piece for job in variables.pieces for piece in job)


def _hint(
    model: cp_model.CpModel, instance: Instance, variables: Variables, known: Sequence[Block]
) -> None:
    place = {(block.work, block.piece): block for block in known}
    for piece in _all_pieces(variables):
        block = place[piece.work, piece.piece]
        model.add_hint(piece.start, block.start)
        model.add_hint(piece.end, block.end)
        for option in piece.options:
            chosen = option.mode == block.mode and option.restarted == block.restarted
            model.add_hint(option.literal, chosen)
    model.add_hint(variables.makespan, max(block.end for block in known))
    _hint_late(model, instance, variables, known)


def _hint_late(
    model: cp_model.CpModel, instance: Instance, variables: Variables, known: Sequence[Block]
) -> None:
    ends = {block.work: block.end for block in sorted(known, key=lambda block: block.end)}
    for job, (work, late) in enumerate(zip(instance.works, variables.late, strict=True)):
        if late is not None and work.deadline is not None:
            model.add_hint(late, ends[job] > work.deadline)


def _blocks(solver: cp_model.CpSolver, variables: Variables) -> tuple[Block, ...]:
    blocks = []
    for piece in _all_pieces(variables):
        option = next(o for o in piece.options if solver.boolean_value(o.literal))
        blocks.append(
            Block(
                work=piece.work,
                piece=piece.piece,
                mode=option.mode,
                start=solver.value(piece.start),
                end=solver.value(piece.end),
                restarted=option.restarted,
            )
        )
    return tuple(blocks)
