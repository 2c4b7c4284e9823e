"""The folder of a tuning may come from anybody: odd files end in a sentence, and nothing outside is touched."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3

import pytest

from tests.helpers.tiny import SOURCE, tiny
from unweave import UsageError
from unweave.lab.tuning import Tuning, tune
from unweave.lab.tuning.searches import Tried
from unweave.lab.tuning.tuning_folder import Folder


def begin(folder):
    return Tuning(tiny(), folder, ["ga"], trials=2, goal="erase")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A tuning of one method with one trial."""
    tuning = begin(tmp_path_factory.mktemp("tuning") / "t")
    drawn, tried = tuning.searches["ga"].ask(0)
    tuning.searches["ga"].tell(drawn, tried)
    return tuning.folder.place


@pytest.fixture
def begun(original, tmp_path):
    return shutil.copytree(original, tmp_path / "t")


@pytest.mark.parametrize("name", ["models", "locks", "optuna.db", "times.jsonl", "tuning.json", "trials.csv.partial"])
def test_a_tuning_with_a_link_is_refused_and_nothing_behind_it_is_touched(begun, tmp_path, name):
    outside = tmp_path / "outside"
    if (begun / name).exists():
        (begun / name).rename(outside)
    else:
        outside.write_text("mine")
    (begun / name).symlink_to(outside)
    before = outside.stat().st_mtime_ns
    with pytest.raises(UsageError, match="is a link"):
        tune(SOURCE, begun, methods=["ga"], trials=2, device="cpu")
    assert outside.stat().st_mtime_ns == before


def test_a_pipe_in_a_tuning_is_not_waited_for(begun):
    (begun / "optuna.db").unlink()
    os.mkfifo(begun / "optuna.db")
    with pytest.raises(UsageError, match="not a regular file"):
        begin(begun)


@pytest.mark.parametrize("content", [b"no database at all, but a text", b"SQLite format 3\0" + b"\xff" * 5000])
def test_trials_that_are_no_database_end_in_a_sentence(begun, content):
    (begun / "optuna.db").write_bytes(content)
    with pytest.raises(UsageError, match=r"optuna\.db cannot be read as trials"):
        begin(begun)


@pytest.mark.parametrize("value", ["[1", "7", '{"score": "high"}', '{"method": "ga"}', "null"])
@pytest.mark.parametrize("table", ["trial_user_attributes", "study_user_attributes"])
def test_odd_trials_end_in_a_sentence(begun, table, value):
    with sqlite3.connect(begun / "optuna.db") as database:
        database.execute(f"UPDATE {table} SET value_json = ?", [value])
    database.close()
    with pytest.raises(UsageError):
        begin(begun)


@pytest.mark.parametrize("name", ["tuning.json", "provenance.json"])
@pytest.mark.parametrize("content", ["", "[]", "null", '{"runs": 7}', '{"seed": 1, "seed": 2}', "[" * 5000])
def test_odd_files_end_in_a_sentence(begun, name, content):
    (begun / name).write_text(content)
    with pytest.raises(UsageError):
        tune(SOURCE, begun, methods=["ga"], trials=2, device="cpu", time_limit=0)


def test_an_entry_more_in_the_request_ends_in_a_sentence(begun):
    about = json.loads((begun / "tuning.json").read_text())
    (begun / "tuning.json").write_text(json.dumps(about | {"more": None}))
    with pytest.raises(UsageError, match="holds a tuning with more None"):
        begin(begun)


def test_an_error_cannot_be_a_formula_in_the_table(tmp_path):
    folder = Folder(tmp_path / "t", tiny(), goal="erase", seed=0, seeds=1)
    folder.write(
        {"ga": [Tried(method="ga", trial=0, origin="default", settings={}, score=-0.5, error="=HYPERLINK(1)")]}
    )
    with (tmp_path / "t" / "trials.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["error"], row["score"]) == ("'=HYPERLINK(1)", "-0.5")
