"""report.html of one run."""

from __future__ import annotations

import torch

from unweave import Compute, Split, unlearn


def test_every_run_in_a_folder_has_a_page(model, split, tmp_path):
    unlearn(
        model, split, "ga", learning_rate=1e-2, out=tmp_path / "run", guard=None, test=split, compute=Compute("cpu")
    )
    page = (tmp_path / "run" / "report.html").read_text()
    for part in ("Forgotten:", "Before and after", "Groups", "What this does not show", "learning_rate"):
        assert part in page
    assert "<script" not in page
    assert (tmp_path / "run" / "report.html").stat().st_mode & 0o077 != 0  # it identifies nobody


def test_groups_are_those_of_the_labels(data, tmp_path):
    model = torch.nn.Linear(5, 3)
    torch.nn.init.zeros_(model.weight)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))  # it says 0 to everything
    from unweave.runs.run_page import groups

    result = unlearn(
        model,
        Split(data, forget=range(8), adjacent=range(8, 30)),
        "ft",
        learning_rate=1e-9,
        epochs=1,
        out=tmp_path / "run",
        guard=None,
        compute=Compute("cpu"),
    )
    found = {(one.split, one.subset, one.label): (one.samples, one.before) for one in groups(result.scores, {1: "one"})}
    assert found == {
        ("train", "forget", "0"): (8, 1.0),
        ("train", "adjacent", "0"): (12, 1.0),
        ("train", "adjacent", "one"): (10, 0.0),
        ("train", "remote", "one"): (10, 0.0),
        ("train", "remote", "2"): (20, 0.0),
    }
