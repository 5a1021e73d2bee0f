"""Text shared by exporters: the header of each file, torchrun and Slurm scripts."""

from collections.abc import Mapping, Sequence

from costmodel.units import format_bytes, format_seconds
from planner.export.target import Launch

PORT = 29500  # torchrun's default rendezvous port


def header(launch: Launch, target: str, version: str) -> list[str]:
    """Return comment lines that say what the file is for, which version reads it and what is predicted."""
    plan = launch.plan
    return [
        f"# shardplan export for {target} {version}",
        f"# model {launch.model.name}, {launch.strategy.gpus} GPUs, strategy {launch.strategy.label()}",
        f"# predicted: {format_seconds(plan.iteration_s)} per iteration, peak {format_bytes(plan.peak_memory_bytes)} of {format_bytes(plan.memory_limit_bytes)} per GPU",
    ]


def torchrun_script(
    launch: Launch,
    head: Sequence[str],
    program: str,
    *,
    required: Mapping[str, str],
    environment: Mapping[str, str],
    body: Sequence[str] = (),
) -> str:
    """Return a script to start on every node.

    Args:
        launch: The plan; gives nodes and GPUs per node.
        head: Comment lines.
        program: What torchrun runs, with its arguments.
        required: Variables the user must set, with what they mean.
        environment: Variables the script sets.
        body: Lines before the launch.
    """
    nodes = (
        []
        if launch.nodes == 1
        else [
            '  --node_rank "${NODE_RANK:?0 on the head node, 1, 2, .. on the others}" \\',
            '  --master_addr "${MASTER_ADDR:?host name of the head node}" \\',
            f'  --master_port "${{MASTER_PORT:-{PORT}}}" \\',
        ]
    )
    return _script(
        head,
        required,
        environment,
        [
            *body,
            f"torchrun --nproc_per_node {launch.gpus_per_node} --nnodes {launch.nodes} \\",
            *nodes,
            f'  {program} "$@"',
        ],
    )


def slurm_script(
    launch: Launch,
    head: Sequence[str],
    program: str,
    *,
    required: Mapping[str, str],
    environment: Mapping[str, str],
    body: Sequence[str] = (),
) -> str:
    """Return a script for sbatch; the arguments are those of ``torchrun_script``."""
    directives = [
        f"#SBATCH --job-name={_job_name(launch.model.name)}",
        f"#SBATCH --nodes={launch.nodes}",
        f"#SBATCH --gpus-per-node={launch.gpus_per_node}",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --exclusive",
    ]
    return _script(
        [*directives, *head],
        required,
        environment,
        [
            'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)',
            *body,
            f"srun torchrun --nproc_per_node {launch.gpus_per_node} --nnodes {launch.nodes} \\",
            '  --rdzv_id "$SLURM_JOB_ID" --rdzv_backend c10d \\',
            f'  --rdzv_endpoint "$head:{PORT}" \\',
            f'  {program} "$@"',
        ],
        here='here="${SLURM_SUBMIT_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)}"',
    )


def _script(
    head: Sequence[str],
    required: Mapping[str, str],
    environment: Mapping[str, str],
    lines: Sequence[str],
    here: str = 'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)',
) -> str:
    text = [
        "#!/usr/bin/env bash",
        *head,
        "set -euo pipefail",
        here,
        *(f': "${{{name}:?{meaning}}}"' for name, meaning in required.items()),
        *(f"export {name}={value}" for name, value in environment.items()),
        *lines,
    ]
    return "\n".join(text) + "\n"


def _job_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name)
