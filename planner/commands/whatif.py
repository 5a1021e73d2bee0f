"""``shardplan whatif``: how the best plan changes when one thing changes."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.commands.options import (
    json_file,
    json_option,
    json_text,
    module_option,
    plot_option,
    print_answer,
    report_option,
    scenario_argument,
    tell_written,
)

if TYPE_CHECKING:
    from planner.source import Source
    from planner.whatif_answers import Answer
    from planner.whatif_search import MemoryStep

EPILOG = """\b
Examples:
  shardplan whatif my.yaml --memory sweep --plot memory.svg
  shardplan whatif my.yaml --memory 40GiB,64GiB,80GiB
  shardplan whatif my.yaml --gpus sweep --report scaling.html
  shardplan whatif my.yaml --set precision=bf16,fp8 --set global_batch=512,1024
  shardplan whatif my.yaml --largest sequence
  shardplan whatif my.yaml --lose node:1
"""


@click.command(
    "whatif",
    help="Show how the best plan changes with memory, GPUs, or any key of the scenario.",
    epilog=EPILOG,
)
@scenario_argument
@click.option("--memory", help="Limits per GPU such as 40GiB,80GiB, or sweep for every threshold.")
@click.option("--set", "settings", multiple=True, metavar="KEY=V1,V2", help="Several make a grid.")
@click.option("--gpus", help="Numbers of GPUs, or sweep for powers of two up to the budget.")
@click.option(
    "--fewest-gpus", is_flag=True, help="The smallest number of GPUs on which a plan fits."
)
@click.option(
    "--largest",
    type=click.Choice(["global_batch", "sequence", "layers"]),
    help="Largest that fits.",
)
@click.option("--lose", metavar="node:N", help="Plan again after losing N nodes.")
@module_option
@json_option
@report_option
@plot_option
def command(
    scenario_path: Path,
    module: str | None,
    json_path: str | None,
    report: Path | None,
    plot: Path | None,
    **asked: Any,
) -> int:
    """Answer one what-if question and print it; exit code 1 where no variant has a plan."""
    from planner.files import write_all
    from planner.progress import progress
    from planner.source import source_of
    from planner.wanted import Wanted
    from planner.whatif_files import answer_files

    question = _question(asked, plot)
    wanted = Wanted(answer=json_file(json_path), report=report, plot=plot)
    wanted.check()
    source = source_of(scenario_path, module=module)
    with progress("planning") as shown:
        answer = _answers(source, shown.say)[question](asked[question])
    print_answer(answer.data, answer.text + "\n", json_path)
    files = answer_files(wanted, source.scenario().name, answer.data, json_text(answer.data))
    write_all(files)
    tell_written(files)
    return 0 if answer.found else 1


def _question(asked: dict[str, Any], plot: Path | None) -> str:
    """Return the one question that was asked."""
    questions = [name for name, value in asked.items() if value]
    if len(questions) != 1:
        options = ", ".join(
            "--" + name.replace("_", "-").replace("settings", "set") for name in asked
        )
        raise click.UsageError(f"give exactly one of {options}")
    if plot and questions[0] not in ("memory", "gpus"):
        raise click.UsageError("--plot draws curves: it needs --memory or --gpus")
    return questions[0]


def _answers(source: "Source", say: Callable[[str], None]) -> "dict[str, Callable[[Any], Answer]]":
    from costmodel.units import format_bytes
    from planner import whatif_answers as answers

    scenario = source.scenario()

    def found(step: "MemoryStep") -> None:
        say(f"down to {format_bytes(step.memory_bytes)}")

    return {
        "memory": lambda text: answers.answer_memory(scenario, text, found),
        "settings": lambda texts: answers.answer_set(source, texts),
        "gpus": lambda text: answers.answer_gpus(scenario, text),
        "fewest_gpus": lambda _: answers.answer_fewest(scenario),
        "largest": lambda key: answers.answer_largest(scenario, key),
        "lose": lambda text: answers.answer_lose(scenario, text),
    }
