"""What a plan leaves behind besides the answer: launch files, trace, picture. The command line and notebooks call this."""

from pathlib import Path

from costmodel.errors import InputError
from costmodel.simulator import simulate
from costmodel.timeline import Timeline
from costmodel.units import format_seconds
from planner.export import TARGET_NAMES, export
from planner.plan import Plan
from planner.plot import write_plot
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.simulation import simulate_placement
from planner.trace import write_trace


def export_plan(plan: Plan, scenario: Scenario, destination: str) -> tuple[Path, ...]:
    """Write what launches ``plan``; ``destination`` is ``TARGET:DIR`` as on the command line.

    Raises:
        InputError: If the text is not of that form, or as ``planner.export.export``.
    """
    name, separator, directory = destination.partition(":")
    if not separator or not directory:
        rule = "must be TARGET:DIR"
        raise InputError(rule, key="export", value=destination, nearest=TARGET_NAMES)
    return export(
        plan,
        model=scenario.graph.model,
        cluster=scenario.cluster,
        training=scenario.training,
        target_name=name,
        directory=Path(directory),
    )


def trace_plan(plan: Plan, scenario: Scenario, path: Path) -> Path:
    """Write the simulated iteration of ``plan`` as a Chrome trace.

    Raises:
        InputError: If the file cannot be written.
    """
    priced = simulate_placement(scenario, make_pricer(scenario), plan.strategy, plan.placement)
    if priced.cost is None:
        raise InputError("must be a legal plan", key="trace", value=plan.strategy.label())
    return write_trace(path, plan, timeline_of(plan, scenario), priced.cost)


def plot_plan(plan: Plan, scenario: Scenario, path: Path) -> Path:
    """Draw the simulated iteration of ``plan`` as SVG or PNG.

    Raises:
        InputError: If the file's ending is another or it cannot be written.
    """
    title = f"{scenario.name}: {plan.strategy.label()}, {format_seconds(plan.iteration_s)}"
    return write_plot(path, timeline_of(plan, scenario), title)


def timeline_of(plan: Plan, scenario: Scenario) -> Timeline:
    """Return the simulated iteration of ``plan``.

    Raises:
        InputError: If the plan is not legal in the scenario.
    """
    priced = simulate_placement(scenario, make_pricer(scenario), plan.strategy, plan.placement)
    if priced.work is None:
        raise InputError("must be a legal plan", key="plan", value=plan.strategy.label())
    return simulate(priced.work)
