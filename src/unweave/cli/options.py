"""Options of several commands, and functions that read their values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweave.errors import UsageError

if TYPE_CHECKING:
    from unweave.lab.benchmarks import Benchmark

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Device = Annotated[str | None, typer.Option(help="Device: cpu, cuda or cuda:1. Default: the best one available.")]
Precision = Annotated[
    str, typer.Option(help="Precision: auto (bfloat16 on CUDA, float32 elsewhere), float32 or bfloat16.")
]
Compile = Annotated[
    str, typer.Option("--compile", help="Compile and record passes: auto (where it saves time), on or off.")
]
BenchmarkName = Annotated[
    str, typer.Argument(help="Name of a benchmark (see `unweave benchmarks`), a request file, or MODULE:FUNCTION.")
]
DataFolder = Annotated[
    str | None,
    typer.Option(envvar="UNWEAVE_DATA", help="Folder with the data sets, or hub for the Hugging Face Hub."),
]
OptionValues = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="Option of the benchmark. Repeatable."),
]
SplitFile = Annotated[
    Path | None, typer.Option("--split", help="File of indices to use instead of the benchmark's split.")
]
TestSplitFile = Annotated[
    Path | None,
    typer.Option("--test-split", help="File of indices of the test data. With --split alone, no test data is used."),
]
Track = Annotated[
    str,
    typer.Option(
        metavar="NAME,…", help="Trackers that get the history, such as tensorboard. Accelerate must know them."
    ),
]
Tuned = Annotated[Path | None, typer.Option(help="Folder of `unweave tune`, for the profile tuned or tuned-retrain.")]
Small = Annotated[
    bool, typer.Option("--small", help="Use little data and a tiny model, to try the command on two cores.")
]
Workers = Annotated[
    str,
    typer.Option(
        metavar="N",
        help="Number of processes that share the work, or auto: as many as share the device best, which is measured.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Ray cluster to share the work with, or auto for that of this machine. All machines must see the folder.",
    ),
]


def words(text: str) -> list[str]:
    """Return the words of a text that joins them by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def pairs(texts: list[str]) -> dict[str, str]:
    """Return KEY=VALUE texts as a dictionary."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"Expected KEY=VALUE, but got {text!r}.")
        found[key.strip().replace("-", "_")] = value.strip()
    return found


def chosen_options(options: list[str] | None, small: bool) -> dict[str, Any]:
    """Return the options of a benchmark from the command line."""
    return {**pairs(options or []), **({"small": True} if small else {})}


def benchmark_of(
    name: str, *, data: str | None, options: list[str] | None, small: bool, tuned: Path | None = None
) -> Benchmark:
    """Return the benchmark that a command names."""
    from unweave.lab.benchmarks import find_benchmark

    return find_benchmark(name, data=data, options=chosen_options(options, small), tuned=tuned)
