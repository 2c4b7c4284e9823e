"""Doors for files: each takes a generator and a folder, writes a file that is almost right, and reads it.

The corpus holds valid content that this version wrote, cut short so that many inputs take little time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import safetensors.torch
import torch
from torch import nn

from tests.helpers.fuzz_data import DATA_PARSERS
from tests.helpers.fuzz_requests import CORPUS, REQUEST_PARSERS, Door
from tests.helpers.fuzz_studies import STUDY_PARSERS
from tests.helpers.fuzz_values import FORBIDDEN, TEXTS, flipped, json_bytes, json_odd, written
from tests.helpers.places import ROOT
from unweave import Split, load_weights
from unweave.engine import CheckpointFolder
from unweave.evaluation import Scores
from unweave.methods import METHODS
from unweave.record import (
    FinishedRun,
    check_chain,
    check_content,
    check_counts,
    check_exact,
    check_signature,
    check_times,
    describe,
    describe_drift,
    digest_of_file,
    is_included,
    prove,
    read_exact,
    read_proof,
    read_proofs,
    read_record,
    require_record,
    signing,
)
from unweave.storage import read_array, read_configuration, read_json

OLD = ROOT / "tests" / "record" / "data" / "version-1"
DATA = (torch.zeros(60, 5), torch.arange(60) // 20)


@cache
def seeds(name: str) -> Any:
    """Return valid content of a kind, small so that many inputs take little time."""
    if name == "record":
        found = read_record(OLD / "run" / "record.json")
        found["scores"]["metrics"] = found["scores"]["metrics"][:3]
        found["model"]["tensors"] = {}
        return found
    return json.loads((CORPUS / f"{name}.json").read_text())


@cache
def weights() -> bytes:
    return safetensors.torch.save({"weight": torch.zeros(2, 2), "bias": torch.zeros(2)})


def json_door(name: str, read: Callable[[Path], None], file: str | None = None) -> Door:
    """Return a door for a JSON file, from valid content of that name."""

    def door(chance: Random, folder: Path) -> None:
        read(written(folder, file or f"{name}.json", json_bytes(seeds(name), chance)))

    return door


def read_a_record(file: Path) -> None:
    record = require_record(read_json(file), str(file))
    for check in (
        check_content(record),
        check_counts(record),
        check_times(record),
        *check_chain(record, [seeds("record")], None),
    ):
        assert isinstance(check.words, str)
    if record.get("signature"):
        check_signature(record)
    text = describe(record) + describe_drift(record["drift"])
    text.encode()
    assert not set(text) & set(FORBIDDEN), text


def read_some_proofs(file: Path) -> None:
    proofs = read_proofs(file)
    prove(seeds("record"), proofs, 2)


def read_a_proof(file: Path) -> None:
    is_included(seeds("record"), read_proof(file), bytes(32))


def read_exact_scores(file: Path) -> None:
    check_exact(seeds("record-2"), read_exact(file))


def read_a_split(file: Path) -> None:
    split = Split.load(file, DATA)
    split.hash, repr(split), split.rows("forget")


def read_a_run(file: Path) -> None:
    read_configuration(file.parent)
    FinishedRun.read(file.parent, model=nn.Linear(5, 3), split=Split(DATA, range(8), range(8, 20)))


def read_some_scores(file: Path) -> None:
    found = Scores.from_dict(read_json(file))
    str(found), found.to_dict()


def run_door(changes: str) -> Door:
    """Return a door for the folder of a run in which one file is odd."""

    def door(chance: Random, folder: Path) -> None:
        for name in ("run", "scores"):
            content = json_bytes(seeds(name), chance) if name == changes else json.dumps(seeds(name)).encode()
            file = written(folder, f"{name}.json", content)
        read_a_run(file)

    return door


def weights_door(chance: Random, folder: Path) -> None:
    load_weights(nn.Linear(2, 2), written(folder, "model.safetensors", flipped(weights(), chance)))


def header_door(chance: Random, folder: Path) -> None:
    """A safetensors file whose header is odd JSON."""
    data = weights()
    length = int.from_bytes(data[:8], "little")
    header = json_bytes(json.loads(data[8 : 8 + length]), chance)
    load_weights(
        nn.Linear(2, 2), written(folder, "model.safetensors", len(header).to_bytes(8, "little") + header + bytes(24))
    )


def index_door(chance: Random, folder: Path) -> None:
    written(folder, "part.safetensors", weights())
    index = {"metadata": {}, "weight_map": {"weight": "part.safetensors", "bias": "part.safetensors"}}
    written(folder, "model.safetensors.index.json", json_bytes(index, chance))
    load_weights(nn.Linear(2, 2), folder)


def array_door(chance: Random, folder: Path) -> None:
    import io

    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 3), dtype=chance.choice(["f4", "i8", "U3", "?"])))
    read_array(written(folder, "sample.npy", flipped(buffer.getvalue(), chance)))


def sample_door(chance: Random, folder: Path) -> None:
    data = flipped(weights(), chance)
    digest_of_file(
        written(folder, chance.choice(("s.npy", "s.safetensors", "s.pt", "s")), data),
        chance.choice(("tensors", "bytes")),
    )


def checkpoint_door(chance: Random, folder: Path) -> None:
    place = folder / "checkpoints"
    place.mkdir(exist_ok=True)
    json_file, tensors = (
        OLD / "run" / "checkpoints" / "01-00000000.json",
        OLD / "run" / "checkpoints" / "01-00000000.safetensors",
    )
    half = chance.random() < 0.7
    content = json_bytes(json.loads(json_file.read_text()), chance) if half else json_file.read_bytes()
    written(place, json_file.name, content)
    written(place, tensors.name, tensors.read_bytes() if half else flipped(tensors.read_bytes(), chance))
    found = CheckpointFolder(place)
    found.newest(), list(found.between()), found.newest_file()


def key_door(chance: Random, folder: Path) -> None:
    signing.load_public(written(folder, "key.pub", flipped((OLD / "key.pub").read_bytes(), chance)))


def settings_door(chance: Random, folder: Path) -> None:
    method = chance.choice(list(METHODS.values()))
    names = [row["name"] for row in method.describe()] or ["none"]
    method.parse({chance.choice((*names, *TEXTS[:4])): chance.choice((*TEXTS, json_odd(chance)))})


PARSERS: dict[str, tuple[int, Door]] = {  # with a weight: how often the door is tried
    "record": (12, json_door("record", read_a_record)),
    "record of version 2": (18, json_door("record-2", read_a_record)),
    "proofs": (36, json_door("proofs", read_some_proofs)),
    "proof": (36, json_door("proof", read_a_proof)),
    "exact scores": (18, json_door("exact", read_exact_scores)),
    "split": (30, json_door("split", read_a_split)),
    "scores": (15, json_door("scores", read_some_scores)),
    "run.json": (9, run_door("run")),
    "scores.json": (9, run_door("scores")),
    "weights": (24, weights_door),
    "header of weights": (24, header_door),
    "index of weights": (12, index_door),
    "array": (30, array_door),
    "sample": (30, sample_door),
    "checkpoint": (12, checkpoint_door),
    "key": (30, key_door),
    "settings": (18, settings_door),
    **REQUEST_PARSERS,
    **STUDY_PARSERS,
    **DATA_PARSERS,
}
