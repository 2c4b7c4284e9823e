"""Data in other forms: several files, a saved data set, a folder of files."""

from __future__ import annotations

import os

import pytest
from PIL import Image

from tests.helpers.own_files import sentences, write_table
from unweave import UsageError
from unweave.requests.label_numbers import label_numbers
from unweave.requests.reading import open_data

datasets = pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def saved(tmp_path):
    datasets.disable_progress_bars()
    rows = [{**row, "label": number % 3} for number, row in enumerate(sentences())]
    features = datasets.Features(
        {
            "id": datasets.Value("string"),
            "person_id": datasets.Value("int64"),
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["good", "bad", "odd"]),
        }
    )
    whole = datasets.Dataset.from_list(rows, features=features)
    datasets.DatasetDict(train=whole, test=whole.select(range(6))).save_to_disk(tmp_path / "both")
    whole.select(range(10, 20)).save_to_disk(tmp_path / "some")
    datasets.enable_progress_bars()
    return tmp_path


def test_a_saved_data_set_keeps_its_parts_and_label_names(saved):
    train, test = open_data(str(saved / "both")), open_data(str(saved / "both"), part="test")
    assert (len(train), len(test)) == (60, 6)
    assert train.label_names["label"] == ["good", "bad", "odd"]
    some = open_data(str(saved / "some"))
    assert some.column("id").to_pylist() == [f"r{row}" for row in range(10, 20)]
    with pytest.raises(UsageError, match=r"has no part 'validation'; it has train, test"):
        open_data(str(saved / "both"), part="validation")


@pytest.mark.parametrize("where", ["part-*.csv", "."])
def test_several_files_are_one_table_in_the_order_of_their_names(tmp_path, where):
    rows = sentences()
    for number in (1, 0):
        write_table(tmp_path / f"part-{number}.csv", rows[30 * number : 30 * number + 30])
    data = open_data(str(tmp_path / where))
    assert len(data) == 60
    assert data.column("id").to_pylist() == [row["id"] for row in rows]


def test_tabs_separate_the_columns_of_a_tsv(tmp_path):
    (tmp_path / "data.tsv").write_text("text\tlabel\na, b\t0\nc\t1\n")
    assert open_data(str(tmp_path / "data.tsv")).column("text").to_pylist() == ["a, b", "c"]


def test_files_of_several_formats_are_refused(tmp_path):
    write_table(tmp_path / "a.csv", sentences(3))
    write_table(tmp_path / "b.jsonl", sentences(3))
    with pytest.raises(UsageError, match=r"holds files of several formats \(csv, json\)"):
        open_data(str(tmp_path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have names")
def test_pipes_are_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "train.parquet")
    with pytest.raises(UsageError, match="cannot be read: it is not a regular file"):
        open_data(str(tmp_path / "train.parquet"))
    (tmp_path / "lost.csv").symlink_to(tmp_path / "nowhere.csv")
    with pytest.raises(UsageError, match="cannot be read as csv: "):
        open_data(str(tmp_path / "l*.csv"))


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    names = ["id", "id", "text"]
    (tmp_path / "a.csv").write_text("id,id,text\n1,2,a\n")
    (tmp_path / "b.jsonl").write_text('{"id": 1, "id": 2, "text": "a"}\n')
    parquet.write_table(
        pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array(["a"])], names), tmp_path / "c.parquet"
    )
    for file in ("a.csv", "b.jsonl", "c.parquet"):
        with pytest.raises(UsageError, match="cannot be read as"):
            table = open_data(str(tmp_path / file))
            table.take([0])


def test_text_that_is_no_utf8_is_refused_as_data_and_not_later(tmp_path):
    odd = pa.StringArray.from_buffers(1, pa.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00"), pa.py_buffer(b"\xed\xa0"))
    parquet.write_table(pa.table({"text": odd, "label": [0]}), tmp_path / "odd.parquet")
    table = open_data(str(tmp_path / "odd.parquet"))
    for read in (lambda: list(table.batches(["text"])), lambda: table.take([0])):
        with pytest.raises(UsageError, match=r"cannot be read: .*Invalid UTF8"):
            read()


# Of a Parquet file with 12 rows: how its header says 12, where that stands, and how it would say other numbers.
TWELVE, WHOLE, PART = b"\x18", 0, 1
OTHERS = {-1: b"\x01", 0: b"\x00", 11: b"\x16", 13: b"\x1a", 2**40: b"\x80" * 5 + b"\x40"}


def with_rows(file, where, said):
    """Let the header say another number of rows: of the whole file, or of its only part."""
    data = file.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    header = data[start:-8]
    about = parquet.ParquetFile(file)
    for place in [place for place, byte in enumerate(header) if bytes([byte]) == TWELVE]:
        changed = header[:place] + OTHERS[said] + header[place + 1 :]
        file.write_bytes(data[:start] + changed + len(changed).to_bytes(4, "little") + b"PAR1")
        try:
            about = parquet.ParquetFile(file).metadata
        except (pa.ArrowException, OSError):
            continue
        numbers = about.num_rows, about.row_group(0).num_rows
        if numbers == ((said, 12) if where == WHOLE else (12, said)):
            return
    raise AssertionError("no byte of the header is the number of rows")


@pytest.mark.parametrize("where", [WHOLE, PART])
@pytest.mark.parametrize("said", OTHERS)
def test_a_table_whose_header_gives_another_number_of_rows_is_refused(said, where, tmp_path):
    file = write_table(tmp_path / "table.parquet", sentences(12))
    with_rows(file, where, said)
    with pytest.raises(UsageError, match=r"says that it has|cannot be read|has no rows"):
        open_data(str(file))


def test_a_table_that_holds_fewer_rows_than_it_says_is_refused_when_it_is_read(tmp_path, monkeypatch):
    table = open_data(str(write_table(tmp_path / "table.parquet", sentences(12))))
    table._rows = 13  # what a file of another format may say, or a header that is wrong everywhere
    with pytest.raises(UsageError, match="says that it has 13 rows, but 12 are there"):
        table.column("label")


def test_a_model_without_class_names_takes_folders_in_their_order_and_refuses_names(tmp_path):
    for place, name in enumerate("cabca"):
        (tmp_path / name).mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name / f"{place}.png")
    table = open_data(str(tmp_path))
    assert label_numbers(table, "label", {}, 3).tolist() == [0, 0, 1, 2, 2]
    with pytest.raises(UsageError, match=r"by number only \(0 to 3\)\. Add a column with their numbers"):
        label_numbers(table, "label", {}, 4)
    with pytest.raises(UsageError, match=r"2 labels .* are not classes of the model \(first: 'a'\)"):
        label_numbers(table, "label", {"c": 0}, 3)
