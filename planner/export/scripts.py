"""Text shared by exporters: the header of each file, torchrun and Slurm scripts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.units import format_bytes, format_seconds
from planner.export.target import Launch

PORT = 29500  # torchrun's default rendezvous port


def header(launch: Launch, version: str) -> list[str]:
    """Return comment lines that say what the file is for, which version reads it and what is predicted."""
    plan = launch.plan
    notice = [f"# {launch.notice}"] if launch.notice else []
    return [
        f"# shardplan export for {version}",
        f"# model {launch.model.name}, {launch.strategy.gpus} GPUs, strategy {launch.strategy.label()}",
        f"# predicted: {format_seconds(plan.iteration_s)} per iteration, peak {format_bytes(plan.peak_memory_bytes)} of {format_bytes(plan.memory_limit_bytes)} per GPU",
        *notice,
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a script starts on every GPU.

    Attributes:
        command: Program with its arguments, as bash reads it.
        required: Variables the user must set, with what they mean.
        environment: Variables the script sets.
        body: Lines before the launch.
    """

    command: str
    required: Mapping[str, str]
    environment: Mapping[str, str]
    body: tuple[str, ...] = ()


def torchrun_script(launch: Launch, head: Sequence[str], program: Program) -> str:
    """Return a script to start on every node; ``head`` are comment lines."""
    nodes = (
        []
        if launch.nodes == 1
        else [
            '  --node_rank "${NODE_RANK:?0 on the head node, 1, 2, .. on the others}" \\',
            '  --master_addr "${MASTER_ADDR:?host name of the head node}" \\',
            f'  --master_port "${{MASTER_PORT:-{PORT}}}" \\',
        ]
    )
    start = f"torchrun --nproc_per_node {launch.gpus_per_node} --nnodes {launch.nodes} \\"
    return script(head, program, [start, *nodes, f"  {program.command}"])


def slurm_script(launch: Launch, head: Sequence[str], program: Program) -> str:
    """Return a script for sbatch, to be submitted from the folder of the files."""
    directives = [
        f"#SBATCH --job-name={_job_name(launch.model.name)}",
        f"#SBATCH --nodes={launch.nodes}",
        f"#SBATCH --gpus-per-node={launch.gpus_per_node}",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --exclusive",
    ]
    lines = [
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)',
        f"srun torchrun --nproc_per_node {launch.gpus_per_node} --nnodes {launch.nodes} \\",
        '  --rdzv_id "$SLURM_JOB_ID" --rdzv_backend c10d \\',
        f'  --rdzv_endpoint "$head:{PORT}" \\',
        f"  {program.command}",
    ]
    # sbatch runs a copy of the script from elsewhere, so the files are found by the folder of submission.
    here = 'here="${SLURM_SUBMIT_DIR:-$PWD}"'
    usage = "# submit from the folder that holds this file"
    return script([*directives, *head, usage], program, lines, here)


def read_flags(file: str) -> tuple[str, ...]:
    """Return lines that read a flags file into ``args``; words are split without globbing."""
    return (
        "args=()",
        "while read -r -a words; do",
        '  [[ ${#words[@]} -eq 0 || ${words[0]} == \\#* ]] || args+=("${words[@]}")',
        f'done < "$here/{file}"',
    )


def script(
    head: Sequence[str],
    program: Program,
    lines: Sequence[str],
    here: str = 'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)',
) -> str:
    """Return a bash script: comments, variables, the program's body, commands.

    Args:
        head: Comment lines.
        program: Gives variables and body.
        lines: Commands that start it.
        here: The line that sets ``here`` to the folder of the files.
    """
    text = [
        "#!/usr/bin/env bash",
        *head,
        "set -euo pipefail",
        here,
        *(f': "${{{name}:?{meaning}}}"' for name, meaning in program.required.items()),
        *(f"export {name}={value}" for name, value in program.environment.items()),
        *program.body,
        *lines,
    ]
    return "\n".join(text) + "\n"


def _job_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name)
