"""The folder of a study: plain files that a person can read, and one table that pandas can open.

- ``DIR/study.json``: the request: the benchmark with its options, and the named studies
- ``DIR/models/original.seed-0.safetensors``: trained once and shared by every cell
- ``DIR/cells/NAME/``: the folder of one run (configuration, history, weights, scores)
- ``DIR/cells/NAME/against-retrain.json``: its scores against the study's retrained models, if there are any
- ``DIR/failed/NAME.json``: a cell that failed, with its error
- ``DIR/results.parquet``: one row per value
- ``DIR/provenance.json``: the command, commit, hardware, versions and date of every start
- ``DIR/times.jsonl``: how long everything took, to estimate the time left
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from unweave.errors import RunError, UsageError
from unweave.lab.benchmarks import ANSWER_SCORES, Benchmark
from unweave.lab.study.cells import Cell, profile_of, safe
from unweave.lab.study.study_files import (
    COMPARED,
    CONFIGURATION,
    SCHEMA,
    SCORES,
    of_cell,
    read_about,
    read_failure,
    read_runs,
    read_said,
    read_times,
    without_nulls,
)
from unweave.lab.study.table import flatten, write_table
from unweave.runs import UNFINISHED, load_weights, remove_folder, tidy, unfinished
from unweave.storage import (
    MODEL,
    RUN,
    WEIGHTS,
    Lock,
    append_line,
    find_weights,
    private_folder,
    read_configuration,
    refuse_links,
    require_form,
    write_whole,
)
from unweave.storage import SCORES as SCORES_FILE

COMPARISON, SAID = "against-retrain.json", "said.json"


class Store:
    """One study's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells, self.failed, self.models = folder / "cells", folder / "failed", folder / "models"
        self.table = folder / "results.parquet"
        self.locks = folder / "locks"

    @classmethod
    def create(cls, folder: Path, benchmark: str, *, options: Mapping[str, Any] | None = None) -> Store:
        """Open a study's folder for writing, or create it. A folder with other content raises an error."""
        store = cls(folder)
        options = json.loads(json.dumps(dict(options or {})))  # as JSON returns them: a tuple becomes a list
        begun = {"cells", "failed", "models", "locks", "study.json.partial"}  # of a process that is starting
        refuse_links(folder)
        # List the folder before looking for study.json: such a process writes other files only after it.
        others = {path.name for path in folder.iterdir()} - begun if folder.exists() else set()
        if others and not (folder / "study.json").exists():
            raise UsageError(f"{folder} is not empty and holds no study. Choose another --out.")
        private_folder(folder)  # exact numbers may tell who was forgotten
        for path in (store.cells, store.failed, store.models, store.locks):
            path.mkdir(parents=True, exist_ok=True)
        with Lock(store.locks / "study.lock", wait=True):
            if not (folder / "study.json").exists():
                about = {"format": "unweave-study", "schema": SCHEMA, "benchmark": benchmark, "options": options}
                store._write_about(about)
        found = store.title
        if found != _title(benchmark, options):
            raise UsageError(
                f"{folder} holds a study of {found}, not of {_title(benchmark, options)}. Choose another --out."
            )
        return store

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open an existing study's folder for reading."""
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder. Give the folder that `unweave study` wrote.")
        store = cls(folder)
        refuse_links(folder)
        store.about()
        return store

    def about(self) -> dict[str, Any]:
        """Return the content of study.json."""
        return read_about(self.folder)

    @property
    def title(self) -> str:
        """The benchmark's name, with the options that differ from its default."""
        about = self.about()
        return _title(about["benchmark"], about.get("options", {}))

    def add_presets(self, presets: Mapping[str, Mapping[str, Any]]) -> None:
        """Record the named studies of the folder. Rows of an earlier start stay."""
        with Lock(self.locks / "study.lock", wait=True):
            about = self.about()
            known = about.setdefault("presets", {})
            for name, preset in presets.items():
                before = known.get(name, {}).get("rows", [])
                known[name] = {**preset, "rows": before + [row for row in preset["rows"] if row not in before]}
            self._write_about(about)

    def _write_about(self, about: Mapping[str, Any]) -> None:
        write_whole(self.folder / "study.json", (json.dumps(about, indent=2) + "\n").encode())

    def is_done(self, cell: Cell) -> bool:
        """Return whether the cell is finished, and was watched if it must be."""
        return self._has_scores(cell.name) and (not cell.watch or "watch" in self.configuration(cell.name))

    def adopt(self, cells: Iterable[Cell]) -> None:
        """Rename the folders of cells that name their method's first profile, as older versions did."""
        with Lock(self.locks / "names.lock", wait=True):
            for cell in [cell for cell in cells if cell.profile is None]:
                named = replace(cell, profile=profile_of(cell)).name
                if (self.cells / named).exists() and not (self.cells / cell.name).exists():
                    (self.cells / named).rename(self.cells / cell.name)
                (self.failed / f"{named}.json").unlink(missing_ok=True)  # it is tried again under its new name

    def check_settings(self, cell: Cell, settings: Mapping[str, Any]) -> None:
        """Raise an error if finished cells of the same row have other settings: a row averages over seeds.

        A setting that the method did not have then, or no longer has, is not compared.
        """
        row = {key: value for key, value in describe(cell, profile_of(cell)).items() if key != "seed"}
        for name, labels in self.finished(cell.method).items():
            if row.items() <= labels.items():
                before = self.configuration(name).get("settings", {})
                different = (key for key in settings if before.get(key, settings[key]) != settings[key])
                if (key := next(different, None)) is not None:
                    raise UsageError(
                        f"{self.cells / name} was run with {key} {before[key]}, but now {key} is {settings[key]}. "
                        "Seeds with different settings cannot share a row. Choose another --out, or remove that "
                        "folder to run the cell again."
                    )

    def configuration(self, name: str) -> dict[str, Any]:
        """Return the configuration of a cell that was run."""
        folder = self.cells / name
        try:
            content: dict[str, Any] = read_configuration(folder)
            require_form(content, CONFIGURATION, f"the configuration in {folder}")
        except UsageError as error:
            raise RunError(f"{error} Remove {folder}; the study then runs that cell again.") from error
        return without_nulls(content, CONFIGURATION)

    def has_failed(self, cell: Cell, *, since: float = 0.0) -> bool:
        """Return whether the cell failed after the time ``since`` (of ``time.time()``)."""
        failed = self.failed / f"{cell.name}.json"
        return failed.exists() and failed.stat().st_mtime >= since

    def is_settled(self, cell: Cell, *, since: float) -> bool:
        """Return whether the cell is done, or failed after the time ``since``."""
        return self.is_done(cell) or self.has_failed(cell, since=since)

    def note_failure(self, cell: Cell, error: Exception) -> None:
        """Record the error of a cell, so that the cell stays visible."""
        content = {**_labels(cell), "profile": profile_of(cell), "error": str(error)}
        write_whole(self.failed / f"{cell.name}.json", (json.dumps(content, indent=2) + "\n").encode())

    def forget_failure(self, cell: Cell) -> None:
        """Remove the note of an earlier failure."""
        (self.failed / f"{cell.name}.json").unlink(missing_ok=True)

    def note_time(self, name: str, seconds: float) -> None:
        """Record how long something took. A short line is appended whole, even if other processes append too."""
        append_line(self.folder / "times.jsonl", json.dumps({"name": name, "seconds": round(seconds, 3)}))

    def times(self) -> dict[str, float]:
        """Return the seconds that cells and models took."""
        return dict(read_times(self.folder / "times.jsonl"))

    def run_folder(self, cell: Cell) -> Path:
        """Return where to run a cell: its own folder, or ``again/`` if its folder holds a run that was not watched."""
        target = self.cells / cell.name
        return self.folder / "again" / cell.name if target.exists() else target

    def put_in_place(self, cell: Cell) -> bool:
        """Replace a run by the repeated one in ``again/``; return whether there was one.

        Files move one by one, so a reader always finds a complete cell. The configuration moves last: while it is in
        ``again/``, the move is not complete, because the process died, for example. The comparison stays, because the
        weights are the same.
        """
        again, target = self.folder / "again" / cell.name, self.cells / cell.name
        is_there = (again / RUN).exists()
        if is_there:
            files = [path for path in again.rglob("*") if path.is_file()]
            for path in sorted(files, key=lambda path: path == again / RUN):
                place = target / path.relative_to(again)
                place.parent.mkdir(parents=True, exist_ok=True)
                path.replace(place)
        shutil.rmtree(again, ignore_errors=True)
        return is_there

    def tidy(self) -> None:
        """Remove what a process left that was killed at the very end of a cell: checkpoints, locks, an empty again/."""
        for name in self.finished():
            tidy(self.cells / name)
            Lock.tidy(self.locks / f"cell.{name}.lock")
            again = self.folder / "again" / name
            if again.exists() and not (again / RUN).exists() and not unfinished(again).exists():
                remove_folder(again)

    def weights(self, name: str) -> Path:
        """Return the path of a cell's weights. They may have been removed."""
        return find_weights(self.cells / name) or self.cells / name / WEIGHTS

    def model(self, name: str, benchmark: Benchmark) -> nn.Module:
        """Return the model of a finished cell."""
        return load_weights(benchmark.initial(0), self.cells / name).eval()

    def drop_weights(self, name: str) -> None:
        """Remove the weights of a finished cell, also those between its stages. Its numbers stay."""
        (self.cells / name / WEIGHTS).unlink(missing_ok=True)
        for folder in (MODEL, "checkpoints"):
            shutil.rmtree(self.cells / name / folder, ignore_errors=True)

    def failures(self, cells: Iterable[Cell] | None = None) -> list[dict[str, Any]]:
        """Return the failed cells with their errors: all of the folder, or those in ``cells``.

        A finished cell does not count, even if the record of an earlier failure is still there.
        """
        if cells is None:
            paths = [path for path in sorted(self.failed.glob("*.json")) if not self._has_scores(path.stem)]
        else:
            failed = {cell.name for cell in cells if self.has_failed(cell) and not self.is_done(cell)}
            paths = [self.failed / f"{name}.json" for name in sorted(failed)]
        return [read_failure(path) for path in paths]

    def _has_scores(self, name: str) -> bool:
        return (self.cells / name / SCORES_FILE).exists()

    def finished(self, method: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the names and labels of the finished cells (of one method), in a fixed order."""
        found = {}
        of_method = f"{safe(method)}.*" if method else "*"
        for path in sorted(self.cells.glob(f"{of_method}/scores.json")):
            name = path.parent.name
            if name.endswith(UNFINISHED):  # another process is about to rename it
                continue
            labels = self.configuration(name)["cell"]
            if method in (None, labels["method"]):
                found[name] = labels
        return found

    def references_of(self, name: str) -> list[str]:
        """Return the retrained models that a cell is compared with: all but itself.

        Retrained models with other settings than the benchmark's count only if there are no others.
        """
        found = {other: cell["variant"] for other, cell in self.finished("retrain").items()}
        plain = [other for other, variant in found.items() if not variant]
        return [other for other in plain or found if other != name]

    def not_compared(self, cells: Iterable[Cell]) -> list[str]:
        """Return the names of the finished cells that can still be compared with retrained models."""
        return [cell.name for cell in cells if self.is_done(cell) and self.comparable(cell.name)]

    def comparable(self, name: str) -> list[str]:
        """Return the retrained models to compare a cell with; empty if it is up to date or its weights are gone."""
        every, known = self.references_of(name), set(self.compared_with(name))
        there = [other for other in every if self.weights(other).exists()]
        is_behind = bool(set(there) - known or known - set(every))
        return there if is_behind and self.weights(name).exists() else []

    def compared_with(self, name: str) -> list[str]:
        """Return the retrained models that a cell has been compared with."""
        path = self.cells / name / COMPARISON
        return list(of_cell(path, COMPARED)["references"]) if path.exists() else []

    def write_comparison(self, name: str, references: list[str], scores: dict[str, Any]) -> None:
        """Write a cell's scores against these retrained models."""
        content = {**scores, "references": references}
        write_whole(self.cells / name / COMPARISON, (json.dumps(content, indent=2) + "\n").encode())

    def scores_of(self, name: str) -> dict[str, Any]:
        """Return the scores of a finished cell, against the retrained models if there are any."""
        folder = self.cells / name
        scores: dict[str, Any] = of_cell(folder / SCORES_FILE, SCORES)
        if (folder / COMPARISON).exists():
            own = {name: scores[name] for name in ("cost", "stages") if name in scores}
            scores = of_cell(folder / COMPARISON, COMPARED) | own
        return scores

    def answer_scores_of(self, name: str) -> dict[str, Any]:
        """Return the scores of what a language model answers; empty for other models."""
        file = self.cells / name / ANSWER_SCORES
        found: dict[str, Any] = of_cell(file, SCORES) if file.exists() else {}
        return found

    def said(self, name: str) -> dict[str, Any]:
        """Return what a language model writes: questions, answers and texts by subset; empty for other models."""
        file = self.cells / name / SAID
        return read_said(file) if file.exists() else {}

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per value, as in the table."""
        benchmark = self.title
        rows: list[dict[str, Any]] = []
        for name, labels in self.finished().items():
            for scores in (self.scores_of(name), self.answer_scores_of(name)):
                rows += [{"benchmark": benchmark, **labels, **found} for found in flatten(scores)]
        return rows

    def write_table(self) -> None:
        """Write the table from the finished cells."""
        write_table(self.rows(), self.table)

    def provenance(self) -> list[dict[str, Any]]:
        """Return the provenance of the numbers: one entry for each start of the study."""
        return read_runs(self.folder / "provenance.json")

    def write_provenance(self, content: dict[str, Any]) -> None:
        """Add an entry for this start."""
        runs = [*self.provenance(), content]
        write_whole(self.folder / "provenance.json", (json.dumps({"runs": runs}, indent=2) + "\n").encode())


def _title(benchmark: str, options: Mapping[str, Any]) -> str:
    return " ".join([benchmark, *(f"{name}={value}" for name, value in options.items())])


def describe(cell: Cell, profile: str) -> dict[str, Any]:
    """Return the labels in a cell's folder."""
    return _labels(cell) | {"profile": profile}


def _labels(cell: Cell) -> dict[str, Any]:
    return {"variant": cell.variant, "method": cell.method, "profile": cell.profile or "", "seed": cell.seed}
