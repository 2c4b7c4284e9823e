"""The leaderboard takes numbers that say where they come from, computes them again, and rejects all others."""

from __future__ import annotations

import json
import statistics

import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from unweave import UsageError
from unweave.cli import app
from unweave.lab.leaderboard import as_markdown, read_board, rows_of, submit
from unweave.lab.leaderboard import board as board_module
from unweave.lab.protocol import PROTOCOL
from unweave.lab.report import read_results
from unweave.lab.study import Store

ORIGINAL = [(0.9, 0.8, 0.9)] * 3
MINE = [(0.0, 0.7, 0.9), (0.1, 0.8, 0.9), (0.2, 0.9, 0.9)]
NOTES = {"data": "made up", "model": "none", "initialisation": "none"}
START = {
    "command": "unweave study tiny --data /home/me/data --out /home/me/study",
    "commit": "a" * 40,
    "date": "2026-01-31T12:00:00+00:00",
    "hardware": {"device": "one core", "kind": "cpu"},
    "versions": {"unweave": "0.1.0", "torch": "2.13.0"},
    "protocol": PROTOCOL.version,
}


def study(folder, methods=None, *, options=None, notes=NOTES, starts=(START,)):
    """Write a study: ``methods`` maps a method to forget, adjacent and remote accuracy of each seed."""
    store = Store.create(folder, "tiny", options=options)
    about = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps({**about, "notes": notes}))
    rows = []
    for method, seeds in (methods or {"original": ORIGINAL, "mine": MINE}).items():
        for seed, accuracies in enumerate(seeds):
            labels = {"benchmark": "tiny", "method": method, "profile": "official", "variant": "", "seed": seed}
            values = [
                ("test", subset, "accuracy", value)
                for subset, value in zip(("forget", "adjacent", "remote"), accuracies, strict=True)
            ]
            for split, subset, metric, value in [*values, ("", "", "seconds", 2.0 + seed)]:
                rows.append(labels | {"split": split, "subset": subset, "metric": metric, "value": value})
    pd.DataFrame(rows).assign(low=None, high=None).to_parquet(store.table)
    if starts is not None:
        (folder / "provenance.json").write_text(json.dumps({"runs": list(starts)}))
    return folder


def test_a_submission_is_a_row_and_the_numbers_that_it_comes_from(tmp_path):
    board = tmp_path / "board"
    (row,) = submit([study(tmp_path / "study")], board, name="mine")
    assert (row.name, row.goal, row.board, row.protocol, row.seeds) == (
        "mine official",
        "erase",
        "tiny",
        "1",
        (0, 1, 2),
    )
    mean, reach, runs = row.values["test_forget"]
    assert (mean, runs) == (pytest.approx(0.1), 3)
    assert reach == pytest.approx(stats.t.ppf(0.975, 2) * statistics.stdev([0.0, 0.1, 0.2]) / 3**0.5)
    assert row.values["adjacent"][0] == pytest.approx(0.0)
    assert (row.seconds, row.hardware, row.commits) == (3.0, "one core", ("a" * 40,))
    assert read_board(board) == [row]
    kept = (board / "mine" / "00" / "provenance.json").read_text()
    assert "/home" not in kept
    assert "unweave study tiny --data DATA --out study" in kept


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("--data=/home/ann smith/data --seeds 3", "--data DATA --seeds 3"),
        ("--data hub:ann/private --out /home/ann smith/my study", "--data DATA --out my study"),
        ("--out=~/ann/study --originals /srv/ann/models", "--out=study --originals models"),
        ("--cluster ray://ann.example:10001 --option model=/home/ann/ckpt", "--cluster CLUSTER --option model=ckpt"),
        ("--out studies/one --grid learning_rate=0.1", "--out studies/one --grid learning_rate=0.1"),
    ],
)
def test_a_submission_does_not_tell_where_things_lie_on_one_machine(said, kept, tmp_path):
    folder = study(tmp_path / "study", starts=[{**START, "command": f"unweave study /home/ann/tiny.yaml {said}"}])
    (folder / "failed").mkdir(exist_ok=True)
    failed = {
        "variant": "",
        "method": "mine",
        "profile": "official",
        "seed": 7,
        "error": "/home/ann/x.bin: no, 1/2 nan",
    }
    (folder / "failed" / "mine.seed-7.json").write_text(json.dumps(failed))
    submit([folder], tmp_path / "board", name="mine")
    numbers = tmp_path / "board" / "mine" / "00"
    (run,) = json.loads((numbers / "provenance.json").read_text())["runs"]
    assert run == {**START, "command": f"unweave study tiny.yaml {kept}"}
    assert json.loads((numbers / "failed" / "mine.seed-7.json").read_text())["error"] == "x.bin: no, 1/2 nan"
    assert not any(b"ann" in file.read_bytes() for file in numbers.rglob("*.json"))
    assert read_board(tmp_path / "board")


