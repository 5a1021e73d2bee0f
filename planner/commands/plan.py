"""``shardplan plan``: the ranked plans of a scenario."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.commands.options import (
    export_option,
    gpus_option,
    json_file,
    json_option,
    json_text,
    module_option,
    print_answer,
    report_option,
    scenario_argument,
    tell_written,
    trace_option,
)

if TYPE_CHECKING:
    from planner.deliver import Delivery, Drawn
    from planner.plans import SearchResult
    from planner.scenario import Scenario
    from planner.wanted import Wanted

EPILOG = """\b
Examples:
  shardplan plan scenarios/examples/llama-3.1-70b-64xh100.yaml
  shardplan plan my.yaml --gpus 128 --top 5 --json - | jq .plans[0].strategy
  shardplan plan my.yaml --report plans.html --trace first.json.gz
  shardplan plan my.yaml --export megatron:launch --export torchtitan:titan
  shardplan plan my.yaml --min-gpus

\b
Interrupted with Ctrl-C it prints nothing, writes nothing and exits with 130;
--time-limit is the way to the best plans so far with an honest gap.
"""


@click.command(
    "plan",
    help="Rank the strategies for a scenario, with a proof of how good the list is.",
    epilog=EPILOG,
)
@scenario_argument
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(1, 1000), help="Plans to rank."
)
@gpus_option
@module_option
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    help="Seconds; then the best so far with its gap.",
)
@click.option(
    "--gap",
    default=1e-3,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Gap that counts as proven; 0 asks for the exact proof.",
)
@click.option(
    "--objective",
    default="time",
    show_default=True,
    type=click.Choice(["time", "cost", "gpus", "memory"]),
    help="What the best plan is best at; cost and gpus choose among cluster.gpus.",
)
@click.option("--deadline-days", type=click.FloatRange(0, min_open=True), help="For gpus.")
@click.option("--min-gpus", is_flag=True, help="Plan on the fewest GPUs on which a plan fits.")
@json_option
@report_option
@trace_option
@export_option
@click.option(
    "--rank",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Which of the plans --trace and --export write and --report draws.",
)
def command(
    scenario_path: Path,
    json_path: str | None,
    report: Path | None,
    trace: Path | None,
    exports: tuple[str, ...],
    exact: bool,
    rank: int,
    **asked: Any,
) -> int:
    """Plan and print; exit code 1 where no plan exists."""
    from planner.answer_json import result_to_json
    from planner.answer_text import result_to_text
    from planner.wanted import Wanted, parse_export

    wanted = Wanted(
        answer=json_file(json_path),
        report=report,
        trace=trace,
        exports=tuple(parse_export(text) for text in exports),
        exact=exact,
    )
    wanted.check()
    scenario, result = _planned(scenario_path, **asked)
    data = result_to_json(result, scenario)
    print_answer(data, result_to_text(result, scenario), json_path)
    _write(wanted, scenario, result, rank, json_text(data))
    return 0 if result.plans else 1


def _planned(path: Path, **asked: Any) -> "tuple[Scenario, SearchResult]":
    from planner.objectives import OBJECTIVES, Effort, plan_for
    from planner.progress import progress
    from planner.source import source_of

    _refuse_contradictions(**asked)
    scenario = source_of(path, gpus=asked["gpus"], module=asked["module"]).scenario()
    effort = Effort(top=asked["top"], tolerance=asked["gap"], time_limit_s=asked["time_limit"])
    chosen = next(name for name in OBJECTIVES if name == asked["objective"])
    with progress(f"planning {scenario.name}"):
        if asked["min_gpus"]:
            scenario = _on_fewest_gpus(scenario)
        return scenario, plan_for(scenario, chosen, effort, deadline_days=asked["deadline_days"])


def _refuse_contradictions(**asked: Any) -> None:
    """Refuse options that would have no effect beside each other."""
    if asked["min_gpus"] and asked["objective"] in ("cost", "gpus"):
        raise click.UsageError(
            f"--min-gpus already chooses the GPUs: drop --objective {asked['objective']}"
        )
    if asked["deadline_days"] and asked["objective"] != "gpus":
        raise click.UsageError("--deadline-days needs --objective gpus")


def _on_fewest_gpus(scenario: "Scenario") -> "Scenario":
    """Return the scenario on the fewest GPUs that have a plan; unchanged where no number up to the budget has."""
    from planner.explain import with_gpus
    from planner.whatif_search import fewest_gpus

    fewest = fewest_gpus(scenario)
    return with_gpus(scenario, int(fewest.label)) if fewest else scenario


def _write(
    wanted: "Wanted", scenario: "Scenario", result: "SearchResult", rank: int, answer: str
) -> None:
    from costmodel.errors import InputError
    from planner.deliver import Delivery, draw, result_page
    from planner.files import Content, write_all

    if result.plans and rank > len(result.plans):
        raise InputError(
            "must be a rank of the list", key="--rank", value=rank, nearest=len(result.plans)
        )
    plan = result.plans[rank - 1] if result.plans else None
    drawn = draw(scenario, plan) if plan and (wanted.plan_needed or wanted.report) else None
    files: dict[Path, Content] = {wanted.answer: answer} if wanted.answer else {}
    delivery = Delivery(files={})
    if wanted.report:
        files[wanted.report] = result_page(scenario, result, drawn)
    if drawn:
        delivery = _delivery(wanted, scenario, result, drawn)
    elif wanted.plan_needed:
        click.echo("no plan: no trace and no launch files", err=True)
    files |= delivery.files
    write_all(files)
    tell_written(files, delivery.notices)


def _delivery(
    wanted: "Wanted", scenario: "Scenario", result: "SearchResult", drawn: "Drawn"
) -> "Delivery":
    """Return trace and launch files; a refusal names a plan of the list that would be written."""
    from costmodel.errors import InputError
    from planner.deliver import expressible_rank, plan_files

    try:
        return plan_files(wanted, scenario, drawn, result.plans)
    except InputError as error:
        other = expressible_rank(wanted, scenario, result.plans)
        advice = f"; plan {other} of the list can be: add --rank {other}" if other else ""
        raise InputError(
            f"{error.rule}{advice}",
            file=error.file,
            key=error.key,
            value=error.value,
            nearest=error.nearest,
        ) from error
