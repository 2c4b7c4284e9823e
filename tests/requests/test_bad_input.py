"""What cannot be run is refused in one sentence that says what to do, and nothing is half-written."""

from __future__ import annotations

import errno
import json
import os
import shutil

import pytest

from tests.helpers.own_files import bert, sentences, tokenizer, write_table, write_text_checkpoint

QUICK = ["--method", "ga", "--set", "learning_rate=1e-3", "--set", "epochs=1", "--no-guard", "--device", "cpu"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    write_text_checkpoint(folder / "ckpt")
    write_table(folder / "train.parquet", sentences())
    (folder / "ids.txt").write_text("r0\nr12\nr24\n")
    return folder


@pytest.fixture
def refused(home, shell, monkeypatch, tmp_path):
    """Return a function that runs a request and returns the sentence that refuses it."""
    for file in home.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)

    def call(code=2, **changes):
        given = {"model": "ckpt", "train": "train.parquet", "forget": "ids.txt", "out": "run", **changes}
        before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
        words = [word for key, value in given.items() for word in (f"--{key}", value)]
        done = shell("unlearn", *words, *QUICK)
        assert (done.code, done.out) == (code, ""), done.err
        assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before
        sentence = done.err.strip().splitlines()[-1]
        assert sentence.startswith("unweave: ")
        return sentence

    call.at = tmp_path
    return call


@pytest.mark.parametrize(
    ("forget", "said"),
    [
        ("person_id = 99", "No row of train.parquet matches 'person_id = 99'."),
        ("person_id >= 0", "All 60 rows of train.parquet match 'person_id >= 0': nothing would be kept."),
        ("persn_id = 3", "train.parquet has no column 'persn_id'. Did you mean 'person_id'?"),
        ("person_id = ", "The condition 'person_id = ' cannot be read as SQL:"),
        ("TRUE); DROP TABLE data; SELECT (1", "it is more than one expression, and may only read."),
        ("person_id IN (SELECT 3)", "must be one expression over the columns"),
        ("text = (SELECT content FROM read_text('/etc/hostname'))", "must be one expression over the columns"),
        ("person_id = 'three'", "The condition \"person_id = 'three'\" fails:"),
        ("gone.txt", "The file gone.txt does not exist. Give a file of ids or row numbers, or a condition in SQL."),
    ],
)
def test_what_to_forget(refused, forget, said):
    assert said in refused(forget=forget)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("r0\nr99\nr98\n", "2 of the 3 ids in mine.txt are not in the column 'id' of train.parquet (first: r99, r98)."),
        ("r0\nr1\nr0\n", "mine.txt lists 1 entries more than once (first: r0). List each once."),
        ("", "mine.txt is empty. List one id or row number a line."),
    ],
)
def test_files_of_ids(refused, lines, said):
    (refused.at / "mine.txt").write_text(lines)
    assert said in refused(forget="mine.txt")


def test_row_numbers(refused):
    (refused.at / "rows.txt").write_text("0\n60\n")
    assert "1 of the 2 row numbers in rows.txt are outside the 60 rows" in refused(forget="rows:rows.txt")
    (refused.at / "rows.txt").write_text("r0\n")
    assert "rows.txt holds 'r0', which is not a row number." in refused(forget="rows:rows.txt")


def test_columns(refused):
    assert "train.parquet has no column 'labl'. Did you mean 'label'?" in refused(label="labl")
    assert "train.parquet has no column 'txt'. Did you mean 'text'?" in refused(input="txt")
    assert "The column 'person_id' of train.parquet holds int64, but the model reads text." in refused(
        input="person_id"
    )
    assert "All 3 rows that are adjacent by 'ids.txt' are to be forgotten." in refused(adjacent="ids.txt")


def test_labels_that_the_model_does_not_have(refused):
    rows = [{**row, "label": number % 4} for number, row in enumerate(sentences())]
    write_table(refused.at / "four.parquet", rows)
    said = refused(train="four.parquet")
    assert "15 rows of four.parquet have a 'label' that is not a class of the model (first: row 3 has 3)" in said
    assert "it has 3 classes (0 to 2)" in said
    rows[5]["label"] = None
    write_table(refused.at / "gaps.parquet", rows)
    assert "1 rows of gaps.parquet have no 'label' (first: row 5). Take them out." in refused(train="gaps.parquet")