def test_a_study_without_its_table_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    results = read_results(study(tmp_path / "study"))  # as of a study that has cells, and was stopped before its table
    (tmp_path / "study" / "results.parquet").unlink()
    monkeypatch.setattr(board_module, "read_results", lambda folder: results)
    with pytest.raises(UsageError, match=r"has no results\.parquet"):
        submit([tmp_path / "study"], tmp_path / "board", name="mine")
    assert not (tmp_path / "board").exists()


def test_several_studies_make_one_row_over_studies(tmp_path):
    shifted = [(forget + 0.2, adjacent, remote) for forget, adjacent, remote in MINE]
    one = study(tmp_path / "one", options={"forget": "a", "size": 64})
    two = study(tmp_path / "two", {"original": ORIGINAL, "mine": shifted}, options={"forget": "b", "size": 64})
    (row,) = submit([one, two], tmp_path / "board", name="both")
    assert row.board == "tiny size=64, 2 studies"
    mean, reach, runs = row.values["test_forget"]
    assert (mean, runs) == (pytest.approx(0.2), 6)
    assert reach == pytest.approx(stats.t.ppf(0.975, 1) * 0.1)  # over two studies, not over six runs
    assert read_board(tmp_path / "board") == [row]


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        (None, r"has no provenance\.json"),
        ([], "names no start of a study"),
        ([START, {**START, "commit": "a" * 40 + "+"}], "start 1: its commit is .* without uncommitted changes"),
        ([{**START, "commit": None}], "its commit is None"),
        ([{**START, "commit": "abc"}], "its commit is 'abc'"),
        ([{**START, "command": "python mine.py"}], "its command is 'python mine.py'"),
        ([{name: said for name, said in START.items() if name != "command"}], "its command is None"),
        ([{**START, "date": "yesterday"}], "its date is 'yesterday'"),
        ([{**START, "hardware": {"kind": "cpu"}}], "its hardware do not name device"),
        ([{**START, "versions": {"unweave": "0.1.0"}}], "its versions do not name torch"),
    ],
)
def test_a_row_without_provenance_is_rejected(tmp_path, starts, message):
    folder = study(tmp_path / "study", starts=starts)
    with pytest.raises(UsageError, match=message):
        submit([folder], tmp_path / "board", name="mine")
    with pytest.raises(UsageError, match=message):
        rows_of([read_results(folder)])
    assert not (tmp_path / "board").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"options": {"small": True}}, "is a trial with --small"),
        ({"notes": {"data": "made up"}}, "does not say which model and initialisation"),
        ({"methods": {"mine": MINE}}, "no method 'original'|has no original"),
        ({"methods": {"original": ORIGINAL, "mine": MINE[:2]}}, "mine has 2 seeds, but needs 3"),
        ({"methods": {"original": ORIGINAL[:2], "mine": MINE}}, "seed 2 of mine has no original"),
        ({"methods": {"original": ORIGINAL}}, "no rows of such a method"),
    ],
)
def test_what_is_incomplete_is_rejected(tmp_path, change, message):
    with pytest.raises(UsageError, match=message):
        submit([study(tmp_path / "study", **change)], tmp_path / "board", name="mine")
    assert not (tmp_path / "board").exists()


