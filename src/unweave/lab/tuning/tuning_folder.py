"""The folder of a tuning.

- ``DIR/tuning.json``: the request: the benchmark with its options, the goal, the seeds
- ``DIR/optuna.db``: every trial, as Optuna stores it (one study for each method)
- ``DIR/models/``: the originals and, for the goal *retrain*, retrained models; all without the held-out data
- ``DIR/times.jsonl``: how long their training took
- ``DIR/trials.csv``: one row per trial
- ``DIR/best.json``: the best trial of every method, the cost of the search, and the provenance: the profile ``tuned``
- ``DIR/provenance.json``: the command, commit, hardware, versions and date of every start
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unweave.data import SUBSETS
from unweave.errors import UsageError
from unweave.lab.benchmarks import FILE, FORMAT, SCHEMA, Benchmark
from unweave.lab.study import read_runs, read_times
from unweave.lab.tuning.held_out import HELD_OUT
from unweave.lab.tuning.objectives import GOALS
from unweave.lab.tuning.search_space import DEFAULT, WRITTEN
from unweave.lab.tuning.searches import Tried
from unweave.storage import (
    OBJECT,
    Lock,
    append_line,
    csv_text,
    private_folder,
    read_json,
    refuse_links,
    require_form,
    write_whole,
)

COLUMNS = (
    *("method", "trial", "origin", "score", "standard_error", "seeds", *SUBSETS),
    *("seconds", "sample_gradients", "error", "settings"),
)


class Folder:
    """One tuning's folder."""

    def __init__(self, place: Path, benchmark: Benchmark, *, goal: str, seed: int, seeds: int) -> None:
        """Open the folder, or create it. Other content, or another tuning, raises an error."""
        self.place, self.models, self.locks = place, place / "models", place / "locks"
        self.storage, self.best = place / "optuna.db", place / FILE
        self.about = {
            "benchmark": benchmark.name,
            "options": dict(benchmark.options),
            "goal": goal,
            "objective": GOALS[goal].words,
            "seed": seed,
            "seeds": seeds,
            "held_out": HELD_OUT,
        }
        known = place / "tuning.json"
        begun = {"models", "locks", "tuning.json.partial"}  # of a process that is starting or died
        # List the folder before looking for tuning.json: such a process writes other files only after it.
        refuse_links(place)
        others = {path.name for path in place.iterdir()} - begun if place.exists() else set()
        if others and not known.exists():
            raise UsageError(f"{place} is not empty and holds no tuning. Choose another --out.")
        private_folder(place)
        for path in (self.models, self.locks):
            path.mkdir(parents=True, exist_ok=True)
        with Lock(self.locks / "tuning.lock", wait=True):
            if not known.exists():
                write_whole(known, _indented(self.about))
        found = read_json(known)
        require_form(found, OBJECT, str(known))
        if found != self.about:
            every = {**self.about, **found}
            different = next(name for name in every if found.get(name, self) != self.about.get(name, self))
            raise UsageError(
                f"{place} holds a tuning with {different} {found.get(different)}, not {self.about.get(different)}. "
                "Choose another --out."
            )

    def note_time(self, name: str, seconds: float) -> None:
        """Record how long training a model took, which is a part of the cost of tuning."""
        append_line(self.place / "times.jsonl", json.dumps({"name": name, "seconds": round(seconds, 3)}))

    def add_provenance(self, content: Mapping[str, Any]) -> None:
        """Record the provenance of a start."""
        with Lock(self.locks / "provenance.lock", wait=True):
            write_whole(self.place / "provenance.json", _indented({"runs": [*self._runs(), content]}))

    def _training_seconds(self) -> float:
        return round(sum(seconds for _, seconds in read_times(self.place / "times.jsonl")), 3)

    def _runs(self) -> list[Any]:
        return read_runs(self.place / "provenance.json")

    def write(self, every: Mapping[str, Sequence[Tried]]) -> dict[str, Any] | None:
        """Write the table and, if all methods have the same trials, the best of each."""
        with Lock(self.locks / "tables.lock", wait=True):
            write_whole(self.place / "trials.csv", _table(every).encode())
            every = {name: tried for name, tried in every.items() if tried}  # a method that has not started has none
            trials = max(map(len, every.values()), default=0)
            had = [[trial.trial for trial in tried] for tried in every.values()]
            if not had or any(numbers != list(range(trials)) for numbers in had):
                self.best.unlink(missing_ok=True)
                return None
            content = self._content(every, trials)
            write_whole(self.best, _indented(content))
        return content

    def write_best_of_first(self, every: Mapping[str, Sequence[Tried]], place: Path) -> int:
        """Write the best of each method among its first trials, as many as all methods have; return how many."""
        trials = min(sum(trial.trial == number for number, trial in enumerate(tried)) for tried in every.values())
        if trials:
            private_folder(place)
            first = {name: tried[:trials] for name, tried in every.items()}
            write_whole(place / FILE, _indented(self._content(first, trials)))
        return trials

    def _content(self, every: Mapping[str, Sequence[Tried]], trials: int) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "schema": SCHEMA,
            **self.about,
            "trials": trials,
            "training_seconds": self._training_seconds(),
            "methods": {name: best_of(tried) for name, tried in every.items()},
            "provenance": {"runs": self._runs()},
        }


def chosen(tried: Sequence[Tried]) -> Tried:
    """Return the trial with the highest score; among equals the cheapest, and among these the earliest.

    If the default or the paper's settings are within a standard error of it, the better one of them is returned: such
    a small difference may be chance. A failed trial does not count for this.
    """

    def merit(trial: Tried) -> tuple[float, ...]:
        return (trial.score, not trial.error, -(trial.sample_gradients or 0), -trial.trial)

    highest = max(tried, key=merit)
    written = [trial for trial in tried if trial.origin in WRITTEN and not trial.error]
    good_enough = [trial for trial in written if trial.score >= highest.score - highest.standard_error]
    return max(good_enough, key=merit, default=highest)


def best_of(tried: Sequence[Tried]) -> dict[str, Any]:
    """Return a method's chosen trial with the default's score, the highest score and the cost of all trials."""
    entry = asdict(chosen(tried))
    return {
        "settings": entry["settings"],
        **{name: entry[name] for name in ("trial", "origin", "score", "accuracy")},
        "highest_score": max(trial.score for trial in tried),
        "default_score": next(trial.score for trial in tried if trial.origin == DEFAULT),
        "cost": {
            "trials": len(tried),
            "failed": sum(bool(trial.error) for trial in tried),
            "seconds": round(sum(trial.seconds for trial in tried), 3),
            "sample_gradients": sum(trial.sample_gradients or 0 for trial in tried),
        },
    }


def _table(every: Mapping[str, Sequence[Tried]]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for tried in every.values():
        default = next((trial.settings for trial in tried if trial.origin == DEFAULT), {})
        for trial in tried:
            different = {name: value for name, value in trial.settings.items() if default.get(name) != value}
            row = {name: value for name, value in asdict(trial).items() if name in COLUMNS}
            row |= {"standard_error": trial.standard_error, "seeds": len(trial.scores), **trial.accuracy}
            row |= {"settings": json.dumps(different, sort_keys=True)}
            writer.writerow({name: csv_text(value) for name, value in row.items()})
    return file.getvalue()


def _indented(content: Any) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()
