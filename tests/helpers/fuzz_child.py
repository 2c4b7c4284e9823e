"""`unweave` in a process of its own that tells what it writes outside a folder: its first argument.

It imports no more than the command itself, so that a process takes as long as the command does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.helpers.fuzz_watch import Watch
from unweave.cli import main

TRAIN = ("audit", "demo", "evaluate", "run", "study", "tune")  # commands that may train a model


def stop_training() -> None:
    """Let every command that would train end there: what it reads before is tried."""
    from unweave import RunError
    from unweave.lab.benchmarks import Benchmark

    def train(*arguments: Any, **more: Any) -> Any:
        raise RunError("Training is not part of this.")

    Benchmark.train = train  # type: ignore[method-assign]
    Benchmark.train_briefly = train  # type: ignore[method-assign]


if __name__ == "__main__":
    folder, words = sys.argv[1], sys.argv[2:]
    if words[:1] and words[0] in TRAIN:
        stop_training()
    watch = Watch()
    sys.argv = ["unweave", *words]
    try:
        with watch.inside(Path(folder)):
            main()
    finally:
        if watch.outside:
            print("WROTE OUTSIDE", watch.outside[:5], file=sys.stderr)
