"""Every rule of the placement model has a smallest instance that keeps it and one that breaks it."""

import random
from dataclasses import replace

import pytest
from ortools.sat.python import cp_model

from costmodel.simulator import critical_path, iteration_ns
from costmodel.strategy import Schedule
from planner.coefficients import Arrangement, Coefficients, Linear
from planner.solver.constraints import Constraints
from planner.solver.model import Effort, solve_placement
from planner.solver.objective import minimise_iteration
from planner.solver.variables import PlacementVariables
from planner.stage_tables import stage_tables
from planner.windows import whole_windows
from tests.planner.synthetic import brute_force, random_coefficients, tightened

EFFORT = Effort(deterministic_s=20.0)


def plain(schedule: Schedule = "1f1b", *, ranks: int = 2, layers: int = 4) -> Coefficients:
    """Return equal layers of 1 ns forward and 2 ns backward, nothing else, four micro-batches."""
    given = random_coefficients(
        random.Random(0), schedule, ranks=ranks, layers=layers, microbatches=4
    )
    return replace(
        given,
        forward=Linear(0, 0, 0, (1,), (0,)),
        backward=Linear(0, 0, 0, (2,), (1,)),
        weight=Linear(0, 0, 0, (1,), (0,)),
        transfer_ns=(0,) * ranks,
        finish=(),
        memory=(),
        fixed_ns=0,
        recompute_all=False,
    )


class Model:
    """A model with chosen rules only."""

    def __init__(self, given: Coefficients, cutoff_ns: int = 1000, **fixed: int) -> None:
        self.model = cp_model.CpModel()
        windows = whole_windows(len(given.layer_kinds), given.shape.ranks)
        tables = stage_tables(given, windows)
        self.variables = PlacementVariables(self.model, given, tables, cutoff_ns)
        self.rules = Constraints(self.variables, [])
        if "cut" in fixed:
            self.model.add(self.variables.cuts[1] == fixed["cut"])
        if "iteration" in fixed:
            self.model.add(self.variables.iteration == fixed["iteration"])

    def feasible(self) -> bool:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        return bool(solver.solve(self.model) in (cp_model.OPTIMAL, cp_model.FEASIBLE))


@pytest.mark.parametrize(("cut", "feasible"), [(1, True), (3, True), (4, False)])
def test_stages_hold_layers(cut: int, feasible: bool) -> None:
    model = Model(plain())
    model.variables.cuts[1] = cut
    model.rules.stages_hold_layers()
    assert model.feasible() == feasible


@pytest.mark.parametrize(("recomputed", "feasible"), [(1, True), (2, True), (3, False)])
def test_recomputes_what_it_holds(recomputed: int, feasible: bool) -> None:
    model = Model(plain(), cut=2)
    model.variables.recomputed[0] = recomputed
    model.rules.recomputes_what_it_holds()
    assert model.feasible() == feasible


@pytest.mark.parametrize(("spare", "feasible"), [(0, True), (-1, False)])
def test_memory_fits(spare: int, feasible: bool) -> None:
    given = random_coefficients(random.Random(4), "1f1b", ranks=2, layers=4)
    least = given.peak_kib(Arrangement((0, 2, 4), (2, 2)))
    model = Model(replace(given, limit_kib=least + spare, recompute_all=True), 10**9, cut=2)
    model.rules.memory_fits()
    assert model.feasible() == feasible


@pytest.mark.parametrize(
    ("schedule", "rule"),
    [
        ("1f1b", "chain_with_idle"),
        ("1f1b", "mean_stage"),
        ("gpipe", "two_flow_shops"),
        ("gpipe", "mean_stage"),
        ("zero_bubble", "split_backward"),
    ],
)
def test_rows_allow_the_simulated_iteration_and_refuse_a_much_smaller_one(
    schedule: Schedule, rule: str
) -> None:
    given = plain(schedule)
    simulated = iteration_ns(given.work(Arrangement((0, 2, 4), (0, 0))))
    for iteration, feasible in ((simulated, True), (simulated * 2 // 3, False)):
        model = Model(given, cut=2, iteration=iteration)
        getattr(model.rules, rule)()
        assert model.feasible() == feasible


@pytest.mark.parametrize(("spare", "feasible"), [(0, True), (-1, False)])
def test_critical_paths(spare: int, feasible: bool) -> None:
    given = plain()
    work = given.work(Arrangement((0, 2, 4), (0, 0)))
    model = Model(given, cut=2, iteration=iteration_ns(work) + spare)
    model.rules.paths = (critical_path(work),)
    model.rules.critical_paths()
    assert model.feasible() == feasible


def test_the_objective_is_the_least_value_of_the_rows() -> None:
    model = Model(plain(), cut=1)
    model.rules.chain_with_idle()
    minimise_iteration(model.variables)
    solver = cp_model.CpSolver()
    assert solver.solve(model.model) == cp_model.OPTIMAL
    # The second stage holds three of four layers: one pass over both, three more over it.
    assert solver.objective_value == 12 + 3 * 9


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zero_bubble"])
def test_the_solver_never_claims_more_than_the_best_placement(schedule: Schedule) -> None:
    rng = random.Random(41)
    for _ in range(25):
        ranks = rng.randint(1, 3)
        given = random_coefficients(
            rng, schedule, ranks=ranks, layers=rng.randint(ranks, 6), kinds=rng.randint(1, 3)
        )
        given = tightened(rng, given)
        best = brute_force(given)
        cutoff = 10**7 if best is None else best + 1
        outcome = solve_placement(given, [], cutoff_ns=cutoff, effort=EFFORT)
        if best is None:
            assert outcome.cuts is None
        else:
            assert outcome.cuts is not None
            assert outcome.bound_ns <= best
            nothing = solve_placement(given, [], cutoff_ns=outcome.bound_ns, effort=EFFORT)
            assert nothing.cuts is None
