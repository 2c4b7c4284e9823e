"""The sources of data: folders, original files, the Hub; errors for wrong content, and the cache."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.helpers import synthetic
from unweave.errors import UsageError
from unweave.lab.benchmarks import find_benchmark, pixels
from unweave.lab.benchmarks.sources import DataPart, Source


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNWEAVE_CACHE", str(tmp_path / "cache"))


def load(name, data, *, small=True, **options):
    return find_benchmark(name, data=data, options={"small": small, **options}).load()


# Missing data


@pytest.mark.parametrize("name", synthetic.WRITERS)
def test_missing_data_is_said_with_where_and_how(name, tmp_path, monkeypatch):
    monkeypatch.delenv("UNWEAVE_DATA", raising=False)
    with pytest.raises(UsageError, match=r"hf download .*--data"):
        load(name, None)
    with pytest.raises(UsageError, match=rf"expected Parquet files such as {tmp_path}.*train.*hf download"):
        load(name, tmp_path)


def test_a_part_that_is_missing_is_named(tmp_path):
    synthetic.tinyimagenet(tmp_path)
    next((tmp_path / "tiny-imagenet-subset").glob("valid*")).unlink()
    with pytest.raises(UsageError, match="No valid part of tiny-imagenet"):
        load("tinyimagenet-vit", tmp_path)


def test_the_folder_of_the_data_set_itself_may_be_given(tmp_path):
    synthetic.clinc150(tmp_path)
    assert len(load("clinc150", tmp_path / "clinc150").train.forget) == 5


def test_the_folder_may_be_named_by_a_variable(tmp_path, monkeypatch):
    synthetic.clinc150(tmp_path / "theirs")
    synthetic.clinc150(tmp_path / "mine")
    monkeypatch.setenv("UNWEAVE_DATA", str(tmp_path / "theirs"))
    assert len(load("clinc150", None).train.forget) == 5
    shutil.rmtree(tmp_path / "theirs")
    assert len(load("clinc150", tmp_path / "mine").train.forget) == 5  # the argument takes precedence
    monkeypatch.setenv("UNWEAVE_DATA", "")
    with pytest.raises(UsageError, match="needs the data set clinc150"):
        load("clinc150", None)


# Wrong content


def test_wrong_counts_are_refused(tmp_path):
    synthetic.cifar100(tmp_path, each=1)
    with pytest.raises(UsageError, match="has 100 rows, but should have 50,000"):
        load("cifar100-vit", tmp_path, small=False)
    synthetic.toxigen(tmp_path, each=2)
    with pytest.raises(UsageError, match="has 52 rows, but should have 8,960"):
        load("toxigen-roberta", tmp_path, small=False, model="owner/name")
    synthetic.clinc150(tmp_path, each=1)
    with pytest.raises(UsageError, match="has 1 questions of 'accept_reservations', but should have 100"):
        load("clinc150", tmp_path, small=False, model="owner/name")


def test_unequal_classes_of_tinyimagenet_are_refused(tmp_path):
    synthetic.tinyimagenet(tmp_path, each=1, valid_each=1)
    label = np.append(np.arange(200), 7)
    synthetic.write(
        tmp_path / "tiny-imagenet-subset", "train", {"image": synthetic.images(label, size=8), "label": label}
    )
    with pytest.raises(UsageError, match="1 images of 'goldfish' and 2 of 'scorpion'"):
        load("tinyimagenet-vit", tmp_path)


@pytest.mark.parametrize(
    ("name", "folder", "columns", "message"),
    [
        ("cifar100-vit", "cifar100", {"img": [b"x"], "coarse_label": [0]}, "lacks the column 'fine_label'"),
        ("cifar100-vit", "cifar100", {"img": [b"x"], "fine_label": [100], "coarse_label": [0]}, "there are 100"),
        (
            "cifar100-vit",
            "cifar100",
            {"img": [b"x"], "fine_label": [1], "coarse_label": [9]},
            "coarse_label 9 does not belong to fine_label 1",
        ),
        ("fashion-mnist", "fashion-mnist", {"image": [b"x"]}, "lacks the column 'label'"),
        ("fashion-mnist", "fashion-mnist", {"image": [None], "label": [1]}, "Row 0 .* has no 'image'"),
        ("tinyimagenet-vit", "tiny-imagenet", {"image": [b"x"], "label": [-1]}, "there are 200"),
        ("tinyimagenet-vit", "tiny-imagenet", {"image": [b"x"], "label": ["cat"]}, "must be whole numbers"),
        ("celeba-vit", "celeba", {"image": [b"x"], "Male": [True]}, "lacks the column 'Smiling'"),
        (
            "celeba-vit",
            "celeba",
            {"image": [b"x"], "Male": [5], "Smiling": [1], "Young": [1], "Eyeglasses": [1]},
            "attribute Male .* must be true or false",
        ),
        ("clinc150", "clinc150", {"text": ["hi"], "intent": ["blance"]}, "Did you mean 'balance'"),
        ("clinc150", "clinc150", {"text": ["hi"], "intent": [3]}, "the file has no names for them"),
        (
            "toxigen-roberta",
            "toxigen",
            {"text": ["hi"], "target_group": ["elves"], "toxicity_ai": [1.0], "toxicity_human": [1.0]},
            "Row 0 .* target_group 'elves'",
        ),
        (
            "toxigen-roberta",
            "toxigen",
            {"text": ["hi"], "target_group": ["women"], "toxicity_ai": [float("nan")], "toxicity_human": [1.0]},
            "no toxicity rating",
        ),
    ],
)
def test_wrong_content_is_refused(name, folder, columns, message, tmp_path):
    synthetic.write(tmp_path / folder, "train", columns)
    with pytest.raises(UsageError, match=message):
        load(name, tmp_path)


def test_images_that_cannot_be_decoded_are_named(tmp_path):
    synthetic.fashion_mnist(tmp_path, each=2)
    label = np.arange(10)
    broken = synthetic.images(label, size=28)
    broken[3] = {"bytes": b"no image", "path": None}
    synthetic.write(tmp_path / "fashion-mnist", "train", {"image": broken, "label": label})
    with pytest.raises(UsageError, match=r"image in row 3 .* cannot be decoded"):
        load("fashion-mnist", tmp_path)


def changed(file, place, byte):
    data = bytearray(file.read_bytes())
    data[place] ^= byte
    file.write_bytes(bytes(data))


def test_every_byte_of_a_table_may_be_odd(tmp_path):
    synthetic.write(tmp_path / "own", "train", {"text": ["good", "bad"] * 3, "label": [0, 1] * 3})
    source, (file,) = Source(folder="own", hub="a/b", columns=("text", "label")), (tmp_path / "own").iterdir()
    whole = file.read_bytes()
    refused = 0
    for place in range(len(whole)):
        for byte in (0x01, 0x80, 0xFF):
            file.write_bytes(whole)
            changed(file, place, byte)
            try:
                part = source.read(str(tmp_path), "train")
                part.column("text"), part.words("text"), part.words("label")
            except UsageError:
                refused += 1
    assert refused > len(whole)


@pytest.mark.parametrize("names", ["[]", "[1]", '{"info": []}', '{"info": {"features": {"label": {"names": 3}}}}', "{"])
def test_odd_names_of_classes_are_missing_names(names, tmp_path):
    (tmp_path / "own").mkdir()
    table = pa.table({"label": [0, 1]}).replace_schema_metadata({"huggingface": names})
    parquet.write_table(table, tmp_path / "own" / "train.parquet")
    part = Source(folder="own", hub="a/b", columns=("label",)).read(str(tmp_path), "train")
    with pytest.raises(UsageError, match="has no names for them"):
        part.words("label")


def test_files_that_are_no_parquet_or_empty_are_refused(tmp_path):
    folder = tmp_path / "clinc150"
    folder.mkdir()
    (folder / "train.parquet").write_text("text")
    with pytest.raises(UsageError, match="cannot be read as a table"):
        load("clinc150", tmp_path)
    nothing = pa.table({"text": pa.array([], pa.string()), "intent": pa.array([], pa.string())})
    parquet.write_table(nothing, folder / "train.parquet")
    with pytest.raises(UsageError, match="is empty"):
        load("clinc150", tmp_path)
    synthetic.write(folder, "train", {"text": ["hi"], "intent": ["balance"]})
    parquet.write_table(pa.table({"text": [1]}), folder / "train-00001-of-00002.parquet")
    (folder / "train.parquet").unlink()
    with pytest.raises(UsageError, match="do not fit together"):
        load("clinc150", tmp_path)


# Original files of Fashion-MNIST


@pytest.mark.parametrize("packed", [False, True])
def test_original_files_give_the_same_split(tmp_path, packed):
    synthetic.fashion_idx(tmp_path)
    if packed:
        for file in [*(tmp_path / "fashion-mnist").iterdir()]:
            file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    task = load("fashion-mnist", tmp_path)
    assert str(task.train) == "Split of 200 samples: 20 forget, 40 adjacent, 140 remote"
    images, labels = task.train.samples.dataset.data
    assert images.shape == (200, 1, 28, 28)
    assert labels[task.train.forget].unique().tolist() == [1]  # footwear
    with pytest.raises(UsageError, match=r"there should be 60,000 images.*dataset-fashion-mnist"):
        load("fashion-mnist", tmp_path, small=False)


def test_damaged_original_files_are_refused(tmp_path):
    synthetic.fashion_idx(tmp_path)
    file = tmp_path / "fashion-mnist" / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UsageError, match="was cut off"):
        load("fashion-mnist", tmp_path)
    for content in (b"", file.read_bytes()[:6]):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="is not an idx file"):
            load("fashion-mnist", tmp_path)
    file.unlink()
    packed = bytearray(gzip.compress(bytes(1000)))
    packed[12] ^= 0xFF
    file.with_name(f"{file.name}.gz").write_bytes(bytes(packed))
    with pytest.raises(UsageError, match="cannot be read"):
        load("fashion-mnist", tmp_path)


# The Hub


def test_the_hub_is_read_by_name(monkeypatch):
    import datasets

    asked = []
    names = datasets.ClassLabel(names=["balance", "transfer", "oos", "alarm"])
    features = datasets.Features({"text": datasets.Value("string"), "intent": names})

    def load_dataset(name, config, *, split):
        asked.append((name, config, split))
        return datasets.Dataset.from_dict({"text": ["a", "b", "c", "d"], "intent": [0, 1, 2, 3]}, features=features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda name, config: ["train", "validation", "test"])
    task = load("clinc150", "hub")
    assert asked == [("clinc/clinc_oos", "plus", "train"), ("clinc/clinc_oos", "plus", "test")]
    assert str(task.train) == "Split of 3 samples: 1 forget, 1 adjacent, 1 remote"  # questions out of scope are skipped


def test_images_of_the_hub_are_decoded_once(monkeypatch, tmp_path):
    import datasets

    label = np.tile(np.arange(10), 2)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    whole = datasets.Dataset.from_dict(
        {"image": synthetic.images(label, size=28, grey=True), "label": label}, features=features
    )
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config, *, split: whole)
    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda name, config: ["train", "test"])
    first = load("fashion-mnist", "hub:someone/fashion")
    monkeypatch.setattr(pixels, "_decoded", None)
    again = load("fashion-mnist", "hub:someone/fashion")
    assert (first.train.samples.dataset.data[0] == again.train.samples.dataset.data[0]).all()


def test_the_hub_says_what_it_lacks(monkeypatch):
    import datasets

    source = Source(folder="x", hub="owner/x", columns=("text",))
    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda name, config: ["everything"])
    with pytest.raises(UsageError, match="has no part 'valid'; it has everything"):
        source.read("hub", "valid")

    def unreachable(name, config):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "get_dataset_split_names", unreachable)
    with pytest.raises(UsageError, match="owner/x cannot be read from the Hub: no network"):
        source.read("hub", "train")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'unweave\[datasets\]'"):
        source.read("hub", "train")


def test_numbers_are_named_by_the_copy_of_the_hub():
    about = {"info": {"features": {"intent": {"names": ["one", "two"], "_type": "ClassLabel"}}}}
    table = pa.table({"intent": [1, 0]}).replace_schema_metadata({"huggingface": json.dumps(about)})
    assert DataPart(table=table, fingerprint="").words("intent").tolist() == ["two", "one"]


# The cache


def test_a_second_load_decodes_nothing_and_a_damaged_cache_is_made_anew(tmp_path, monkeypatch):
    synthetic.tinyimagenet(tmp_path)
    first = load("tinyimagenet-vit", tmp_path)
    kept = sorted((tmp_path / "cache").iterdir())
    assert len(kept) == 2
    decode = pixels._decoded
    monkeypatch.setattr(pixels, "_decoded", lambda *_: pytest.fail("decoded again"))
    again = load("tinyimagenet-vit", tmp_path)
    assert (first.train.samples.dataset.data[0] == again.train.samples.dataset.data[0]).all()
    monkeypatch.setattr(pixels, "_decoded", decode)
    kept[0].write_bytes(kept[0].read_bytes()[:100])
    third = load("tinyimagenet-vit", tmp_path)
    assert (first.train.samples.dataset.data[0] == third.train.samples.dataset.data[0]).all()
    assert kept[0].stat().st_size > 100


def test_one_of_several_workers_decodes_and_the_others_wait_for_it(tmp_path, monkeypatch):
    synthetic.tinyimagenet(tmp_path)
    decoded, begun = [], pixels._decoded

    def slowly(encoded, shape):
        decoded.append(shape)
        time.sleep(0.3)
        return begun(encoded, shape)

    monkeypatch.setattr(pixels, "_decoded", slowly)
    with ThreadPoolExecutor() as pool:
        tasks = list(pool.map(lambda _: load("tinyimagenet-vit", tmp_path), range(3)))
    assert len(decoded) == len(set(decoded)) == 2  # the training images and the test images
    first, *others = (task.train.samples.dataset.data[0] for task in tasks)
    assert all((first == other).all() for other in others)
    assert {file.suffix for file in (tmp_path / "cache").iterdir()} == {".npy"}


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_decoded_images_are_neither_read_nor_written_through_a_link(tmp_path):
    synthetic.tinyimagenet(tmp_path)
    first = load("tinyimagenet-vit", tmp_path)
    elsewhere = tmp_path / "elsewhere"
    for file in (tmp_path / "cache").iterdir():
        elsewhere.write_bytes(b"mine")
        file.unlink()
        file.symlink_to(elsewhere)
        file.with_name(f"{file.name}.{os.getpid()}.partial").symlink_to(elsewhere)
    again = load("tinyimagenet-vit", tmp_path)
    assert (first.train.samples.dataset.data[0] == again.train.samples.dataset.data[0]).all()
    assert elsewhere.read_bytes() == b"mine"
    assert not any(file.is_symlink() for file in (tmp_path / "cache").iterdir())


def test_a_cache_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    synthetic.celeba(tmp_path, each=1, test_each=1)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNWEAVE_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="Set UNWEAVE_CACHE to another folder"):
        load("celeba-vit", tmp_path)


def test_an_image_whose_name_is_no_text_is_refused():
    """An Arrow value is read as text when it is taken, so a damaged name is found late."""
    offsets, data = np.array([0, 1], dtype=np.int32), pa.py_buffer(b"\x9d")
    name = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), data])
    image = pa.StructArray.from_arrays([pa.array([b"no image"]), name], ["bytes", "path"])
    with pytest.raises(UsageError, match="The image in row 0 of the data set cannot be decoded"):
        pixels._decoded(image, (1, 3, 8, 8))
