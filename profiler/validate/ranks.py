"""Starts the ranks of jobs on this machine and brings back what they saw."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from costmodel.errors import UnsupportedError
from profiler.validate.job import Job, save_jobs

Result = Sequence[Mapping[str, Any]]
"""What the ranks of one job wrote, one mapping a rank (profiler.validate.worker)."""


def launch(jobs: Sequence[Job]) -> list[Result]:
    """Run jobs of equally many ranks one after the other under one torchrun.

    Raises:
        UnsupportedError: If the ranks failed; the end of their output says why.
    """
    with tempfile.TemporaryDirectory() as folder:
        job_file, result_file = Path(folder) / "jobs.json", Path(folder) / "results.json"
        save_jobs(jobs, job_file)
        command = [
            sys.executable,
            *("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={jobs[0].ranks}"),
            *("-m", "profiler.validate.worker", str(job_file), str(result_file)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (our own interpreter)
        if done.returncode:
            raise UnsupportedError(f"the ranks failed:\n{done.stderr[-2000:]}")
        results: list[Result] = json.loads(result_file.read_text(encoding="utf-8"))
    return results
