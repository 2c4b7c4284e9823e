"""Doors for data that others made: the data sets of benchmarks, images, and files of compiled code."""

from __future__ import annotations

import io
import json
import tempfile
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import torch
from PIL import Image

from tests.helpers import synthetic
from tests.helpers.fuzz_requests import Door
from tests.helpers.fuzz_values import flipped, json_bytes, written
from unweave.engine.compiling.portable import FORMAT, read_code
from unweave.errors import UsageError
from unweave.lab.benchmarks.celeba import ATTRIBUTES, attribute
from unweave.lab.benchmarks.fashion_mnist import read_idx
from unweave.lab.benchmarks.pixels import decode
from unweave.lab.benchmarks.sources import Source, require_labels
from unweave.requests.pictures import read_image
from unweave.storage import sha256

KINDS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "EPS", "DDS", "SPIDER", "PDF", "TGA")
HEADER = 64  # most of what an image says of itself stands in its first bytes


@cache
def data_files() -> dict[str, bytes]:
    """Return the files of two small data sets by name."""
    with tempfile.TemporaryDirectory() as place:
        kinds = np.arange(4)
        faces = dict.fromkeys(ATTRIBUTES, kinds % 2 == 0)
        synthetic.write(Path(place), "faces", {"image": synthetic.images(kinds, size=8), **faces})
        synthetic.write(Path(place), "words", {"text": ["a b", "c", "d"], "label": [0, 1, 2]})
        return {file.name.partition("-")[0]: file.read_bytes() for file in Path(place).iterdir()}


def data_door(chance: Random, folder: Path) -> None:
    """What benchmarks do with the Parquet file of a data set."""
    name = chance.choice(("faces", "words"))
    (folder / "own").mkdir(exist_ok=True)
    written(folder / "own", "train.parquet", flipped(data_files()[name], chance))
    columns = ("image", *ATTRIBUTES) if name == "faces" else ("text", "label")
    found = Source(folder="own", hub="owner/own", columns=columns).read(str(folder), "train", complete=False)
    if name == "words":
        found.words("text")
        require_labels(found.column("label"), 3, "label")
        return
    for one in ATTRIBUTES:
        attribute(found, one, "train")
    for row in range(len(found)):
        decode(row, found.table["image"][row], 8, 3)


@cache
def idx_bytes() -> bytes:
    """Return a file of six images in the format of MNIST."""
    return bytes([0, 0, 8, 3]) + np.array([6, 2, 2], dtype=">u4").tobytes() + bytes(24)


def idx_door(chance: Random, folder: Path) -> None:
    import gzip

    if chance.random() < 0.5:
        read_idx(written(folder, "images.gz", flipped(gzip.compress(idx_bytes()), chance)))
    else:
        read_idx(written(folder, "images", flipped(idx_bytes(), chance)))


@cache
def image_bytes(kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (6, 6, 3), dtype=np.uint8)).save(file, format=kind)
    return file.getvalue()


def image_door(chance: Random, folder: Path) -> None:
    """An image in a table, which is there or is not."""
    data = image_bytes(chance.choice(KINDS))
    size = HEADER if chance.random() < 0.5 else len(data)
    data = flipped(data[:size], chance) + data[size:]
    value = chance.choice((data, {"bytes": data, "path": None}))
    if read_image(value, folder, chance.choice((1, 3))) is None:
        raise UsageError("It is no image.")


def code_door(chance: Random, folder: Path) -> None:
    """A file of compiled code, up to where torch would read it."""
    code = b"what torch writes\n\0"
    variant = ["kind", True, True, False, [[[13, 3], "torch.float32"]]]
    about = {**FORMAT, "torch": torch.__version__, "hardware": "cpu", "variants": [variant], "sha256": sha256(code)}
    if chance.random() < 0.8:
        content = json_bytes(about, chance).replace(b"\n", b" ") + b"\n" + code
    else:
        content = flipped(json.dumps(about).encode() + b"\n" + code, chance)
    read_code(written(folder, "compiled.code", content), "compiled.code")


DATA_PARSERS: dict[str, tuple[int, Door]] = {  # with a weight: how often the door is tried
    "data of a benchmark": (9, data_door),
    "images of MNIST": (12, idx_door),
    "image": (18, image_door),
    "compiled code": (18, code_door),
}
