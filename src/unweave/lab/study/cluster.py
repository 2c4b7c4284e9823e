"""Worker processes on the machines of a Ray cluster. They share a folder that every machine sees."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from unweave.engine import Compute
from unweave.errors import RunError, UsageError
from unweave.lab.packages import require_package

LOOK_EVERY = 0.3  # seconds


class ClusterTasks:
    """The workers of a cluster: tasks of Ray that end when the work is done."""

    def __init__(self, ray: Any, tasks: Sequence[Any]) -> None:
        self.ray, self.tasks = ray, list(tasks)

    def running(self) -> bool:
        """Wait a moment, or until a task ends; return whether any was running."""
        _, left = self.ray.wait(self.tasks, num_returns=len(self.tasks), timeout=0)
        if left:
            self.ray.wait(left, num_returns=1, timeout=LOOK_EVERY)
        return bool(left)

    def failed(self) -> str:
        """Name the tasks that failed, with their reasons; empty if none did."""
        found = []
        for number, task in enumerate(self.tasks):
            try:
                self.ray.get(task)
            except self.ray.exceptions.RayError as error:
                reason = str(error).strip().splitlines() or [type(error).__name__]
                found.append(f"worker {number} ({reason[-1]})")
        return " and ".join(found)

    def cancel(self) -> None:
        """End the tasks. The next start resumes their work from its checkpoints."""
        for task in self.tasks:
            with suppress(Exception):  # a task that has ended, or a cluster that is gone
                self.ray.cancel(task, force=True)


@contextmanager
def on_cluster(
    address: str, work: Callable[..., None], *arguments: Any, workers: int, computing: Compute, **more: Any
) -> Iterator[ClusterTasks]:
    """Start ``work`` on a Ray cluster: at least ``workers`` times, and once for every GPU or, without any, machine.

    Args:
        address: The address of the cluster; ``auto`` for the one that this machine belongs to.
        work: The function. It is called in worker processes, in this process's working directory if it exists there.
        arguments: What it is called with.
        workers: The least number of workers.
        computing: Where and how to compute.
        more: Further keywords of the function.

    Yields:
        The tasks.

    Raises:
        UsageError: Ray is missing, or there is no cluster at the address.
    """
    if not address.strip():
        raise UsageError("The address of the cluster is empty. Give auto, or one such as 10.0.0.1:6379.")
    ray = require_package("ray", "A cluster", extra="cluster")
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises many kinds for odd addresses
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"There is no Ray cluster at {address}: {reason} Start one with `ray start --head`."
        ) from error
    try:
        gpus = int(ray.cluster_resources().get("GPU", 0))
        count = max(workers, gpus or sum(node["Alive"] for node in ray.nodes()))
        each: dict[str, Any] = {"num_gpus": 1} if gpus else {"num_cpus": 1}
        # A task that failed is not repeated: the same command resumes the study.
        task = ray.remote(_worker).options(scheduling_strategy="SPREAD", max_retries=0, **each)
        how = {**more, "computing": computing}
        tasks = ClusterTasks(ray, [task.remote(os.getcwd(), work, arguments, how) for _ in range(count)])
        try:
            yield tasks
        except BaseException:
            tasks.cancel()
            raise
    finally:
        ray.shutdown()


def _worker(folder: str, work: Callable[..., None], arguments: tuple[Any, ...], more: dict[str, Any]) -> None:
    """Run ``work`` in a process of the cluster. Only text goes back, because errors may not be readable there."""
    if not Path(folder).is_dir():
        raise RuntimeError(f"{folder} does not exist on {platform.node()}. Use a folder that all machines share.")
    os.chdir(folder)
    try:
        work(*arguments, **more)
    except (UsageError, RunError, OSError) as error:
        raise RuntimeError(str(error)) from None
