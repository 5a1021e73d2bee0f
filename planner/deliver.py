"""Contents of the files beside a printed answer: report, trace, picture of the timeline, launch files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.cost import StrategyCost
from costmodel.simulator import simulate
from costmodel.timeline import Timeline
from costmodel.units import format_seconds
from planner.answer_json import result_to_json
from planner.export import target
from planner.files import Content
from planner.launching import launch_of
from planner.nearest import launchable, nearest_launched, pricing_scenario
from planner.plans import Plan, SearchResult
from planner.plot import picture
from planner.report.page import render
from planner.report.plans import plans_sections
from planner.report.timeline import timeline_section
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.simulation import Simulation, simulate_placement
from planner.trace import trace_bytes
from planner.wanted import Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A plan's simulated iteration and the prices it was simulated with."""

    plan: Plan
    cost: StrategyCost
    timeline: Timeline


def draw(scenario: Scenario, plan: Plan) -> Drawn:
    """Simulate a plan of ``scenario`` again, task by task; the timeline ends at the plan's iteration time."""
    used = pricing_scenario(scenario, plan)
    pricer = make_pricer(used)
    again = simulate_placement(used, pricer, plan.strategy, plan.placement)
    return drawn_from(replace(again, plan=plan))


def drawn_from(simulation: Simulation) -> Drawn:
    """Return a legal simulation task by task.

    Raises:
        ValueError: If the strategy is illegal, so that nothing was simulated.
    """
    if simulation.plan is None or simulation.cost is None or simulation.work is None:
        raise ValueError(f"nothing was simulated: {simulation.violations}")
    return Drawn(plan=simulation.plan, cost=simulation.cost, timeline=simulate(simulation.work))


def result_page(scenario: Scenario, result: SearchResult, drawn: Drawn | None) -> str:
    """Return the report of a search, with the timeline of one of its plans."""
    sections = plans_sections(result_to_json(result, scenario))
    if drawn:
        heading = f"Pipeline timeline of plan {drawn.plan.rank}"
        sections.append(timeline_section(drawn.timeline, heading))
    return render(scenario.name, sections)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Contents of files, and what a reader must know of them: launch files that differ from the plan asked for."""

    files: Mapping[Path, Content]
    notices: tuple[str, ...] = ()


def plan_files(
    wanted: Wanted, scenario: Scenario, drawn: Drawn, listed: Sequence[Plan] = ()
) -> Delivery:
    """Return the contents of trace, picture and launch files; of the ``listed`` plans a better one to launch is named.

    Raises:
        InputError: If a target cannot express the plan.
    """
    plan, timeline = drawn.plan, drawn.timeline
    files: dict[Path, Content] = {}
    notices = []
    if wanted.trace:
        files[wanted.trace] = trace_bytes(wanted.trace.name, plan, timeline, drawn.cost)
    if wanted.plot:
        title = f"{scenario.name}: {plan.strategy.label()}"
        files[wanted.plot] = picture(wanted.plot.name, timeline, title)
    for name, folder in wanted.exports:
        launch = launchable(target(name), scenario, plan, exact=wanted.exact)
        files |= {folder / file: text for file, text in target(name).files(launch).items()}
        if launch.notice:
            notices.append(launch.notice + _faster(name, scenario, launch.plan, listed))
    return Delivery(files=files, notices=tuple(notices))


def _faster(target_name: str, scenario: Scenario, plan: Plan, listed: Sequence[Plan]) -> str:
    """Name the listed plan that is launched, as it is or as its nearest, faster than all others and than ``plan``."""
    best = plan
    for item in listed:
        if item.rank != plan.rank and item.iteration_s < best.iteration_s:
            found = nearest_launched(target(target_name), scenario, item)
            best = found if found and found.iteration_s < best.iteration_s else best
    if best is plan:
        return ""
    return f"; plan {best.rank} is launched faster, {format_seconds(best.iteration_s)}: --rank {best.rank}"


def expressible_rank(wanted: Wanted, scenario: Scenario, plans: Sequence[Plan]) -> int | None:
    """Return the rank of the first plan that all wanted targets can express, None if there is none."""
    names = [name for name, _ in wanted.exports]
    return next((plan.rank for plan in plans if _expressible(names, scenario, plan)), None)


def _expressible(names: Sequence[str], scenario: Scenario, plan: Plan) -> bool:
    launch = launch_of(scenario, plan)
    return not any(refusal for name in names for refusal in target(name).refusals(launch))
