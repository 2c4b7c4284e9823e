"""The folder of a request's run: what is in it, who can read it, and how later commands go on from it."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from tests.helpers.own_files import (
    pictures,
    png,
    sentences,
    transformers,
    write_image_checkpoint,
    write_table,
    write_text_checkpoint,
)
from unweave import Request, Split, UsageError, record
from unweave.record import read_record
from unweave.requests import is_finished

QUICK = {"method": "ga", "settings": {"learning_rate": 1e-3, "epochs": 1}, "no_guard": True, "device": "cpu"}
PRIVATE = ("request.yaml", "split.json", "test-split.json", "run.json")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("request")
    write_text_checkpoint(folder / "ckpt")
    write_table(folder / "train.parquet", sentences())
    write_table(folder / "test.parquet", sentences(30, seed=1))
    (folder / "ids.txt").write_text("r0\nr12\nr24\n")
    return folder


@pytest.fixture(scope="module")
def ran(home):
    request = make(home, out=str(home / "run"), id="2031-17", text="Person 0", test=str(home / "test.parquet"))
    return request, request.run()


def make(home, **changes):
    given = {"model": str(home / "ckpt"), "train": str(home / "train.parquet"), "forget": str(home / "ids.txt")}
    return Request(**{**given, **QUICK, **changes})


def test_what_identifies_people_is_readable_by_the_owner_only(home, ran):
    modes = {path.name: path.stat().st_mode & 0o777 for path in (home / "run").iterdir() if path.is_file()}
    assert {name: modes[name] for name in PRIVATE} == dict.fromkeys(PRIVATE, 0o600)
    assert {"report.html", "verdict.md", "run.json", "scores.json", "history.jsonl", "record.json"} <= set(modes)
    for name in ("report.html", "run.json", "verdict.md", "model/README.md"):
        text = (home / "run" / name).read_text()
        assert "Person 0" not in text
        assert not any(row["text"] in text for row in sentences())
    page = (home / "run" / "report.html").read_text()
    assert page.index("Forgotten:") < page.index('id="before-and-after"') < page.index('id="groups"')
    assert "2031-17" in page
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")


def test_a_resolved_request_runs_again_and_is_the_same(home, ran, tmp_path):
    again = Request.load(home / "run" / "request.yaml", out=str(tmp_path / "again")).run()
    assert again.split == ran[1].split
    assert again.test == ran[1].test
    assert again.config["model"] == ran[1].config["model"]
    assert again.history.rows == ran[1].history.rows


def test_a_later_request_begins_with_that_model_and_keeps_forgotten_what_was(home, ran):
    shutil.rmtree(home / "later", ignore_errors=True)
    later = Request(after=str(home / "run"), forget="person_id = 4", out=str(home / "later"), id="2031-18", **QUICK)
    result = later.run()
    assert result.split.forgotten.tolist() == [0, 12, 24]
    assert result.split.forget.tolist() == [4, 16, 28, 40, 52]
    before = transformers.AutoModelForSequenceClassification.from_pretrained(home / "run" / "model")
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), result.original.parameters(), strict=True))
    assert read_record(home / "later" / "record.json")["previous"]["id"] == "2031-17"
    with pytest.raises(UsageError, match="already forgot all 3 rows"):
        Request(after=str(home / "later"), forget=["r0", "r12", "r24"], **QUICK).prepare()
    third = Request(after=str(home / "later"), forget=["r5"], **QUICK).prepare()
    assert third.split.forgotten.tolist() == [0, 4, 12, 16, 24, 28, 40, 52]


def test_a_folder_that_is_no_run_cannot_be_continued(home, tmp_path):
    with pytest.raises(UsageError, match=r"has no request\.yaml, so it is not the folder of a run"):
        Request(after=str(tmp_path), forget=["r1"], **QUICK).find()


def test_a_finished_run_is_recognised_and_a_missing_record_is_written(home, ran, shell):
    request, _ = ran
    assert is_finished(request)
    (home / "run" / "record.json").rename(home / "kept.json")
    words = ["--model", request.model, "--train", request.train, "--test", request.test, "--forget", request.forget]
    words += ["--method", "ga", "--no-guard", "--device", "cpu", "--request-id", "2031-17", "--request", "Person 0"]
    words += ["--set", "learning_rate=0.001", "--set", "epochs=1", "--out", request.out]
    file = home / "request.yaml"
    file.write_text((home / "run" / "request.yaml").read_text())
    other = shell("unlearn", *words, "--seed", "9", "--resume")
    assert (other.code, "finished run of another request" in other.err) == (2, True)
    with pytest.raises(UsageError, match="already exists and is not empty"):
        request.run()
    with pytest.raises(UsageError, match="finished run of another request"):
        is_finished(make(home, out=str(home / "run")))
    from unweave.requests import record_later

    record_later(request)
    mine, before = (record.read_record(file) for file in (home / "run" / "record.json", home / "kept.json"))
    assert mine["forget"] == before["forget"]
    assert mine["model"] == before["model"]


def test_changed_predictions_are_shown_only_on_demand(tmp_path):
    write_image_checkpoint(tmp_path / "vit")
    rows = [{"id": row, "image": png(image), "label": colour} for row, (image, colour) in enumerate(pictures())]
    data = str(write_table(tmp_path / "bytes.parquet", rows))
    strong = {**QUICK, "settings": {"learning_rate": 0.05, "epochs": 20}}
    pages = {}
    for name, show in (("plain", False), ("shown", True)):
        request = Request(
            model=str(tmp_path / "vit"),
            train=data,
            forget=[0, 3, 6],
            out=str(tmp_path / name),
            show_samples=show,
            **strong,
        )
        request.run()
        pages[name] = (tmp_path / name / "report.html").read_text()
        assert (tmp_path / name / "report.html").stat().st_mode & 0o077 == 0
    assert "data:image" not in pages["plain"]
    assert "Changed predictions" in pages["shown"]
    assert pages["shown"].count("data:image/png") >= 3
    assert "<td>red</td>" in pages["shown"]


def test_the_split_of_a_folder_is_the_one_of_the_run(home, ran):
    content = json.loads((home / "run" / "split.json").read_text())
    assert content["forget"] == [0, 12, 24]
    assert Split.load(home / "run" / "split.json", ran[1].split.samples) == ran[1].split
