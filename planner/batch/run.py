"""Run tasks over an Executor: none is lost, none stops the rest, the order of finishing does not show."""

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool

from planner.batch.journal import Journal
from planner.batch.machines import OpenExecutor
from planner.batch.tasks import Outcome, PlanFunction, Task, run_task

Progress = Callable[[int, int, int], None]


def run_tasks(
    tasks: Sequence[Task],
    plan: PlanFunction,
    open_executor: OpenExecutor,
    journal: Journal,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Return the outcome of each task, in the order of ``tasks``.

    Equal tasks are planned once; tasks in the journal are not planned again. If a worker process dies, what it
    was given runs again one task at a time, so that only the one that kills its worker ends in an error.

    Args:
        tasks: What to plan.
        plan: The planner; it has to be importable where the workers run.
        open_executor: Opens the machines (planner.batch.machines).
        journal: Where finished tasks are recorded.
        progress: Told the numbers of finished, failed and all tasks; default: stderr, on a terminal.
    """
    keys = [task.key for task in tasks]
    outcomes = {key: journal.finished[key] for key in keys if key in journal.finished}
    waiting = {key: task for key, task in zip(keys, tasks, strict=True) if key not in outcomes}
    tell = progress or terminal_progress()

    def done(key: str, outcome: Outcome, keep: bool = True) -> None:
        outcomes[key] = outcome
        if keep:
            journal.record(key, outcome)
        failed = sum(bool(outcome.error) for outcome in outcomes.values())
        tell(len(outcomes), failed, len(set(keys)))

    if waiting:
        suspects = _run_together(waiting, plan, open_executor, done)
        for key in suspects:
            _run_alone(key, waiting[key], plan, open_executor, done)
    return [outcomes[key] for key in keys]


_Done = Callable[..., None]


def _run_together(
    waiting: Mapping[str, Task], plan: PlanFunction, open_executor: OpenExecutor, done: _Done
) -> list[str]:
    """Run all tasks; return the keys of those whose worker died."""
    suspects: list[str] = []
    with open_executor() as executor:
        futures = _submit(executor, waiting, plan)
        for future in as_completed(futures):
            key = futures[future]
            outcome = _outcome(future)
            if outcome is None:
                suspects.append(key)
            else:
                done(key, outcome)
    missing = [key for key in waiting if key not in futures.values()]
    return [key for key in waiting if key in suspects or key in missing]


def _submit(
    executor: Executor, waiting: Mapping[str, Task], plan: PlanFunction
) -> dict["Future[Outcome]", str]:
    futures: dict[Future[Outcome], str] = {}
    try:
        for key, task in waiting.items():
            futures[executor.submit(run_task, task, plan)] = key
    except BrokenProcessPool:
        # A worker died while tasks were still being handed out; the rest is run one by one.
        return futures
    return futures


def _run_alone(
    key: str, task: Task, plan: PlanFunction, open_executor: OpenExecutor, done: _Done
) -> None:
    with open_executor() as executor:
        outcome = _outcome(executor.submit(run_task, task, plan))
    if outcome is not None:
        done(key, outcome)
        return
    # A death is no property of the scenario alone, so a resumed batch tries it again.
    done(key, Outcome(answer=None, error="the worker process died (out of memory?)"), keep=False)


def _outcome(future: "Future[Outcome]") -> Outcome | None:
    """Return the outcome; None if the worker died, or its scheduler left, before there was one."""
    if future.cancelled():
        return None
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, BrokenProcessPool) or type(error).__name__ == "KilledWorker":
        return None
    return Outcome(answer=None, error=f"{type(error).__name__}: {error}")


def terminal_progress() -> Progress:
    """Return a progress line on stderr, silent where stderr is no terminal."""
    shown = sys.stderr.isatty()

    def tell(finished: int, failed: int, all_tasks: int) -> None:
        if shown:
            end = "\n" if finished == all_tasks else ""
            faults = f", {failed} failed" if failed else ""
            sys.stderr.write(f"\r{finished}/{all_tasks} planned{faults}{end}")
            sys.stderr.flush()

    return tell
