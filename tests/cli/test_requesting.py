"""`unweave init` and `unweave unlearn` as an engineer types them."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.helpers.own_files import (
    pictures,
    sentences,
    transformers,
    write_image_checkpoint,
    write_table,
    write_text_checkpoint,
)
from unweave import Request

QUICK = ["--method", "ga", "--set", "learning_rate=1e-3", "--set", "epochs=1", "--no-guard", "--device", "cpu"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shell")
    write_text_checkpoint(folder / "ckpt")
    write_table(folder / "train.parquet", sentences())
    write_table(folder / "test.parquet", sentences(30, seed=1))
    (folder / "ids.txt").write_text("r0\nr12\nr24\n")
    return folder


@pytest.fixture
def at_home(home, monkeypatch, tmp_path):
    """Work in a folder of its own that sees the files of the home."""
    for file in home.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_a_request_file_that_runs_once_forget_is_filled_in(at_home, shell):
    done = shell("init", "--model", "ckpt", "--train", "train.parquet", "--out", "mine/request.yaml")
    assert done.code == 0, done.err
    text = (at_home / "mine" / "request.yaml").read_text()
    assert {key: value for key, value in yaml.safe_load(text).items() if value is not None} == {
        "model": "../ckpt",
        "train": "../train.parquet",
        "input": "text",
        "label": "label",
        "id": "id",
        "out": "unlearned",
    }
    assert "3 classes: good, bad, odd" in text
    assert "# forget: person_id = 0  # 12 values: 0 (5 rows)" in text
    schema = json.loads((at_home / "mine" / "request.schema.json").read_text())
    commented = {line[2:].partition(":")[0] for line in text.splitlines() if line.startswith("# ")}
    assert set(schema["properties"]) <= {*yaml.safe_load(text), *commented, "weights", "prompt", "answer", "template"}
    refused = shell("unlearn", "mine/request.yaml", *QUICK)
    assert (refused.code, refused.out) == (2, "")
    assert "The request has no forget. Give it as --forget" in refused.err
    done = shell("unlearn", "mine/request.yaml", "--forget", "person_id = 3", *QUICK)
    assert done.code == 0, done.err
    verdict, table = done.out.partition("\n\n")[::2]
    assert not any(line.endswith(":") for line in verdict.splitlines())  # the table that would follow stands below
    assert "train forget" in table
    assert transformers.AutoModelForSequenceClassification.from_pretrained(at_home / "mine" / "unlearned" / "model")
    again = shell("init", "--model", "ckpt", "--train", "train.parquet", "--out", "mine/request.yaml")
    assert (again.code, (at_home / "mine" / "request.yaml").read_text()) == (2, text)


def test_init_leaves_the_choice_where_several_columns_fit(at_home, shell):
    rows = [{"title": row["text"], "body": row["text"], "label": f"{row['label']}?"} for row in sentences()]
    write_table(at_home / "two.csv", rows)
    assert shell("init", "--model", "ckpt", "--train", "two.csv").code == 0
    text = (at_home / "request.yaml").read_text()
    assert "input:  # name one of: title, body" in text
    assert "# 3 labels of two.csv are not classes of the model (first: 'bad?')." in text
    refused = shell("unlearn", "request.yaml", "--forget", "title = 'a'", "--out", "run")
    assert "2 fit (title, body). Name one with --input." in refused.err


def test_flags_replace_the_values_of_a_file(at_home, shell):
    (at_home / "request.yaml").write_text("model: ckpt\ntrain: train.parquet\nforget: ids.txt\nout: run\nseed: 3\n")
    done = shell("unlearn", "request.yaml", "--seed", "4", "--test", "test.parquet", *QUICK, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["train"]["forget"]["samples"] == 3
    assert json.loads((at_home / "run" / "run.json").read_text())["configuration"]["seed"] == 4


def test_an_unknown_key_suggests_the_nearest(at_home, shell):
    (at_home / "request.yaml").write_text("modle: ckpt\n")
    refused = shell("unlearn", "request.yaml")
    assert (refused.code, refused.err) == (
        2,
        "unweave: request.yaml has the unknown key 'modle'. Did you mean 'model'?\n",
    )


def test_a_folder_of_images_may_be_named_from_where_one_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for row, (image, colour) in enumerate(pictures()):
        (tmp_path / "images" / colour).mkdir(parents=True, exist_ok=True)
        image.save(tmp_path / "images" / colour / f"{row:02}.png")
    write_image_checkpoint(tmp_path / "vit")
    prepared = Request(model="vit", train="images", forget=["red/00.png"]).prepare()
    assert len(prepared.split.forget) == 1