def test_a_seed_that_failed_counts_and_is_shown(tmp_path):
    folder = study(tmp_path / "study", {"original": ORIGINAL, "mine": MINE[:2]})
    note = {"method": "mine", "profile": "official", "variant": "", "seed": 2, "error": "It broke."}
    (folder / "failed" / "mine.seed-2.json").write_text(json.dumps(note))
    (row,) = submit([folder], tmp_path / "board", name="mine")
    assert (row.failed, row.seeds) == (1, (0, 1))
    assert "| 2 (1 failed) |" in as_markdown([row])
    assert read_board(tmp_path / "board") == [row]


def test_a_row_that_is_not_that_of_its_numbers_is_rejected(tmp_path):
    board = tmp_path / "board"
    submit([study(tmp_path / "study")], board, name="mine")
    file = board / "mine" / "rows.json"
    content = json.loads(file.read_text())
    content["rows"][0]["values"]["test_forget"][0] = 0.0
    file.write_text(json.dumps(content))
    with pytest.raises(UsageError, match="differs from the numbers beside it"):
        read_board(board)
    (board / "mine" / "00" / "provenance.json").unlink()
    with pytest.raises(UsageError, match=r"no provenance\.json"):
        read_board(board)


def test_a_submission_cannot_forge_a_row_of_another(tmp_path):
    name = "mine | 0.0 | 100 |\n| forged | \x1b[2J\u202e<b>"
    folder = study(tmp_path / "study", {"original": ORIGINAL, name: MINE}, options={"a": "x\n## forged: erase"})
    text = as_markdown(submit([folder], tmp_path / "board", name="mine"))
    assert text.count("\n## ") == 0
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 3
    assert "mine \\| 0.0 \\| 100 \\| \\| forged \\|" in text
    assert not set(text) & {"\x1b", "\u202e", "<"}


def test_a_link_in_the_place_of_a_submission_is_refused(tmp_path):
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "mine").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="exists already"):
        submit([study(tmp_path / "study")], tmp_path / "board", name="mine")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "must be an object"),
        ({"rows": []}, "differs from the numbers beside it"),
        ({"rows": None}, "rows is None"),
        ({"methods": 7, "rows": []}, "methods is 7"),
        ({"methods": [["mine"]], "rows": []}, r"methods\[0\] is list"),
    ],
)
def test_rows_of_another_form_are_rejected(tmp_path, content, words):
    submit([study(tmp_path / "study")], tmp_path / "board", name="mine")
    (tmp_path / "board" / "mine" / "rows.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match=words):
        read_board(tmp_path / "board")


def test_a_submission_is_not_replaced_and_has_a_plain_name(tmp_path):
    folder = study(tmp_path / "study")
    submit([folder], tmp_path / "board", name="mine")
    with pytest.raises(UsageError, match="exists already"):
        submit([folder], tmp_path / "board", name="mine")
    for name in ("../mine", "Mine", "", "a/b"):
        with pytest.raises(UsageError, match="small letters"):
            submit([folder], tmp_path / "board", name=name)


def test_the_best_row_stands_first(tmp_path):
    worse = [(0.5, 0.5, 0.5)] * 3
    rows = rows_of([read_results(study(tmp_path / "study", {"original": ORIGINAL, "a-worse": worse, "better": MINE}))])
    names = [line.split("|")[1].strip() for line in as_markdown(rows).splitlines() if line.startswith("|")]
    assert names == ["method", ":---", "better official", "a-worse official"]


def test_the_commands_submit_and_check(tmp_path):
    folder, board = study(tmp_path / "study"), tmp_path / "board"
    words = ["submit", str(folder), "--name", "mine", "--board", str(board)]
    done = CliRunner().invoke(app.app, words)
    assert done.exit_code == 0, done.output
    assert "| mine official | 10.0±24.8 |" in done.stdout
    told = json.loads(CliRunner().invoke(app.app, ["standings", "--board", str(board), "--json"]).stdout)
    assert [row["method"] for row in told] == ["mine"]
    again = CliRunner().invoke(app.app, [*words, "--methods", "mine"])
    assert isinstance(again.exception, UsageError)
