"""`unweave inspect`: what a request means, before anything runs."""

from __future__ import annotations

import json

import pytest

from tests.helpers.own_files import pictures, sentences, write_image_checkpoint, write_table, write_text_checkpoint
from unweave import Request

ALL_OF = {"method": "ga", "settings": {"learning_rate": 1e-3, "epochs": 4, "batch_size": 5}, "device": "cpu"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inspect")
    write_text_checkpoint(folder / "ckpt")
    write_table(folder / "train.parquet", sentences())
    return folder


def words(home, **changes):
    given = {"model": home / "ckpt", "train": home / "train.parquet", "forget": "person_id = 3", **changes}
    return [word for key, value in given.items() for word in (f"--{key}", str(value))]


def test_it_counts_shows_forecasts_and_writes_nothing(home, shell):
    before = sorted(home.rglob("*"))
    done = shell("inspect", *words(home), "--method", "ga")
    assert done.code == 0, done.err
    assert sorted(home.rglob("*")) == before
    assert "Data: 60 rows, 5 forget, 15 adjacent, 40 remote" in done.out
    assert "Columns: input = text, label = label, id = id" in done.out
    assert sentences()[3]["text"] in done.out
    assert "would probably still recognise" in done.out
    assert "Expected cost on cpu: about" in done.out
    by_default = shell("inspect", *words(home))  # adaptive says itself when it is done
    assert "Expected cost on cpu: at most about" in by_default.out


def test_the_expected_cost_is_that_of_the_run(home):
    request = Request(model=str(home / "ckpt"), train=str(home / "train.parquet"), forget="person_id = 3", **ALL_OF)
    expected = request.inspect().cost
    assert expected.sample_gradients == request.run().cost.sample_gradients


def test_everything_that_would_be_refused_is_named_at_once(home, shell, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    done = shell("inspect", *words(home, label="lable", forget="person = 3", out=tmp_path / "full", test="no.csv"))
    assert done.code == 2
    said = [line for line in done.out.splitlines() if line.startswith("- ")]
    for part in ("full already exists", "Did you mean 'label'?", "Did you mean 'person_id'?", "no.csv does not exist"):
        assert sum(part in line for line in said) == 1, done.out


def test_the_page_has_pictures_and_is_private(tmp_path, shell):
    for row, (image, colour) in enumerate(pictures()):
        (tmp_path / "images" / colour).mkdir(parents=True, exist_ok=True)
        image.save(tmp_path / "images" / colour / f"{row:02}.png")
    write_image_checkpoint(tmp_path / "vit")
    page = tmp_path / "page.html"
    given = words(
        tmp_path, model=tmp_path / "vit", train=tmp_path / "images", forget="label = 'red'", adjacent="label = 'green'"
    )
    done = shell("inspect", *given, "--page", page, "--json", "--method", "ga")
    assert done.code == 0, done.err
    assert json.loads(done.out)["counts"]["forget"] == 8
    assert page.read_text().count("data:image/png;base64,") == 5
    assert page.stat().st_mode & 0o077 == 0


def test_rows_are_resolved_on_one_machine_and_used_on_another(home, shell, tmp_path, monkeypatch):
    done = shell("inspect", *words(home), "--rows", tmp_path / "rows.txt", "--method", "ga")
    assert done.code == 0, done.err
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)  # the other machine has none
    refused = shell("inspect", *words(home))
    assert (refused.code, "pip install 'unweave[sql]'" in refused.out) == (2, True)
    found = Request(
        model=str(home / "ckpt"), train=str(home / "train.parquet"), forget=f"rows:{tmp_path / 'rows.txt'}"
    ).find()
    assert found.train.forget.tolist() == [3, 15, 27, 39, 51]


def test_text_of_the_data_is_escaped_on_the_page(home, tmp_path):
    rows = sentences()
    rows[3]["text"] = "<script>alert(1)</script> fine"
    data = str(write_table(tmp_path / "evil.parquet", rows))
    Request(model=str(home / "ckpt"), train=data, forget=["r3"], **ALL_OF).inspect().write_page(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
