"""Settings from `unweave tune` as profiles of a benchmark: ``tuned``, and ``tuned-retrain`` for the goal ``retrain``.

They are read from the ``best.json`` that `unweave tune` writes: the settings of every method with their provenance.
Some come with the package, in the folder ``tuned/``; others come from a folder that the user gives.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from unweave.errors import UsageError
from unweave.lab.benchmarks.benchmark import Benchmark
from unweave.storage import COUNT, OBJECT, TEXT, read_json, require_form

FORMAT, SCHEMA, FILE = "unweave-tuned", 1, "best.json"
FORM = {
    "benchmark": TEXT,
    "options": OBJECT,
    "goal": TEXT,
    "trials": COUNT,
    "methods": {"*": {"settings": OBJECT}},
    "provenance": {"runs": [OBJECT]},
}


def profile_of_goal(goal: str) -> str:
    """Return the profile's name for a goal of tuning.

    >>> profile_of_goal("erase"), profile_of_goal("retrain")
    ('tuned', 'tuned-retrain')
    """
    return "tuned" if goal == "erase" else f"tuned-{goal}"


def profile_of_folder(given: str | os.PathLike[str]) -> str:
    """Return the profile's name for the settings in a folder of `unweave tune`."""
    return profile_of_goal(_read(Path(given))["goal"])


def with_tuned(benchmark: Benchmark, given: str | os.PathLike[str] | None = None) -> Benchmark:
    """Return the benchmark with the tuned profiles of the package, and that of the folder ``given``.

    Settings tuned on one class to forget apply to another if only the split differs. Settings tuned at one image size
    apply to another if the benchmark calls them alike. A folder of another benchmark, or of other options, raises an
    error.
    """
    for content in _committed():
        if benchmark.is_tuned_like(content["benchmark"], content["options"]):
            benchmark = _added(benchmark, content)
    if given is not None:
        content = _read(Path(given))
        if not benchmark.is_tuned_like(content["benchmark"], content["options"]):
            options = " ".join(f"{name}={value}" for name, value in content["options"].items())
            raise UsageError(
                f"{given} was tuned on {' '.join([content['benchmark'], options]).strip()}, not on {benchmark.title}. "
                "Give a folder of the same benchmark and options (what to forget may differ, if training does not)."
            )
        benchmark = _added(benchmark, content)
    return benchmark


def _committed() -> Iterator[Mapping[str, Any]]:
    for place in sorted(
        resources.files("unweave.lab.benchmarks").joinpath("tuned").iterdir(), key=lambda place: place.name
    ):
        if place.name.endswith(".json"):
            with resources.as_file(place) as path:
                yield _checked(read_json(path), path)


def _read(folder: Path) -> Mapping[str, Any]:
    path = folder / FILE if folder.is_dir() else folder
    if not path.exists():
        raise UsageError(
            f"{path} does not exist. Give the folder of an `unweave tune` with the same number of trials for every "
            "method."
        )
    return _checked(read_json(path), path)


def _checked(content: Any, path: Path) -> Mapping[str, Any]:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UsageError(f"{path} holds no tuned settings. Give the folder of an `unweave tune`.")
    if content.get("schema") != SCHEMA:
        raise UsageError(f"{path} has schema {content.get('schema')!r}; this unweave reads {SCHEMA}. Update unweave.")
    require_form(content, FORM, path.name)
    return content


def _added(benchmark: Benchmark, content: Mapping[str, Any]) -> Benchmark:
    """Return the benchmark with these settings as a profile, which replaces an older profile of that name."""
    profile = profile_of_goal(content["goal"])
    others = {
        name: {key: values for key, values in own.items() if key != profile} for name, own in benchmark.settings.items()
    }
    settings = {name: own for name, own in others.items() if own}
    for name, found in content["methods"].items():
        settings[name] = {**settings.get(name, {}), profile: found["settings"]}
    about = {name: value for name, value in content.items() if name not in ("format", "schema", "methods")}
    return dataclasses.replace(benchmark, settings=settings, tuned={**benchmark.tuned, profile: about})
