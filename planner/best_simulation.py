"""The prediction of a strategy on the placement that suits it best, where none is given."""

from itertools import pairwise

from costmodel.strategy import Strategy
from planner.best_placement import best_placement
from planner.check import broken_rules
from planner.coefficients import Arrangement, coefficients
from planner.columns import columns_of
from planner.even_bounds import even_cuts
from planner.host import broken_host
from planner.mixed.cluster import is_mixed
from planner.no_recomputation import search_prices
from planner.rules import facts_of
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.simulation import Simulation, simulate_placement, simulate_strategy
from planner.systems import apply_system

_TOLERANCE, _TIME_LIMIT_S = 1e-3, 5.0


def simulate_best(scenario: Scenario, strategy_text: str, placement_text: str | None) -> Simulation:
    """Predict a strategy; without a placement on its best one, or recomputing every layer where none fits.

    On several kinds of GPUs the placement that ``simulate`` takes by default stands for the best.

    Raises:
        InputError: If the text is no strategy or no placement.
    """
    simulation = simulate_strategy(scenario, strategy_text, placement_text)
    scenario, strategy = apply_system(scenario), simulation.strategy
    if placement_text is not None or is_mixed(scenario.cluster) or not _legal(strategy, scenario):
        return simulation
    pricer = make_pricer(scenario)
    given = coefficients(
        search_prices(scenario, pricer).cost(strategy), scenario.memory_limit_bytes
    )
    best = best_placement(
        given,
        tolerance=_TOLERANCE,
        time_limit_s=_TIME_LIMIT_S,
        uneven=scenario.uneven_stages,
    )
    cuts = even_cuts(len(scenario.graph.layers), strategy.pp * strategy.vpp, uneven=True)[0]
    most = scenario.bound("recompute").admits("full")
    chosen = best.arrangement if best else _balanced(cuts, recomputes=most)
    return simulate_placement(scenario, pricer, strategy, chosen.placement())


def _legal(strategy: Strategy, scenario: Scenario) -> bool:
    """Return whether the strategy keeps all rules; a placement for it may have to be uneven."""
    broken = broken_rules(columns_of((strategy,)), facts_of(scenario))
    return not broken and not broken_host(strategy, scenario)


def _balanced(cuts: tuple[int, ...], *, recomputes: bool) -> Arrangement:
    return Arrangement(cuts, tuple((stop - start) * recomputes for start, stop in pairwise(cuts)))
