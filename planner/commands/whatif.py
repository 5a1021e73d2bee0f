"""``shardplan whatif``: how the best plan changes when one thing changes."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.commands.options import json_option, scenario_argument, write_json

if TYPE_CHECKING:
    from planner.whatif_answers import Answer


@click.command(
    "whatif", help="Show how the best plan changes with memory, GPUs, or any key of the scenario."
)
@scenario_argument
@click.option("--memory", help="Limits per GPU such as 40GiB,80GiB, or sweep for every threshold.")
@click.option("--set", "settings", multiple=True, metavar="KEY=V1,V2", help="Several make a grid.")
@click.option("--gpus", help="Numbers of GPUs, or sweep for powers of two up to the budget.")
@click.option(
    "--fewest-gpus", is_flag=True, help="The smallest number of GPUs on which a plan fits."
)
@click.option(
    "--largest", type=click.Choice(["global_batch", "sequence"]), help="Largest that fits."
)
@click.option("--lose", metavar="node:N", help="Plan again after losing N nodes.")
@json_option
def command(scenario_path: Path, json_path: str | None, **asked: Any) -> int:
    """Answer one what-if question and print it; exit code 1 where no variant has a plan."""
    questions = [name for name, value in asked.items() if value]
    if len(questions) != 1:
        options = ", ".join(
            "--" + name.replace("_", "-").replace("settings", "set") for name in asked
        )
        raise click.UsageError(f"give exactly one of {options}")
    answer = _answers(scenario_path)[questions[0]](asked[questions[0]])
    if json_path:
        write_json(answer.data, json_path)
    if json_path != "-":
        click.echo(answer.text)
    return 0 if answer.found else 1


def _answers(path: Path) -> "dict[str, Callable[[Any], Answer]]":
    from planner import whatif_answers as answers
    from planner.scenario_file import load_scenario

    scenario = load_scenario(path)
    return {
        "memory": lambda text: answers.answer_memory(scenario, text),
        "settings": lambda texts: answers.answer_set(path, texts),
        "gpus": lambda text: answers.answer_gpus(scenario, text),
        "fewest_gpus": lambda _: answers.answer_fewest(scenario),
        "largest": lambda key: answers.answer_largest(scenario, key),
        "lose": lambda text: answers.answer_lose(scenario, text),
    }
