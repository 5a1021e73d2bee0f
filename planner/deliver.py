"""Contents of the files beside a printed answer: report, trace, picture of the timeline, launch files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.cost import StrategyCost
from costmodel.errors import InputError
from costmodel.simulator import simulate
from costmodel.timeline import Timeline
from planner.answer_json import result_to_json
from planner.explain import with_gpus
from planner.export import target
from planner.export.target import Launch
from planner.files import Content
from planner.plans import Plan, SearchResult
from planner.plot import picture
from planner.report.page import render
from planner.report.plans import plans_sections
from planner.report.timeline import timeline_section
from planner.scenario import Scenario
from planner.scenario_pricer import make_pricer
from planner.simulation import Simulation, simulate_placement
from planner.systems import apply_system
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
    used = apply_system(scenario)
    if plan.strategy.gpus < used.cluster.gpus and len(used.cluster.groups) == 1:
        used = with_gpus(used, plan.strategy.gpus)
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
    sections = plans_sections(result_to_json(result))
    if drawn:
        heading = f"Pipeline timeline of plan {drawn.plan.rank}"
        sections.append(timeline_section(drawn.timeline, heading))
    return render(scenario.name, sections)


def plan_files(wanted: Wanted, scenario: Scenario, drawn: Drawn) -> dict[Path, Content]:
    """Return the contents of trace, picture and launch files.

    Raises:
        InputError: If a target cannot express the plan.
    """
    plan, timeline = drawn.plan, drawn.timeline
    files: dict[Path, Content] = {}
    if wanted.trace:
        files[wanted.trace] = trace_bytes(wanted.trace.name, plan, timeline, drawn.cost)
    if wanted.plot:
        title = f"{scenario.name}: {plan.strategy.label()}"
        files[wanted.plot] = picture(wanted.plot.name, timeline, title)
    for name, folder in wanted.exports:
        for file, text in launch_files(name, scenario, plan).items():
            files[folder / file] = text
    return files


def expressible_rank(wanted: Wanted, scenario: Scenario, plans: Sequence[Plan]) -> int | None:
    """Return the rank of the first plan that all wanted targets can express, None if there is none."""
    return next((plan.rank for plan in plans if _expressible(wanted, scenario, plan)), None)


def _expressible(wanted: Wanted, scenario: Scenario, plan: Plan) -> bool:
    try:
        for name, _ in wanted.exports:
            launch_files(name, scenario, plan)
    except InputError:
        return False
    return True


def launch_files(target_name: str, scenario: Scenario, plan: Plan) -> Mapping[str, str]:
    """Return the files that launch ``plan`` with a target.

    Raises:
        InputError: If the target cannot express the plan, naming field and reason.
    """
    chosen = target(target_name)
    launch = Launch(
        plan=plan,
        model=scenario.graph.model,
        cluster=scenario.cluster,
        training=scenario.training,
    )
    chosen.check(launch)
    return chosen.files(launch)
