"""The whole batch: every model planned, and with ``mode: share`` the pool divided among them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.errors import ShardplanError
from costmodel.strategy import FIELD_NAMES, Strategy
from planner.batch.journal import Journal
from planner.batch.machines import OpenExecutor, local_processes
from planner.batch.run import Progress, run_tasks
from planner.batch.tasks import Outcome, PlanFunction, Task, read_task
from planner.plans import SearchStatus
from planner.pool.front import PlannedSize, allowed_groups, job_from, sizes_to_plan
from planner.pool.model import BatchMode, GpuGroup, Job, Pool, Request
from planner.pool.read import SECONDS_PER_HOUR
from planner.pool.share import ShareResult, share

_Run = Callable[[Sequence[Task]], list[Outcome]]
_Sized = tuple[GpuGroup, int, Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model of the batch.

    Attributes:
        name: Name of the model in the pool file; ``scenario`` is its file.
        outcome: The answer of its own plan, or its error (mode ``each``).
        hours: Hours to train all its tokens with the best plan, if the tokens are known.
        job: Its front (mode ``share``), None after an error.
        error: One line; empty if the model was planned.
    """

    name: str
    scenario: str
    outcome: Outcome | None = None
    hours: float | None = None
    job: Job | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """All rows in the order of the file, and the shared schedule of those without error."""

    mode: BatchMode
    rows: tuple[Row, ...]
    shared: ShareResult | None = None

    @property
    def found(self) -> bool:
        """Whether at least one model has a plan, or the pool a schedule."""
        if self.mode is BatchMode.SHARE:
            return self.shared is not None and self.shared.status is not SearchStatus.INFEASIBLE
        return any(row.outcome is not None and row.outcome.best for row in self.rows)


def run_batch(
    pool: Pool,
    plan: PlanFunction,
    *,
    open_executor: OpenExecutor | None = None,
    journal: Path | None = None,
    progress: Progress | None = None,
) -> BatchResult:
    """Plan every model of the pool.

    Args:
        pool: What to plan.
        plan: Plans one scenario; importable where the workers run.
        open_executor: The machines; default: processes on this one.
        journal: File from which a killed batch resumes.
        progress: Told how far it is; default: a line on stderr, on a terminal.

    Raises:
        InputError: If the journal cannot be used. Faults of single models end in their rows.
    """
    book = Journal(journal)

    def run(tasks: Sequence[Task]) -> list[Outcome]:
        machines = open_executor or local_processes(len(tasks))
        return run_tasks(tasks, plan, machines, book, progress)

    if pool.mode is BatchMode.EACH:
        return BatchResult(mode=pool.mode, rows=tuple(_each(pool, run)))
    rows = tuple(_fronts(pool, run))
    jobs = [row.job for row in rows if row.job is not None]
    return BatchResult(mode=pool.mode, rows=rows, shared=share(pool, jobs) if jobs else None)


def _each(pool: Pool, run: _Run) -> list[Row]:
    tasks = [_task(request) for request in pool.requests]
    outcomes = iter(run([task for task in tasks if isinstance(task, Task)]))
    return [
        _row(request, next(outcomes) if isinstance(task, Task) else _failed(task))
        for request, task in zip(pool.requests, tasks, strict=True)
    ]


def _row(request: Request, outcome: Outcome) -> Row:
    tokens, best = request.tokens or outcome.tokens, outcome.best
    hours = tokens / best["tokens_per_s"] / SECONDS_PER_HOUR if tokens and best else None
    return Row(
        name=request.name,
        scenario=request.scenario,
        outcome=outcome,
        hours=hours,
        error=outcome.error,
    )


def _fronts(pool: Pool, run: _Run) -> list[Row]:
    asked = [
        (place, group, gpus, _task(request, {"name": group.cluster, "gpus": gpus}))
        for place, request in enumerate(pool.requests)
        for group in allowed_groups(request, pool.groups)
        for gpus in sizes_to_plan(request, group)
    ]
    outcomes = iter(run([task for *_, task in asked if isinstance(task, Task)]))
    sized: list[list[_Sized]] = [[] for _ in pool.requests]
    for place, group, gpus, task in asked:
        outcome = next(outcomes) if isinstance(task, Task) else _failed(task)
        sized[place].append((group, gpus, outcome))
    return [_front(r, pool, own) for r, own in zip(pool.requests, sized, strict=True)]


def _front(request: Request, pool: Pool, sized: Sequence[_Sized]) -> Row:
    """Join the sizes that fit to a front, or say why there is none."""
    planned = [
        _planned(group, gpus, outcome.best) for group, gpus, outcome in sized if outcome.best
    ]
    tokens = request.tokens or next((o.tokens for *_, o in sized if o.tokens), None)
    job, error = None, ""
    if not planned:
        errors = [outcome.error for *_, outcome in sized if outcome.error]
        error = errors[0] if errors else "fits on no number of GPUs that it may use"
    elif tokens is None:
        error = "tokens is missing, in the pool file as well as in the scenario's training"
    else:
        job = job_from(request, tokens, pool.groups, planned)
        error = "" if job.front else "would never end on the GPUs that it may use"
    return Row(
        name=request.name,
        scenario=request.scenario,
        job=job if job and job.front else None,
        error=error,
    )


def _planned(group: GpuGroup, gpus: int, best: Mapping[str, Any]) -> PlannedSize:
    strategy = {name: best["strategy"][name] for name in FIELD_NAMES if name in best["strategy"]}
    return PlannedSize(
        group=group.name,
        gpus=gpus,
        iteration_s=best["iteration_s"],
        tokens_per_s=best["tokens_per_s"],
        plan=Strategy(**strategy).label(),
    )


def _task(request: Request, cluster: Mapping[str, Any] | None = None) -> Task | str:
    """Return the task, or the error that its scenario file ends in."""
    try:
        return read_task(request, cluster)
    except ShardplanError as error:
        return str(error)


def _failed(error: str) -> Outcome:
    return Outcome(answer=None, error=error)