def test_data(refused):
    write_table(refused.at / "part-1.parquet", sentences())
    write_table(refused.at / "part-2.parquet", [{"id": "x", "body": "fine", "label": "good"}])
    said = refused(train="part-*.parquet")
    assert "have different columns" in said
    assert "body" in said
    assert "nothing.parquet does not exist. Data is Parquet, CSV" in refused(train="nothing.parquet")
    assert "No file matches 'nothing*.csv'." in refused(train="nothing*.csv")
    (refused.at / "broken.parquet").write_bytes(b"PAR1 and then nothing")
    assert "broken.parquet cannot be read as parquet:" in refused(train="broken.parquet")
    (refused.at / "header.csv").write_text("id,person_id,text,label\n")
    for forget in ("ids.txt", "person_id = 3"):
        assert refused(train="header.csv", forget=forget).endswith("header.csv has no rows.")
    (refused.at / "data.pkl").write_bytes(b"pickled")
    assert "data.pkl is not a Parquet, CSV or JSON-lines file." in refused(train="data.pkl")
    (refused.at / "table.xlsx").write_bytes(b"excel")
    assert "table.xlsx has the unknown ending '.xlsx'." in refused(train="table.xlsx")


def test_checkpoints(refused):
    bert().bert.save_pretrained(refused.at / "headless")
    tokenizer().save_pretrained(refused.at / "headless")
    said = refused(model="headless")
    assert "headless has no head for classification, and is not a causal language model" in said
    assert "(architecture: BertModel)" in said
    shutil.copytree(refused.at / "ckpt", refused.at / "remote")
    config = json.loads((refused.at / "remote" / "config.json").read_text())
    config |= {"model_type": "my-own", "auto_map": {"AutoConfig": "evil.Config"}}
    (refused.at / "remote" / "config.json").write_text(json.dumps(config))
    (refused.at / "remote" / "evil.py").write_text("raise SystemExit('it ran')")
    assert "remote needs code that comes with it (trust_remote_code), and unweave runs none." in refused(model="remote")
    (refused.at / "empty").mkdir()
    assert "empty has no config.json, so it is not a checkpoint." in refused(model="empty")
    shutil.copytree(refused.at / "ckpt", refused.at / "pickled")
    (refused.at / "pickled" / "model.safetensors").rename(refused.at / "pickled" / "pytorch_model.bin")
    said = refused(model="pickled")
    assert "pickled holds pickled weights (pytorch_model.bin)" in said
    assert "unweave convert pickled/pytorch_model.bin" in said
    shutil.copytree(refused.at / "ckpt", refused.at / "deep")
    config = json.loads((refused.at / "deep" / "config.json").read_text()) | {"num_hidden_layers": 10**9}
    (refused.at / "deep" / "config.json").write_text(json.dumps(config))
    assert "says num_hidden_layers is 1000000000, but the checkpoint holds" in refused(model="deep")


def test_an_output_folder_that_is_in_the_way(refused):
    (refused.at / "full").mkdir()
    (refused.at / "full" / "mine.txt").write_text("mine")
    assert "full already exists and is not empty. Choose another --out, or remove it." in refused(out="full")
    assert (refused.at / "full" / "mine.txt").read_text() == "mine"


def test_a_disk_that_is_full_while_data_is_decoded(refused, monkeypatch):
    write = os.write

    def full(file, content):
        if os.fstat(file).st_nlink == 0:  # the decoded copy, which has no name
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, content)

    monkeypatch.setattr(os, "write", full)
    said = refused(code=1)
    assert "There is no room in" in said
    assert "Set TMPDIR to a folder on a larger disk." in said


def test_wishes_for_the_end_are_checked_at_the_start(refused):
    assert "nokey" in refused(key="nokey", **{"request-id": "7"})
    assert "push-to-hub is 'mine', but must be a name on the Hub: owner/name." in refused(**{"push-to-hub": "mine"})
    assert "The weights no.safetensors do not exist. Give a safetensors file." in refused(weights="no.safetensors")
    assert "unknown ending '.txt'" in refused(train="ids.txt")
    assert "There is no setting 'epoch'" in refused(recipe="epoch=3")


def test_the_goal_retrain_needs_a_recipe(home, shell, monkeypatch, tmp_path):
    monkeypatch.chdir(home)
    words = ["--model", "ckpt", "--train", "train.parquet", "--forget", "ids.txt", "--goal", "retrain"]
    refused, looked = shell("unlearn", *words, "--out", str(tmp_path / "run")), shell("inspect", *words)
    assert (refused.code, looked.code) == (2, 2)
    said = "by the recipe that the model was trained with: name that, as in --recipe epochs=3"
    assert said in refused.err
    assert [said in line for line in looked.out.splitlines() if line.startswith("- ")] == [True]
    assert not list(tmp_path.iterdir())
