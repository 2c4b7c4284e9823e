"""The folder of a study: plain files that a person can read, and one table that pandas opens.

- ``DIR/study.json``: what was asked for: the benchmark with its options, and the named studies
- ``DIR/models/original.seed-0.safetensors``: trained once, shared by every cell
- ``DIR/cells/NAME/``: the folder of one run (configuration, history, weights, scores)
- ``DIR/cells/NAME/against-retrain.json``: its scores beside the study's retrained models, if it has some
- ``DIR/failed/NAME.json``: a cell that failed, with its error
- ``DIR/results.parquet``: one row per value
- ``DIR/provenance.json``: the command, commit, hardware, versions and date behind it
- ``DIR/times.jsonl``: how long everything took, for the estimate of the time left
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from unweave.errors import RunError, UsageError
from unweave.lab.study.cells import Cell, profile_of, safe
from unweave.lab.study.table import flatten, write_table
from unweave.runs import UNFINISHED
from unweave.storage import Lock, write_whole

SCHEMA = 1
COMPARISON = "against-retrain.json"


class Store:
    """One study's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells, self.failed, self.models = folder / "cells", folder / "failed", folder / "models"
        self.table = folder / "results.parquet"
        self.locks = folder / "locks"

    @classmethod
    def create(cls, folder: Path, benchmark: str, *, options: Mapping[str, Any] | None = None) -> Store:
        """Open a study's folder for writing, or make it. A folder with other content is refused."""
        store = cls(folder)
        options = json.loads(json.dumps(dict(options or {})))  # as they are read again: a tuple comes back as a list
        begun = {"cells", "failed", "models", "locks", "study.json.partial"}  # by another process, just now
        # Listed before it is looked for: whatever else such a process writes, it writes after this.
        others = {path.name for path in folder.iterdir()} - begun if folder.exists() else set()
        if others and not (folder / "study.json").exists():
            raise UsageError(f"{folder} is not empty and holds no study. Choose another --out.")
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
            raise UsageError(f"{folder} is no folder. Give the folder that `unweave study` wrote.")
        store = cls(folder)
        store.about()
        return store

    def about(self) -> dict[str, Any]:
        """Return what the study is about."""
        path = self.folder / "study.json"
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.folder} holds no study ({error}). Give a folder of `unweave study`.") from error
        if not isinstance(content, dict) or content.get("format") != "unweave-study":
            raise UsageError(f"{self.folder} holds no study. Give a folder of `unweave study`.")
        if content.get("schema") != SCHEMA:
            raise UsageError(
                f"{self.folder} has schema {content.get('schema')!r}; this unweave reads {SCHEMA}. Update unweave."
            )
        return content

    @property
    def title(self) -> str:
        """The benchmark's name, with the options that differ from its default."""
        about = self.about()
        return _title(about["benchmark"], about.get("options", {}))

    def add_presets(self, presets: Mapping[str, Mapping[str, Any]]) -> None:
        """Note which named studies the folder holds; rows of an earlier start stay."""
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
        """Tell whether the cell has been run to its end, and watched if it is to be."""
        return self._has_scores(cell.name) and (not cell.watch or "watch" in self._config(cell.name))

    def adopt(self, cells: Iterable[Cell]) -> None:
        """Let cells that name their method's first profile, as they once did, be those that name none."""
        with Lock(self.locks / "names.lock", wait=True):
            for cell in [cell for cell in cells if cell.profile is None]:
                named = replace(cell, profile=profile_of(cell)).name
                if (self.cells / named).exists() and not (self.cells / cell.name).exists():
                    (self.cells / named).rename(self.cells / cell.name)
                (self.failed / f"{named}.json").unlink(missing_ok=True)  # it is tried again by its other name

    def check_settings(self, cell: Cell, settings: Mapping[str, Any]) -> None:
        """Refuse to add to a row of which cells were run with other settings: seeds are averaged.

        A setting that the method did not have then, or has no more, is not compared.
        """
        row = {key: value for key, value in describe(cell, profile_of(cell)).items() if key != "seed"}
        for name, labels in self.finished(cell.method).items():
            if row.items() <= labels.items():
                before = self._config(name)["settings"]
                different = (key for key in settings if before.get(key, settings[key]) != settings[key])
                if (key := next(different, None)) is not None:
                    raise UsageError(
                        f"{self.cells / name} was run with {key} {before[key]}, and now {settings[key]} is asked for: "
                        "seeds with different settings make no row. Choose another --out, or remove that folder, "
                        "and the study runs the cell again."
                    )

    def _config(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = _of_cell(self.cells / name / "config.json")
        return content

    def has_failed(self, cell: Cell, *, since: float = 0.0) -> bool:
        """Tell whether the cell's last run failed, since a moment (of ``time.time()``)."""
        failed = self.failed / f"{cell.name}.json"
        return failed.exists() and failed.stat().st_mtime >= since

    def is_settled(self, cell: Cell, *, since: float) -> bool:
        """Tell whether the cell is done, or has failed since a moment."""
        return self.is_done(cell) or self.has_failed(cell, since=since)

    def note_failure(self, cell: Cell, error: Exception) -> None:
        """Keep what went wrong, so that the cell does not vanish from the table."""
        content = {**_labels(cell), "profile": profile_of(cell), "error": str(error)}
        write_whole(self.failed / f"{cell.name}.json", (json.dumps(content, indent=2) + "\n").encode())

    def forget_failure(self, cell: Cell) -> None:
        """Remove the note of an earlier failure."""
        (self.failed / f"{cell.name}.json").unlink(missing_ok=True)

    def note_time(self, name: str, seconds: float) -> None:
        """Keep how long something took; a short line is appended whole whoever else appends."""
        with (self.folder / "times.jsonl").open("a") as file:
            file.write(json.dumps({"name": name, "seconds": round(seconds, 3)}) + "\n")

    def times(self) -> dict[str, float]:
        """Return how long cells and models took."""
        return dict(read_times(self.folder / "times.jsonl"))

    def run_folder(self, cell: Cell) -> Path:
        """Return where to run a cell: its folder, or another place if that holds it already, but not watched."""
        target = self.cells / cell.name
        return self.folder / "again" / cell.name if target.exists() else target

    def put_in_place(self, cell: Cell) -> bool:
        """Let a run that was made again take the place of the older one; tell whether there was such a run.

        File by file, so that whoever reads meanwhile finds a whole cell. The configuration goes last: it says that the
        cell is watched, and what is left here with it was not put in place, because the process died just then. The
        comparison stays: the weights are the same.
        """
        again, target = self.folder / "again" / cell.name, self.cells / cell.name
        is_there = (again / "config.json").exists()
        if is_there:
            files = [path for path in again.rglob("*") if path.is_file()]
            for path in sorted(files, key=lambda path: path == again / "config.json"):
                place = target / path.relative_to(again)
                place.parent.mkdir(parents=True, exist_ok=True)
                path.replace(place)
        shutil.rmtree(again, ignore_errors=True)
        return is_there

    def weights(self, name: str) -> Path:
        """Return where the weights of a cell are, if they were kept."""
        return self.cells / name / "model.safetensors"

    def drop_weights(self, name: str) -> None:
        """Remove the weights of a finished cell, also those between its stages; its numbers stay."""
        self.weights(name).unlink(missing_ok=True)
        shutil.rmtree(self.cells / name / "checkpoints", ignore_errors=True)

    def failures(self, cells: Iterable[Cell] | None = None) -> list[dict[str, Any]]:
        """Return the failed cells with their errors: all of the folder, or some.

        A cell that is done has not failed, even if the process died before it removed the note of an earlier try.
        """
        if cells is None:
            paths = [path for path in sorted(self.failed.glob("*.json")) if not self._has_scores(path.stem)]
        else:
            failed = {cell.name for cell in cells if self.has_failed(cell) and not self.is_done(cell)}
            paths = [self.failed / f"{name}.json" for name in sorted(failed)]
        return [json.loads(path.read_text()) for path in paths]

    def _has_scores(self, name: str) -> bool:
        return (self.cells / name / "scores.json").exists()

    def finished(self, method: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the names and labels of the finished cells (of one method), in a fixed order."""
        found = {}
        of_method = f"{safe(method)}.*" if method else "*"
        for path in sorted(self.cells.glob(f"{of_method}/scores.json")):
            name = path.parent.name
            if name.endswith(UNFINISHED):  # by another process, which is about to rename it
                continue
            labels = self._config(name)["cell"]
            if method in (None, labels["method"]):
                found[name] = labels
        return found

    def references_of(self, name: str) -> list[str]:
        """Return the retrained models that a cell is compared with: all, but not itself.

        Those that were trained otherwise than the benchmark says count where there are no others.
        """
        found = {other: cell["variant"] for other, cell in self.finished("retrain").items()}
        plain = [other for other, variant in found.items() if not variant]
        return [other for other in plain or found if other != name]

    def not_compared(self, cells: Iterable[Cell]) -> list[str]:
        """Return the names of finished cells that are still to be compared with retrained models, and can be."""
        return [cell.name for cell in cells if self.is_done(cell) and self.comparable(cell.name)]

    def comparable(self, name: str) -> list[str]:
        """Return what a cell is to be compared with: the retrained models that have weights, if any is new to it."""
        every, known = self.references_of(name), set(self.compared_with(name))
        there = [other for other in every if self.weights(other).exists()]
        is_behind = bool(set(there) - known or known - set(every))
        return there if is_behind and self.weights(name).exists() else []

    def compared_with(self, name: str) -> list[str]:
        """Return the retrained models that a cell has been scored beside."""
        path = self.cells / name / COMPARISON
        return list(_of_cell(path)["references"]) if path.exists() else []

    def write_comparison(self, name: str, references: list[str], scores: dict[str, Any]) -> None:
        """Keep a cell's scores beside these retrained models."""
        content = {**scores, "references": references}
        write_whole(self.cells / name / COMPARISON, (json.dumps(content, indent=2) + "\n").encode())

    def scores_of(self, name: str) -> dict[str, Any]:
        """Return the scores of a finished cell, beside the retrained models where there are some."""
        folder = self.cells / name
        scores: dict[str, Any] = _of_cell(folder / "scores.json")
        if (folder / COMPARISON).exists():
            own = {name: scores[name] for name in ("cost", "stages") if name in scores}
            scores = _of_cell(folder / COMPARISON) | own
        return scores

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per value, as in the table."""
        benchmark = self.title
        rows: list[dict[str, Any]] = []
        for name, labels in self.finished().items():
            rows += [{"benchmark": benchmark, **labels, **found} for found in flatten(self.scores_of(name))]
        return rows

    def write_table(self) -> None:
        """Write the table anew from the finished cells."""
        write_table(self.rows(), self.table)

    def provenance(self) -> list[dict[str, Any]]:
        """Return where the numbers come from: one entry for each start of the study."""
        path = self.folder / "provenance.json"
        runs: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if path.exists() else []
        return runs

    def write_provenance(self, content: dict[str, Any]) -> None:
        """Add an entry for this start."""
        runs = [*self.provenance(), content]
        write_whole(self.folder / "provenance.json", (json.dumps({"runs": runs}, indent=2) + "\n").encode())


def read_times(path: Path) -> list[tuple[str, float]]:
    """Return names and seconds as they were noted. A line that a dying process left unfinished is skipped."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(ValueError, KeyError, TypeError):
            row = json.loads(line)
            found.append((str(row["name"]), float(row["seconds"])))
    return found


def _title(benchmark: str, options: Mapping[str, Any]) -> str:
    return " ".join([benchmark, *(f"{name}={value}" for name, value in options.items())])


def describe(cell: Cell, profile: str) -> dict[str, Any]:
    """Return the labels that a cell's folder carries."""
    return _labels(cell) | {"profile": profile}


def _labels(cell: Cell) -> dict[str, Any]:
    return {"variant": cell.variant, "method": cell.method, "profile": cell.profile or "", "seed": cell.seed}


def _of_cell(file: Path) -> Any:
    """Read a file of a finished cell."""
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise RunError(
            f"{file} cannot be read: {error}. Remove {file.parent}; the study then runs that cell again."
        ) from error
