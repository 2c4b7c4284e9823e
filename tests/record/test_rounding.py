"""What a record publishes does not tell which samples were forgotten; what it keeps back is bound to it."""

from __future__ import annotations

import copy
import json
import re
import stat

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.records import Run
from unweave import Compute, Split, UsageError, __version__, evaluate
from unweave.record import check_exact, check_scores, describe, read_exact, with_exact
from unweave.record.rounding import FEWEST, SWAPPED, published_bound, published_scores, rounded, step_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("rounding"))


@given(count=st.integers(FEWEST, 100_000), data=st.data())
def test_one_sample_leaves_two_values_and_a_few_move_a_value_by_one_step(count, data):
    step = step_of(count)
    assert SWAPPED / count <= step * (1 + 1e-9) <= 3 * SWAPPED / count
    hits = data.draw(st.integers(0, count - SWAPPED))
    values = [rounded((hits + more) / count, step) for more in range(SWAPPED + 1)]
    assert len(set(values[:2])) <= 2
    assert max(values) - min(values) <= step * 1.001


def test_two_halves_are_one_step_apart():
    """25 and 35 of 50,000 are 2.5 and 3.5 steps, which to the even step were 2 and 4."""
    assert [rounded(hits / 50_000, step_of(50_000)) for hits in (25, 35)] == [0.0006, 0.0008]


def places(record):
    return [(row["split"], row["subset"]) for row in record["scores"]["metrics"]]


def test_a_small_forget_set_has_no_numbers_on_record(run):
    record = run.record
    assert "forget" not in {subset for _, subset in places(record)}
    assert all("forget" not in row.get(part, {}) for row in record["drift"] for part in ("train", "test"))
    assert record["certificate"]["bound"] is None
    assert "withheld, because there are fewer than 50" in record["certificate"]["words"]
    text = json.dumps(record).replace(__version__, "")  # a version may look like a share
    numbers = set(re.findall(r"[-\d.e]+", text))
    for row in run.exact["scores"]["metrics"]:
        for entry in ("value", "low", "high", "before"):
            value = row.get(entry)
            if value not in (None, 0.0, 1.0, 0.5):
                assert str(value) not in numbers, row
    for name in ("smallest_forget_loss_before_stage_2", "squared_wasserstein"):
        assert name in run.exact["certificate"]["conditions"]
        assert name not in text
    assert "train forget loss" in record["scores"]["withheld"]
    assert "more numbers are withheld" in describe(record)


def test_records_about_one_sample_or_another_publish_the_same(run):
    """With exact numbers each candidate has a record of its own."""
    generator = torch.Generator().manual_seed(3)
    inputs, labels = torch.randn(400, 5, generator=generator), torch.arange(400) % 2

    def scores(row):
        kept = [other for other in range(0, 400, 2) if other != row]
        split = Split((inputs, labels), forget=[row], adjacent=kept)
        return evaluate(run.result.model, split, original=run.model, compute=Compute("cpu"))

    found = [scores(row) for row in range(0, 20, 2)]
    exact = {json.dumps(one.to_dict()["metrics"][:4]) for one in found}
    shown = [published_scores(one) for one in found]
    assert len(exact) == len(found)
    assert len({json.dumps(one["metrics"]) for one in shown}) == 1
    assert set(places({"scores": shown[0]})) == {("train", "adjacent"), ("train", "remote")}


def test_a_bound_is_rounded_up_where_there_are_enough_samples():
    exact = {"bound": 0.0111, "words": "1.11%", "conditions": {"alpha": 0.5, "shortfall": 0.123}}
    assert published_bound(exact, 50) == {
        "bound": 0.1,
        "words": "at most 10% of the 50 forget samples are predicted right (measured losses, rounded up)",
        "conditions": {"alpha": 0.5},
    }
    assert published_bound(exact, 49)["bound"] is None
    assert published_bound(exact | {"bound": 1.0}, 50)["bound"] == 1.0
    reason = exact | {"bound": None, "words": "no bound: m = 0.123"}
    assert "0.123" not in published_bound(reason, 50)["words"]


def test_the_exact_scores_are_private_and_bound_to_the_record(run):
    file = run.folder / "one" / "exact-scores.json"
    for name in ("exact-scores.json", "scores.json", "run.json", "history.jsonl", "verdict.md"):
        assert stat.S_IMODE((run.folder / "one" / name).stat().st_mode) == 0o600, name
    assert check_exact(run.record, read_exact(file)).holds
    assert check_exact(run.record, None).holds is None
    for name, other in (("salt", "00" * 32), ("drift", {"id": "2031-17"})):
        assert check_exact(run.record, run.exact | {name: other}).holds is False
    forged = copy.deepcopy(run.exact)
    forged["scores"]["metrics"][0]["value"] = 0.123
    assert check_exact(run.record, forged).holds is False
    assert with_exact(run.record, run.exact)["scores"] == run.exact["scores"]


def test_other_accuracies_than_the_published_ones_are_found(tmp_path):
    generator = torch.Generator().manual_seed(3)
    data = torch.randn(400, 5, generator=generator), torch.arange(400) % 2
    model = torch.nn.Linear(5, 2)
    scores = evaluate(model, Split(data, forget=range(60), adjacent=range(60, 200)), compute=Compute("cpu"))
    shown = published_scores(scores)
    drift = {"train": {row["subset"]: {"after": row["value"]} for row in shown["metrics"]}}
    record = {"scores": shown | {"exact": ""}, "drift": [drift]}
    found = check_scores(record, scores)
    assert (found.holds, "all 6 accuracies" in found.words) == (True, True)
    for row in shown["metrics"]:
        forged = copy.deepcopy(record)
        (mine,) = [one for one in forged["scores"]["metrics"] if one["subset"] == row["subset"]]
        mine["value"] += 2 * row["step"]
        assert check_scores(forged, scores).holds is False
    lacking = copy.deepcopy(record)
    del lacking["scores"]["metrics"][0]
    assert "missing in the record" in check_scores(lacking, scores).words


def test_a_file_of_another_form_is_not_read_as_exact_scores(tmp_path):
    for content in ("[]", "{}", '{"format": "unweave-exact-scores", "version": 1, "salt": 7}'):
        (tmp_path / "exact-scores.json").write_text(content)
        with pytest.raises(UsageError):
            read_exact(tmp_path / "exact-scores.json")
