"""Options that several commands have, and how their values are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unweave.errors import UsageError
from unweave.lab.benchmarks import Benchmark, find_benchmark

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Device = Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda, cuda:1. Default: the best there is.")]
Precision = Annotated[str, typer.Option(help="auto (bfloat16 on CUDA, float32 elsewhere), float32 or bfloat16.")]
Compile = Annotated[str, typer.Option("--compile", help="Compile the model: auto (where it saves time), on or off.")]
BenchmarkName = Annotated[str, typer.Argument(help="A name from `unweave benchmarks`.")]
DataFolder = Annotated[
    str | None,
    typer.Option(envvar="UNWEAVE_DATA", help="Folder with the data sets; hub: the Hugging Face Hub."),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="An option of the benchmark; repeatable."),
]
SplitFile = Annotated[Path | None, typer.Option("--split", help="Indices that replace the benchmark's split.")]
TestSplitFile = Annotated[
    Path | None, typer.Option("--test-split", help="Indices of the test data that go with --split; without it, none.")
]
Track = Annotated[
    str, typer.Option(metavar="NAME,…", help="Send the history to trackers that Accelerate knows, such as tensorboard.")
]
Tuned = Annotated[
    Path | None, typer.Option(help="A folder of `unweave tune`, for the profile tuned (or tuned-retrain).")
]
Small = Annotated[bool, typer.Option("--small", help="Little data and a tiny model, to try it on two cores.")]
Workers = Annotated[int, typer.Option(min=1, help="How many processes share the work.")]


def words(text: str) -> list[str]:
    """Split words joined by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def pairs(texts: list[str]) -> dict[str, str]:
    """Split KEY=VALUE texts."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"Expected KEY=VALUE, not {text!r}.")
        found[key.strip().replace("-", "_")] = value.strip()
    return found


def chosen_options(options: list[str] | None, small: bool) -> dict[str, Any]:
    """Return a benchmark's options as the command line gave them."""
    return {**pairs(options or []), **({"small": True} if small else {})}


def benchmark_of(
    name: str, *, data: str | None, options: list[str] | None, small: bool, tuned: Path | None = None
) -> Benchmark:
    """Return the benchmark that a command names."""
    return find_benchmark(name, data=data, options=chosen_options(options, small), tuned=tuned)
