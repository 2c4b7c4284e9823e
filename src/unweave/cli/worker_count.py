"""What `--workers` says: a number, or auto."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unweave.cli.app import say
from unweave.engine import Compute
from unweave.errors import UsageError, short
from unweave.lab.benchmarks import Benchmark
from unweave.lab.study import packed, shared_gpu


@contextmanager
def sharing(workers: str, source: Callable[[], Benchmark], computing: Compute, *, cluster: str | None) -> Iterator[int]:
    """Yield the number of workers; with auto it is measured, and the workers of the block share the GPU."""
    if workers != "auto":
        yield _counted(workers)
        return
    if cluster is not None:
        raise UsageError("--workers auto measures this machine only. With --cluster, give --workers a number.")
    computing.check()
    with shared_gpu(computing):
        say("Measuring how many workers share the device best.")
        found = packed(source, computing)
        say(str(found))
        yield found.workers


def _counted(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or not 1 <= int(text[:6]) <= 1024:
        raise UsageError(f"--workers must be a number from 1 to 1024, or auto, not {short(text)}.")
    return int(text[:6])
