"""Where tasks run: processes of this machine, or an existing Dask cluster; both are Executors."""

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any

from costmodel.errors import InputError

OpenExecutor = Callable[[], contextlib.AbstractContextManager[Executor]]


def local_processes(tasks: int, threads_per_task: int = 1) -> OpenExecutor:
    """Return how to open a pool of processes: workers x solver threads stay within the cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = max(1, min(tasks, (cores or 1) // threads_per_task))

    def open_pool() -> contextlib.AbstractContextManager[Executor]:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(max_workers=workers, mp_context=context)

    return open_pool


def dask_cluster(address: str, timeout_s: float = 10.0) -> OpenExecutor:
    """Return how to reach the scheduler at ``address``, for example ``tcp://10.0.0.1:8786``.

    A task whose worker dies is given to another worker by the scheduler.
    """

    @contextlib.contextmanager
    def open_client() -> Iterator[Executor]:
        client = _client(address, timeout_s)
        try:
            yield client.get_executor(retries=3)
        finally:
            client.close()

    return open_client


def _client(address: str, timeout_s: float) -> Any:
    try:
        import distributed
    except ImportError as error:
        raise InputError(
            "needs the extra dask", key="--scheduler", nearest="pip install 'shardplan[dask]'"
        ) from error
    connect: Any = distributed.Client
    try:
        return connect(address, timeout=timeout_s)
    except (OSError, ValueError) as error:
        rule = f"must be the address of a running Dask scheduler ({_one_line(error)})"
        raise InputError(
            rule, key="--scheduler", value=address, nearest="tcp://HOST:8786"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
