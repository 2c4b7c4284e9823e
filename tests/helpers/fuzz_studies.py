"""Doors for folders of experiments: studies, tunings, leaderboards, shadow models, runs that go on."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import torch
from pyarrow import parquet
from torch import nn

from tests.helpers.fuzz_requests import CORPUS, Door, odd_content
from tests.helpers.fuzz_values import FORBIDDEN, flipped, json_bytes, json_odd, written
from tests.helpers.tiny import tiny
from unweave import Checkpoints, Compute, Split, StopWhen, unlearn
from unweave.errors import Stopped
from unweave.lab.audit import Subject
from unweave.lab.audit.shadows import check_shadows
from unweave.lab.benchmarks import profile_of_folder
from unweave.lab.benchmarks.tuned_profiles import with_tuned
from unweave.lab.leaderboard import as_markdown, read_board, submit
from unweave.lab.protocol import PROTOCOL
from unweave.lab.report import read_results
from unweave.lab.study import Cell, Store
from unweave.lab.study.originals import tidy_models
from unweave.lab.study.study_answers import Answering
from unweave.lab.tuning.tuning_folder import Folder
from unweave.methods import find_method, make_method

DATA = (torch.randn(12, 3, generator=torch.Generator().manual_seed(1)), torch.arange(12) % 3)
START = {
    "command": "unweave study tiny --out study",
    "commit": "a" * 40,
    "date": "2026-01-31T12:00:00+00:00",
    "hardware": {"device": "one core", "kind": "cpu"},
    "versions": {"unweave": "0.1.0", "torch": "2.13.0"},
    "protocol": PROTOCOL.version,
}
SAID = {"forget": {"questions": ["who ?"], "answers": ["ada"], "written": ["bob"]}}
TUNED = {
    "format": "unweave-tuned",
    "schema": 1,
    "benchmark": "tiny",
    "options": {},
    "goal": "erase",
    "trials": 2,
    "methods": {"ga": {"settings": {"epochs": 2}, "trial": 1, "score": 0.5, "cost": {"seconds": 1.0}}},
    "provenance": {"runs": [START]},
}


@cache
def study_files() -> dict[str, Any]:
    """Return the content of a study's folder by name."""
    content = json.loads((CORPUS / "study.json").read_text())
    cell = "cells/retrain.seed-0"
    scores = {"metrics": content[f"{cell}/scores.json"].get("metrics", [])[:2]}
    return content | {
        "provenance.json": {"runs": [START]},
        f"{cell}/said.json": SAID,
        f"{cell}/answer_scores.json": {**scores, "beside": {}},
        f"{cell}/against-retrain.json": {**scores, "references": []},
    }


def write_odd(folder: Path, files: dict[str, Any], chance: Random, *, odd: float = 1.0) -> None:
    """Write files of JSON into a new folder; with the chance ``odd``, one of them has something odd in it."""
    shutil.rmtree(folder, ignore_errors=True)
    changed = chance.choice(list(files)) if chance.random() < odd else ""
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(json_bytes(content, chance) if name == changed else json.dumps(content).encode())


def study_door(chance: Random, folder: Path) -> None:
    """What a report reads of a study in which one file is odd."""
    write_odd(folder / "study", study_files(), chance)
    read_results(folder / "study")


def store_door(chance: Random, folder: Path) -> None:
    """What a study reads that goes on in a folder in which one file is odd."""
    write_odd(folder / "study", study_files(), chance)
    (folder / "study" / "times.jsonl").write_bytes(json_bytes({"name": "ga.seed-0", "seconds": 1.0}, chance))
    store = Store.create(folder / "study", "digits", options={})
    cells = [Cell(method=method, seed=0) for method in ("original", "retrain", "salun")]
    store.adopt(cells)
    store.tidy()
    tidy_models(store)
    for cell in cells:
        store.check_settings(cell, {"epochs": 1})
    _ = store.failures(), store.rows(), store.provenance(), store.times(), store.not_compared(cells)
    store.add_presets({"all": {"summary": "x", "about": [], "shows": [], "rows": []}})


def answering_door(chance: Random, folder: Path) -> None:
    """What a study of language models reads that goes on: the answers of its cells and their scores."""
    answers = json.loads((CORPUS / "answers.json").read_text())
    cells = {f"cells/{name}.seed-0/answers.json": answers for name in ("original", "retrain")}
    write_odd(folder / "study", study_files() | cells, chance)
    store = Store.create(folder / "study", "digits", options={})
    benchmark = SimpleNamespace(has_tokens=True)
    task = SimpleNamespace(questions={"forget": []})
    answering = Answering(benchmark, store, lambda: task, computing=Compute("cpu"))  # type: ignore[arg-type,return-value]
    answering.complete("retrain.seed-0")


# Leaderboards


@cache
def table_of_study() -> bytes:
    rows = []
    for method in ("original", "mine"):
        for seed in range(3):
            labels = {"benchmark": "tiny", "method": method, "profile": "official", "variant": "", "seed": seed}
            values = [("test", subset, "accuracy", 0.9 - seed / 10) for subset in ("forget", "adjacent", "remote")]
            for split, subset, metric, value in [*values, ("", "", "seconds", 2.0 + seed)]:
                found = {"split": split, "subset": subset, "metric": metric, "value": value, "low": None, "high": None}
                rows.append(labels | found)
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


@cache
def numbers_of_study() -> dict[str, Any]:
    """Return what a submission takes of a study, beside the table."""
    notes = dict.fromkeys(("data", "model", "initialisation"), "made up")
    about = {"format": "unweave-study", "schema": 1, "benchmark": "tiny", "options": {}, "notes": notes}
    failed = {"variant": "", "method": "mine", "profile": "official", "seed": 3, "error": "diverged"}
    return {"study.json": about, "provenance.json": {"runs": [START]}, "failed/mine.seed-3.json": failed}


