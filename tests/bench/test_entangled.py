"""One original for many classes, each forgotten by two methods: what is trained, what is written, what time allows."""

from __future__ import annotations

import json

import pytest
from bench.strangers import page_entangled

from bench import entangled

SMALL = ["--benchmark", "digits", "--small", "--device", "cpu"]


def run(folder, *more, forget="9,8"):
    entangled.main([*SMALL, "--forget", forget, "--models", str(folder / "models"), "--out", str(folder / "o"), *more])
    return [json.loads(line) for line in (folder / "o").read_text().splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("entangled")
    return folder, run(folder)


def test_one_original_serves_every_class_and_every_method(made):
    folder, rows = made
    assert [(row["forget"], row["method"]) for row in rows] == [
        (digit, method) for digit in ("9", "8") for method in ("adaptive", "unweave")
    ]
    assert [file.suffix for file in sorted((folder / "models").iterdir())] == [".json", ".safetensors"]
    nine, eight = rows[0]["before"], rows[2]["before"]
    assert nine != eight
    assert rows[0]["before"] == rows[1]["before"]
    assert all(row["error"] or row["share"] == round(row["gradients"] / row["training"], 4) for row in rows)
    assert rows[0]["after"]["train forget"] < rows[0]["before"]["train forget"]


def test_what_is_there_is_not_run_again(made):
    folder, rows = made
    assert run(folder) == rows
    assert len((folder / "o.provenance.jsonl").read_text().splitlines()) >= 2


def test_without_time_nothing_begins(made, tmp_path):
    folder, _ = made
    entangled.main([*SMALL, "--minutes", "0", "--models", str(folder / "models"), "--out", str(tmp_path / "o")])
    assert not (tmp_path / "o").exists()


def row(method, *, forget="man", lost=0.0, train_forget=0.0, test_forget=0.1, remote=1.0, error=None):
    before = {"train forget": 1, "train adjacent": 1, "train remote": 1}
    before |= {"test forget": 0.9, "test adjacent": 0.8, "test remote": 0.85}
    after = before | {"train forget": train_forget, "train remote": remote, "test forget": test_forget}
    after["test adjacent"] -= lost
    found = {"benchmark": "cifar100-resnet18", "size": 64, "forget": forget, "seed": 0, "method": method}
    found |= {"before": before, "error": error, "seconds": 2.0, "training_seconds": 60.0, "share": 0.1}
    return found if error else found | {"after": after}


def test_the_page_counts_what_meets_a_target():
    rows = [
        row("adaptive", lost=0.03),
        row("unweave", lost=0.08),
        row("adaptive", forget="castle", lost=0.05, train_forget=0.01, test_forget=0.2, remote=0.9),
        row("unweave", forget="castle", lost=0.08),
        row("adaptive", forget="clock", error="CollapseError"),
    ]
    facts = page_entangled.facts(rows)
    assert "samples recognised: 1 of 2 cells" in facts
    assert "remote training samples: 1 of 2 cells" in facts
    assert "below the original's: 2 of 2 cells" in facts
    assert "no more often than by `unweave`: 1 of 2 cells" in facts
    assert "half of what `unweave` loses: 1 of 2 cells" in facts
    assert "that failed: 1." in facts
    shown = page_entangled.table(rows)
    assert shown.count("| original |") == 3
    assert (
        "| cifar100-resnet18, 64 px | man | 0 | adaptive | 0.0 / 100.0 / 100.0 | 10.0 / 77.0 / 85.0 | 0.10 | 2 |"
        in shown
    )
    assert "| CollapseError |" in shown
