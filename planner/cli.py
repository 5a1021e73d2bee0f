"""The command line: parses, calls, prints, exits with the documented code.

Commands live in planner.commands, one module each, and are imported only when asked for, so that
``shardplan --help`` answers at once.
"""

import importlib
import sys

import click

from costmodel.errors import ShardplanError

COMMANDS: dict[str, str] = {
    "plan": "Rank the strategies for a scenario, with a proof of how good the list is.",
    "simulate": "Predict one given strategy: time, memory, legality.",
    "whatif": "Show how the best plan changes when one thing changes.",
    "batch": "Plan many models, each by itself or sharing one pool of GPUs.",
    "explain": "Say why a given strategy is not the first plan.",
    "compare": "Compare published systems over numbers of GPUs: time, memory, efficiency.",
    "accuracy": "Compare predictions with measured runs: errors, ranking, memory.",
    "calibrate": "Fit efficiencies, overheads and links to your own measured runs.",
    "catalog": "List the models, devices, networks and clusters that ship.",
    "profile": "Measure the unique events that the scenario needs.",
    "validate": "Run a strategy for real and compare it with its prediction.",
    "import": "Turn logs and traces into tables of measured prices.",
    "recompose": "Recompose measured pipeline plans from operator tables.",
}
"""Command names with their one-line help, in the order of ``--help``."""

MODULES = {"import": "importing"}
"""Modules of planner.commands that cannot have their command's name."""

EPILOG = """\b
Examples:
  shardplan plan scenarios/examples/llama-3.1-70b-64xh100.yaml
  shardplan plan my.yaml --gpus 128 --top 5 --json plans.json
  shardplan simulate my.yaml --strategy tp=8,pp=4,micro_batch=1
  shardplan compare my.yaml --systems all --gpus 8,16,32,64
  shardplan catalog models

\b
Exit codes: 0 answered, 1 no plan exists (the answer says why), 2 wrong input,
3 time limit reached before any plan was found.
Shell completion: eval "$(_SHARDPLAN_COMPLETE=bash_source shardplan)" (or zsh_source, fish_source).
"""


class LazyGroup(click.Group):
    """A group whose commands are imported when they run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in their documented order."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        name = MODULES.get(cmd_name, cmd_name)
        module = importlib.import_module(f"planner.commands.{name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="shardplan", prog_name="shardplan")
def cli() -> None:
    """Plan distributed training: which strategy to launch, whether it fits, how fast it is, how sure that is."""


def main() -> None:
    """Run the command line; every error a user can mend is one line on stderr."""
    try:
        sys.exit(cli(prog_name="shardplan", standalone_mode=False) or 0)
    except ShardplanError as error:
        click.echo(f"shardplan: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("shardplan: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"shardplan: {where}{error.strerror or error}", err=True)
        sys.exit(2)
