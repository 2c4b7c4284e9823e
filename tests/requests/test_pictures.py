"""A tiny vision transformer on images as files, as bytes in Parquet, and as paths in CSV."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from tests.helpers.own_files import COLOURS, pictures, png, processor, transformers, write_image_checkpoint, write_table
from unweave import Request, UsageError

QUICK = {"method": "ga", "settings": {"learning_rate": 1e-3, "epochs": 1}, "no_guard": True, "device": "cpu"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    write_image_checkpoint(folder / "checkpoint")
    (folder / "files").mkdir()
    rows = []
    for row, (image, colour) in enumerate(pictures()):
        (folder / "classes" / colour).mkdir(parents=True, exist_ok=True)
        image.save(folder / "classes" / colour / f"{row:02}.png")
        image.save(folder / "files" / f"{row:02}.png")
        rows.append({"id": row, "image": png(image), "file": f"files/{row:02}.png", "label": colour})
    write_table(folder / "bytes.parquet", [{**row, "file": None} for row in rows])
    hub = [{"id": row["id"], "img": {"bytes": row["image"], "path": None}, "label": row["label"]} for row in rows]
    write_table(folder / "hub.parquet", hub)
    write_table(folder / "paths.csv", [{name: row[name] for name in ("id", "file", "label")} for row in rows])
    (folder / "rows.txt").write_text("0\n3\n6\n")
    (folder / "names.txt").write_text("red/00.png\nred/03.png\nred/06.png\n")
    return folder


def request(home, data, **changes):
    forget = "names.txt" if data == "classes" else "rows.txt"
    given = {"model": str(home / "checkpoint"), "train": str(home / data), "forget": str(home / forget)}
    return Request(**{**given, **QUICK, **changes})


@pytest.mark.parametrize("data", ["classes", "bytes.parquet", "hub.parquet", "paths.csv"])
def test_images_are_read_through_the_checkpoints_own_processor(home, data):
    prepared = request(home, data).prepare()
    split = prepared.split
    order = sorted(range(24), key=lambda row: (pictures()[row][1], row)) if data == "classes" else list(range(24))
    assert [order[row] for row in split.forget] == [0, 3, 6]
    expected = processor()(images=[pictures()[row][0] for row in order], return_tensors="pt")["pixel_values"]
    batch = split.samples.read(torch.arange(24))
    assert torch.equal(batch["pixel_values"], expected)
    names = list(COLOURS)
    assert batch["labels"].tolist() == [names.index(pictures()[row][1]) for row in order]
    assert split.samples.dataset.kept.kind == np.uint8  # a quarter of the room of what the processor returns


def test_a_run_on_images_opens_with_from_pretrained_and_predicts_the_same(home, tmp_path):
    result = request(home, "classes", out=str(tmp_path / "run")).run()
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "run" / "model").eval()
    saved = transformers.AutoImageProcessor.from_pretrained(tmp_path / "run" / "model")
    pixels = saved(images=[image for image, _ in pictures()], return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(model(**pixels).logits, result.model(**pixels).logits)
    assert model.config.id2label == dict(enumerate(COLOURS))


def test_images_that_cannot_be_read_are_counted_and_left_out_on_demand(home, tmp_path):
    rows = [{"id": row, "image": png(image), "label": colour} for row, (image, colour) in enumerate(pictures())]
    for row in (0, 4, 5):
        rows[row]["image"] = b"not an image"
    data = str(write_table(tmp_path / "bad.parquet", rows))
    with pytest.raises(UsageError, match=r"3 of the 24 images .* \(first: row 0, row 4, row 5\).*--skip-unreadable"):
        request(home, "", train=data).prepare()
    split = request(home, "", train=data, skip_unreadable=True).prepare().split
    assert split.forget.tolist() == [3, 6]
    assert {0, 4, 5}.isdisjoint({*split.adjacent.tolist(), *split.remote.tolist()})
    assert len(split.adjacent) + len(split.remote) == 19


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have names")
def test_a_pipe_among_the_images_is_not_waited_for(tmp_path, home):
    for colour in COLOURS:
        (tmp_path / "classes" / colour).mkdir(parents=True)
        os.mkfifo(tmp_path / "classes" / colour / "00.png")
    (tmp_path / "names.txt").write_text("red/00.png\n")
    wanted = request(home, "classes", train=str(tmp_path / "classes"), forget=str(tmp_path / "names.txt"))
    with pytest.raises(UsageError, match="cannot be read"):
        wanted.run()
