"""What `verify` finds in records that are signed and whole, but do not agree with themselves or their chain."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from tests.helpers.records import OLD_RUN
from unweave import UsageError
from unweave.record import (
    check_chain,
    check_content,
    check_counts,
    check_signature,
    check_times,
    generate,
    load_public,
    read_record,
)
from unweave.record.sealing import sealed

RECORD = read_record(OLD_RUN / "record.json")


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "key"
    generate(file)
    return file


def resealed(content, key=None):
    """Return a record that matches its hash, whatever its content, and is signed with a key."""
    return sealed({name: entry for name, entry in content.items() if name not in SEALS}, key)


SEALS = ("sections", "hash", "signature")


def altered(section, name, value, key=None):
    record = copy.deepcopy(RECORD)
    record[section][name] = value
    return resealed(record, key)


def followed_by(record, key=None, **times):
    """Return a record of the request after this one."""
    later = copy.deepcopy(RECORD)
    later["request"] = {"id": "2031-18", "text": ""}
    later["previous"] = {"hash": record["hash"], "id": record["request"]["id"]}
    later["model"]["before"] = record["model"]["after"]
    later["times"] |= {"begun": record["times"]["finished"], "finished": record["times"]["finished"]} | times
    later["drift"] = [*record["drift"], {**record["drift"][0], "id": "2031-18"}]
    later["split"]["forgotten"] = record["forget"]["count"]
    later["split"]["remote"] -= record["forget"]["count"]
    later["scores"]["train"]["remote"]["samples"] = later["split"]["remote"]
    return resealed(later, key)


def test_a_record_that_agrees_with_itself_holds():
    assert check_counts(RECORD).holds is True
    assert check_times(RECORD).holds is True


@pytest.mark.parametrize(
    ("section", "name", "value", "words"),
    [
        ("forget", "count", 3, "under the forget root is 3, not 8"),
        ("split", "forget", 80, "the subsets have 132 samples, but the split has 60"),
        ("split", "adjacent", -12, "counts -12 adjacent samples"),
        ("split", "remote", 39, "remote samples that were scored is 40, not 39"),
        ("seeds", "run", 6, "seed of the run is 6, not 5"),
        ("request", "id", "2031-99", "the id of the last drift is '2031-17', not '2031-99'"),
    ],
)
def test_counts_that_do_not_agree_are_named(section, name, value, words):
    record = altered(section, name, value)
    assert check_content(record).holds
    found = check_counts(record)
    assert (found.holds, words in found.words) == (False, True), found


@pytest.mark.parametrize(
    ("name", "value", "holds", "words"),
    [
        ("begun", "2031-01-01T00:00:00+00:00", False, "after it finished"),
        ("begun", "2026-11-18", False, "is not a time with its zone"),
        ("finished", "soon", False, "'soon' is not a time"),
        ("seconds", -1.0, False, "took -1 seconds"),
        ("begun", "unknown", None, "does not know when"),
    ],
)
def test_times_in_another_order_are_named(name, value, holds, words):
    found = check_times(altered("times", name, value))
    assert (found.holds, words in found.words) == (holds, True), found


def test_a_chain_whose_middle_is_unsigned_does_not_hold(key):
    first = resealed(RECORD, key)
    for middle_key, holds in ((key, True), (None, False)):
        middle = followed_by(first, middle_key)
        last = followed_by(middle, key)
        assert check_signature(last).holds
        later, earlier = [check for check in check_chain(last, [middle, first], None) if check.name.startswith("chain")]
        assert (later.holds, earlier.holds) == (holds, True)
    assert "that record is not signed, but others of the chain are" in later.words


def test_a_chain_that_nobody_signed_may_be_unbroken():
    first = resealed(RECORD)
    assert check_chain(followed_by(first), [first], None)[0].holds


def test_a_request_that_began_before_the_one_before_it_finished_does_not_hold():
    first = resealed(RECORD)
    (found, *_) = check_chain(followed_by(first, begun="2020-01-01T00:00:00+00:00"), [first], None)
    assert (found.holds, "before that request finished" in found.words) == (False, True)


def test_a_link_whose_counts_do_not_agree_does_not_hold():
    first = altered("forget", "count", 3)
    (found, *_) = check_chain(followed_by(first), [first], None)
    assert (found.holds, "in that record: counts" in found.words) == (False, True)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_private_key_that_others_can_read_is_refused(tmp_path, mode):
    generate(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(UsageError, match=rf"mode {mode:o}\). Run `chmod 600"):
        resealed(RECORD, tmp_path / "key")
    (tmp_path / "key").chmod(0o600)
    assert check_signature(resealed(RECORD, tmp_path / "key"), load_public(tmp_path / "key.pub")).holds


# Words that would be lines of a verdict

FORGED = "2031-17\nok    signature: matches the key\x1b[2J\u202e"


def test_an_id_adds_no_line_to_a_verdict(tmp_path, unweave_command, capsys):
    record = copy.deepcopy(RECORD)
    record["request"]["id"] = FORGED
    later = followed_by(resealed(record))
    (tmp_path / "later.json").write_text(json.dumps(later))
    (tmp_path / "first.json").write_text(json.dumps(resealed(record)))
    for words in (("verify", "later.json"), ("verify", "later.json", "--previous", "first.json")):
        _, out, err = unweave_command("record", *(tmp_path / word if "json" in word else word for word in words))
        assert "\x1b" not in out + err
        assert "\u202e" not in out + err
        assert [line for line in out.splitlines() if line.startswith("ok    signature")] == []
    code, shown, err = unweave_command("record", "show", tmp_path / "first.json")
    assert code == 0, err
    assert "Deletion record 2031-17\\nok    signature: matches the key\\x1b[2J\\u202e" in shown
    assert unweave_command("record", "page", "--out", tmp_path / "page.html", tmp_path / "first.json")[0] == 0
    for text in (shown, Path(tmp_path, "page.html").read_text()):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_weights_in_whole_numbers_are_not_those_of_a_model_with_fractions(tmp_path):
    import safetensors.torch
    import torch

    from unweave import load_weights

    model = torch.nn.Linear(2, 2)
    whole = {name: tensor.detach().round().long() for name, tensor in model.state_dict().items()}
    safetensors.torch.save_file(whole, tmp_path / "whole.safetensors")
    before = model.weight.detach().clone()
    with pytest.raises(UsageError, match=r"is torch\.int64, but the model has torch\.float32"):
        load_weights(model, tmp_path / "whole.safetensors")
    assert torch.equal(model.weight, before)
    safetensors.torch.save_file({name: tensor.half() for name, tensor in whole.items()}, tmp_path / "half.safetensors")
    assert torch.equal(load_weights(model, tmp_path / "half.safetensors").weight, before.round())
