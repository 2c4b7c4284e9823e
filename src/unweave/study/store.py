"""The folder of a study: plain files that a person can read, and one table that pandas opens.

- ``DIR/study.json``: what was asked for
- ``DIR/models/original.seed-0.safetensors``: trained once, shared by every cell
- ``DIR/cells/NAME/``: the folder of one run (configuration, history, weights, scores)
- ``DIR/cells/NAME/against-retrain.json``: its scores beside the study's retrained models, if it has some
- ``DIR/failed/NAME.json``: a cell that failed, with its error
- ``DIR/results.parquet``: one row per value
- ``DIR/provenance.json``: the command, commit, hardware, versions and date behind it
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from unweave.errors import UsageError
from unweave.files import write_whole
from unweave.study.cells import Cell

SCHEMA = 1
COMPARISON = "against-retrain.json"
COLUMNS = ("benchmark", "variant", "method", "profile", "seed", "split", "subset", "metric", "value", "low", "high")


class Store:
    """One study's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells, self.failed, self.models = folder / "cells", folder / "failed", folder / "models"
        self.table = folder / "results.parquet"

    @classmethod
    def create(cls, folder: Path, benchmark: str, *, options: Mapping[str, Any] | None = None) -> Store:
        """Open a study's folder for writing, or make it. A folder with other content is refused."""
        store = cls(folder)
        options = dict(options or {})
        if (folder / "study.json").exists():
            about = store.about()
            found = _title(about["benchmark"], about.get("options", {}))
            if found != _title(benchmark, options):
                raise UsageError(
                    f"{folder} holds a study of {found}, not of {_title(benchmark, options)}. Choose another --out."
                )
        elif folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty and holds no study. Choose another --out.")
        for path in (store.cells, store.failed, store.models, folder / "locks"):
            path.mkdir(parents=True, exist_ok=True)
        if not (folder / "study.json").exists():
            about = {"format": "unweave-study", "schema": SCHEMA, "benchmark": benchmark, "options": options}
            write_whole(folder / "study.json", (json.dumps(about, indent=2) + "\n").encode())
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

    def is_done(self, cell: Cell) -> bool:
        """Tell whether the cell has been run to its end."""
        return (self.cells / cell.name / "scores.json").exists()

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """Hold the right to work on something; yields False where another process holds it.

        The lock is the system's, on an open file, so it ends with the process however that ends.
        """
        import fcntl

        with (self.folder / "locks" / f"cell.{name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True

    @contextmanager
    def wait_for(self, name: str) -> Iterator[IO[str]]:
        """Hold the right to work on something, waiting for whoever holds it."""
        import fcntl

        with (self.folder / "locks" / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def note_failure(self, cell: Cell, error: Exception) -> None:
        """Keep what went wrong, so that the cell does not vanish from the table."""
        content = {**_labels(cell), "error": str(error)}
        write_whole(self.failed / f"{cell.name}.json", (json.dumps(content, indent=2) + "\n").encode())

    def forget_failure(self, cell: Cell) -> None:
        """Remove the note of an earlier failure."""
        (self.failed / f"{cell.name}.json").unlink(missing_ok=True)

    def failures(self) -> list[dict[str, Any]]:
        """Return the failed cells with their errors."""
        return [json.loads(path.read_text()) for path in sorted(self.failed.glob("*.json"))]

    def finished(self, method: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the names and labels of the finished cells (of one method), in a fixed order."""
        found = {}
        for path in sorted(self.cells.glob("*/scores.json")):
            labels = json.loads((path.parent / "config.json").read_text())["cell"]
            if method in (None, labels["method"]):
                found[path.parent.name] = labels
        return found

    def is_compared(self, name: str, references: list[str]) -> bool:
        """Tell whether a cell has been scored beside these retrained models."""
        path = self.cells / name / COMPARISON
        return path.exists() and json.loads(path.read_text())["references"] == references

    def write_comparison(self, name: str, references: list[str], scores: dict[str, Any]) -> None:
        """Keep a cell's scores beside these retrained models."""
        content = {**scores, "references": references}
        write_whole(self.cells / name / COMPARISON, (json.dumps(content, indent=2) + "\n").encode())

    def scores_of(self, name: str) -> dict[str, Any]:
        """Return the scores of a finished cell, beside the retrained models where there are some."""
        folder = self.cells / name
        scores: dict[str, Any] = json.loads((folder / "scores.json").read_text())
        if (folder / COMPARISON).exists():
            scores = json.loads((folder / COMPARISON).read_text()) | {"cost": scores["cost"]}
        return scores

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per value, as in the table."""
        about = self.about()
        benchmark = _title(about["benchmark"], about.get("options", {}))
        rows: list[dict[str, Any]] = []
        for name, labels in self.finished().items():
            rows += [{"benchmark": benchmark, **labels, **found} for found in flatten(self.scores_of(name))]
        return rows

    def write_table(self) -> None:
        """Write the table anew from the finished cells."""
        import pyarrow as pa
        from pyarrow import parquet

        kinds = {"seed": pa.int64(), "value": pa.float64(), "low": pa.float64(), "high": pa.float64()}
        schema = pa.schema([(column, kinds.get(column, pa.string())) for column in COLUMNS])
        table = pa.Table.from_pylist(self.rows(), schema=schema)
        partial = self.table.with_name(f"results.{os.getpid()}.partial")
        parquet.write_table(table, partial)
        partial.replace(self.table)

    def write_provenance(self, content: dict[str, Any]) -> None:
        """Add where the numbers come from: one entry for each start of the study."""
        path = self.folder / "provenance.json"
        runs = json.loads(path.read_text())["runs"] if path.exists() else []
        write_whole(path, (json.dumps({"runs": [*runs, content]}, indent=2) + "\n").encode())


def _title(benchmark: str, options: Mapping[str, Any]) -> str:
    return " ".join([benchmark, *(f"{name}={value}" for name, value in options.items())])


def describe(cell: Cell, profile: str) -> dict[str, Any]:
    """Return the labels that a cell's folder carries."""
    return _labels(cell) | {"profile": profile}


def _labels(cell: Cell) -> dict[str, Any]:
    return {"variant": cell.variant, "method": cell.method, "profile": cell.profile or "", "seed": cell.seed}


def flatten(scores: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the numbers of a run's scores as rows of split, subset, metric, value, low and high.

    >>> row = {"split": "train", "subset": "forget", "metric": "accuracy", "value": 0.5, "better": "lower"}
    >>> next(flatten({"metrics": [row]}))
    {'split': 'train', 'subset': 'forget', 'metric': 'accuracy', 'value': 0.5, 'low': None, 'high': None}
    """
    for row in scores.get("metrics", []):
        if row["value"] is not None:
            yield _row(row["split"], row["subset"], row["metric"], row["value"], row.get("low"), row.get("high"))
    for metric, value in scores.get("cost", {}).items():
        if value is not None:
            yield _row("", "", metric, value)


def _row(
    split: str, subset: str, metric: str, value: float, low: float | None = None, high: float | None = None
) -> dict[str, Any]:
    return {"split": split, "subset": subset, "metric": metric, "value": float(value), "low": low, "high": high}