def write_numbers(folder: Path, chance: Random, *, odd: float = 1.0) -> None:
    """Write a study that may be submitted; with the chance ``odd``, one of its files has something odd in it."""
    is_table = chance.random() < odd / 4
    write_odd(folder, numbers_of_study(), chance, odd=0.0 if is_table else odd)
    written(folder, "results.parquet", flipped(table_of_study(), chance) if is_table else table_of_study())


@cache
def submitted_rows(folder: Path) -> Any:
    """Return the rows of the leaderboard, as `submit` writes them."""
    write_numbers(folder / "whole", Random(0), odd=0.0)
    submit([folder / "whole"], folder / "board", name="mine")
    return json.loads((folder / "board" / "mine" / "rows.json").read_text())


def write_board(board: Path, chance: Random, *, odd: float = 1.0) -> None:
    """Write a leaderboard with one submission; with the chance ``odd``, something in it is odd."""
    rows = submitted_rows(board.parent / "rows")
    is_rows = chance.random() < odd / 2
    shutil.rmtree(board, ignore_errors=True)
    (board / "mine").mkdir(parents=True)
    write_numbers(board / "mine" / "00", chance, odd=0.0 if is_rows else odd)
    (board / "mine" / "rows.json").write_bytes(json_bytes(rows, chance) if is_rows else json.dumps(rows).encode())


def submission_door(chance: Random, folder: Path) -> None:
    write_numbers(folder / "submitted", chance)
    shutil.rmtree(folder / "new-board", ignore_errors=True)
    methods = None if chance.random() < 0.8 else [chance.choice(("mine", "", "*"))]
    submit([folder / "submitted"], folder / "new-board", name="mine", methods=methods)


def board_door(chance: Random, folder: Path) -> None:
    write_board(folder / "board", chance)
    text = as_markdown(read_board(folder / "board"))
    text.encode()
    assert not set(text) & set(FORBIDDEN), text


# Tunings, shadow models, runs


def tuned_door(chance: Random, folder: Path) -> None:
    """The settings that a tuning found."""
    file = written(folder, "best.json", json_bytes(TUNED, chance))
    profile_of_folder(file)
    benchmark = with_tuned(tiny(), file)
    for name in benchmark.settings:
        make_method(name, benchmark.settings_for(find_method(name), "tuned"))


def tuning_door(chance: Random, folder: Path) -> None:
    """The folder of a tuning that goes on."""
    place = folder / "tuning"
    shutil.rmtree(place, ignore_errors=True)
    given: dict[str, Any] = {"goal": "erase", "seed": 0, "seeds": 1}
    about = Folder(place, tiny(), **given).about
    if chance.random() < 0.5:
        written(place, "tuning.json", json_bytes(about, chance))
    else:
        written(place, "provenance.json", json_bytes({"runs": [START]}, chance))
        written(place, "times.jsonl", json_bytes({"name": "trained.seed-0", "seconds": 1.0}, chance))
    found = Folder(place, tiny(), **given)
    found.add_provenance(START)
    found.write({})


def shadows_door(chance: Random, folder: Path) -> None:
    """The folder of shadow models, before more are trained."""
    place = folder / "shadows"
    place.mkdir(exist_ok=True)
    train = Split(DATA, [0, 3], [6, 9], [1, 2, 4])
    subject = Subject(model=nn.Linear(3, 3), train=train, test=None, benchmark=None, method="ga", settings={})
    kind = {"benchmark": None, "method": "ga", "settings": {}, "seed": 0, "train": train.hash, "test": None}
    written(place, "shadows.json", json_bytes(kind, chance))
    check_shadows(subject, 4, folder=place, seed=0)


@cache
def unfinished_files() -> dict[str, bytes]:
    """Return the files of a run that was stopped."""
    with tempfile.TemporaryDirectory() as place:
        steps = iter([False] * 3 + [True] * 99)
        with contextlib.suppress(Stopped):
            resumed(Path(place) / "run", callbacks=[StopWhen(lambda: next(steps)), Checkpoints(steps=1)])
        files = (Path(place) / "run.unfinished").rglob("*")
        return {str(file.relative_to(place)): file.read_bytes() for file in files if file.is_file()}


def resumed(out: Path, **more: Any) -> Any:
    torch.manual_seed(0)
    split = Split(DATA, [0, 3], [6, 9], [1, 2, 4, 5, 7, 8, 10, 11])
    return unlearn(
        nn.Linear(3, 3), split, "ga", epochs=4, batch_size=1, learning_rate=1e-3, out=out, guard=None, **more
    )


def unfinished_door(chance: Random, folder: Path) -> None:
    """A run that is resumed from a folder in which one file is odd."""
    for name in ("run", "run.unfinished"):
        shutil.rmtree(folder / name, ignore_errors=True)
    files = unfinished_files()
    changed = chance.choice(sorted(files))
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        written(folder, name, odd_content(name, content, chance) if name == changed else content)
    if chance.random() < 0.1:
        written(folder, "run.unfinished/run.json", json.dumps(json_odd(chance), default=str).encode())
    resumed(folder / "run", resume=True)


STUDY_PARSERS: dict[str, tuple[int, Door]] = {  # with a weight: how often the door is tried
    "study": (6, study_door),
    "study that goes on": (6, store_door),
    "answers of a study": (1, answering_door),
    "submission": (3, submission_door),
    "leaderboard": (3, board_door),
    "tuned settings": (18, tuned_door),
    "tuning that goes on": (6, tuning_door),
    "shadow models": (12, shadows_door),
    "run that goes on": (1, unfinished_door),
}
