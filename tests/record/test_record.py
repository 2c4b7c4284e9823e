"""The deletion record says what was done, and a third party notices a change."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import stat
import sys
import warnings
from datetime import datetime

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Dataset

from tests.helpers.calling import unlearn_on_record
from tests.helpers.folders import configuration, write_configuration
from tests.helpers.places import ROOT
from tests.helpers.records import FAST, Run, make_data, make_model, make_split
from unweave import Compute, Note, Request, RunError, Split, UsageError
from unweave.evaluation import BeforeStage2, evaluate
from unweave.lab.benchmarks import find_benchmark
from unweave.lab.report import drift_rows
from unweave.record import (
    ForgetSet,
    certificate_of,
    check_chain,
    check_content,
    check_counts,
    check_exact,
    check_forget,
    check_model,
    check_original,
    check_scores,
    check_signature,
    check_split,
    check_times,
    content_digest,
    describe,
    describe_drift,
    digest_of_file,
    generate,
    is_included,
    load_public,
    merkle,
    model_after,
    prove,
    read_exact,
    read_proofs,
    read_record,
    require_record,
    sample_tensors,
)
from unweave.storage import canonical, fingerprint, sha256


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("record"))


# The tree


def slow_root(leaves):
    """RFC 6962, section 2.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return hashlib.sha256(b"\x01" + slow_root(leaves[:half]) + slow_root(leaves[half:])).digest()


@given(count=st.integers(0, 70), seed=st.integers(0, 99))
def test_the_tree_is_that_of_the_rfc_and_every_leaf_is_proven(count, seed):
    leaves = [hashlib.sha256(bytes([seed, number])).digest() for number in range(count)]
    top = merkle.root(leaves)
    assert top == slow_root(leaves)
    for index, leaf in enumerate(leaves):
        proof = merkle.path(leaves, index)
        assert merkle.proves(leaf, index, count, proof, top)
        assert not merkle.proves(hashlib.sha256(leaf).digest(), index, count, proof, top)
        assert not merkle.proves(leaf, (index + 1) % count, count, proof, top) or count == 1
        assert not merkle.proves(leaf, index, count, [*proof, leaf], top)
        assert not proof or not merkle.proves(leaf, index, count, proof[:-1], top)


def test_the_published_roots():
    """The test vectors of the certificate transparency project."""
    entries = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    leaves = [merkle.leaf(b"", bytes.fromhex(entry)) for entry in entries]
    assert merkle.root(leaves[:1]).hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert merkle.root(leaves).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


def test_an_inner_node_cannot_pass_for_a_leaf():
    leaves = [merkle.leaf(b"", bytes([number])) for number in range(4)]
    inner = hashlib.sha256(b"\x01" + leaves[0] + leaves[1]).digest()
    right = hashlib.sha256(b"\x01" + leaves[2] + leaves[3]).digest()
    assert merkle.root([inner, right]) == merkle.root(leaves)  # so the record must hold the count
    assert merkle.leaf(b"", leaves[0] + leaves[1]) != inner


# Fingerprints


def test_a_fingerprint_sees_names_types_shapes_and_every_bit():
    one = {"a": torch.arange(6.0), "b": torch.tensor(3)}
    flipped = copy.deepcopy(one)
    flipped["a"].view(torch.uint8)[7] ^= 1
    others = [
        flipped,
        {"a": one["a"].reshape(2, 3), "b": one["b"]},
        {"a": one["a"].double(), "b": one["b"]},
        {"c": one["a"], "b": one["b"]},
        {"a": one["a"]},
    ]
    assert len({fingerprint(tensors) for tensors in [one, *others]}) == 6
    strided = torch.arange(12.0).reshape(6, 2)[:, 0] / 2
    assert fingerprint({"b": one["b"], "a": strided}) == fingerprint(one)
    for kind in (torch.bfloat16, torch.bool, torch.uint8):
        assert len(fingerprint({"x": torch.zeros(3, dtype=kind), "empty": torch.zeros(0, dtype=kind)})) == 64


def test_a_sample_is_its_inputs_however_the_data_comes():
    data = make_data()
    split = make_split(data)
    found = sample_tensors(split, 3)
    assert list(found) == ["inputs"]
    assert torch.equal(found["inputs"], data[0][3])
    mapping = make_split({"ids": data[0], "mask": data[0] > 0, "labels": data[1]})
    assert sorted(sample_tensors(mapping, 3)) == ["ids", "mask"]

    class Noisy(Dataset):
        def __len__(self):
            return 60

        def __getitem__(self, index):
            return data[0][index] + torch.rand(5), data[1][index]

    noisy = make_split(Noisy())
    assert content_digest(noisy, 3, None) == content_digest(noisy, 3, None) != content_digest(noisy, 4, None)


# The record of a run


def test_a_record_says_what_was_done(run):
    record = run.record
    assert (record["format"], record["version"]) == ("unweave-record", 2)
    assert record["request"] == {"id": "2031-17", "text": "Ümit's eight points by mail"}
    assert record["model"]["before"] == fingerprint(run.model.state_dict())
    assert record["model"]["after"] == fingerprint(run.result.model.state_dict())
    assert (record["split"]["forget"], record["forget"]["count"], record["seeds"]["run"]) == (8, 8, 5)
    assert record["configuration"]["settings"]["stage1_learning_rate"] == 1e-2
    assert "split" not in record["configuration"]
    assert run.exact["scores"] == json.loads(json.dumps(run.result.scores.to_dict()))
    assert record["software"]["unweave"]
    assert record["software"]["torch"] == torch.__version__
    assert record["hardware"]["kind"] == "cpu"
    begun, finished = (datetime.fromisoformat(record["times"][name]) for name in ("begun", "finished"))
    assert begun.utcoffset().total_seconds() == 0
    assert begun <= finished
    assert any("privacy guarantee" in limit or "upper bound" in limit for limit in record["stated_limits"])
    assert any("turned off" in limit for limit in record["stated_limits"])
    intervals = [row for row in run.exact["scores"]["metrics"] if row["metric"] == "accuracy" and row["subset"]]
    assert all({"low", "high", "before"} <= set(row) for row in intervals)
    kept = lambda phase: model_after(run.folder / "one", make_model(), phase)  # noqa: E731
    certificate = certificate_of(record["configuration"], kept)
    again = evaluate(run.result.model, run.split, certificate=certificate, compute=Compute("cpu"))
    assert run.exact["certificate"]["bound"] == again.metric("forget_bound", "train", "forget").value
    assert record["certificate"]["conditions"]["alpha"] == 0.5


def test_everything_holds(run):
    record, weights = run.record, run.result.model.state_dict()
    checks = [
        check_content(record),
        check_signature(record),
        check_signature(record, run.public),
        check_model(record, weights),
        check_model(record, safetensors.torch.load_file(run.folder / "one" / "model.safetensors")),
        check_original(record, run.model.state_dict()),
        check_split(record, run.split, run.proofs),
        check_forget(record, run.split, run.proofs),
        check_exact(record, run.exact),
        check_scores(run.whole, evaluate(run.result.model, run.split, run.split, compute=Compute("cpu"))),
    ]
    assert [check for check in checks if not check.holds] == []
    assert "all" in checks[-1].words


@pytest.mark.parametrize("section", ["request", "times", "model", "forget", "scores", "certificate", "stated_limits"])
def test_a_changed_section_is_named(run, section):
    record = copy.deepcopy(run.record)
    entry = record[section]
    if isinstance(entry, list):
        entry.pop()
    else:
        entry[next(iter(entry))] = "0" * 64
    found = check_content(record)
    assert found.holds is False
    assert f"the section {section} does not match" in found.words
    assert not check_signature(record).holds


@hypothesis_settings(max_examples=150, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_never_passes(run, place, bit):
    content = bytearray(run.file.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    try:
        record = require_record(json.loads(content.decode()), "it")
        checks = [check_content(record), check_signature(record, run.public)]
    except (UsageError, ValueError):
        return
    if all(check.holds for check in checks):  # the same number or digits, written in another way
        record["signature"]["value"] = record["signature"]["value"].lower()
        assert record == run.record


def test_a_flipped_bit_in_the_weights_is_named(run, tmp_path):
    content = bytearray((run.folder / "one" / "model.safetensors").read_bytes())
    content[-3] ^= 16
    (tmp_path / "model.safetensors").write_bytes(content)
    found = check_model(run.record, safetensors.torch.load_file(tmp_path / "model.safetensors"))
    assert found.holds is False
    (name,) = [name for name in run.record["model"]["tensors"] if f"{name} differ" in found.words]
    assert name in run.model.state_dict()
    assert check_original(run.record, run.result.model.state_dict()).holds is False


def test_other_data_other_splits_and_other_models_are_noticed(run):
    inputs, labels = run.data
    changed = inputs.clone()
    changed[3, 0] += 1e-3
    found = check_forget(run.record, make_split((changed, labels)), run.proofs)
    assert (found.holds, "first: sample 3" in found.words) == (False, True)
    other = Split(run.data, forget=range(1, 9), adjacent=[0, *range(9, 20)], remote=range(20, 60))
    assert check_split(run.record, other, run.proofs).holds is False
    assert check_forget(run.record, other, run.proofs).holds is False
    wrong = check_scores(run.whole, evaluate(make_model(3), run.split, run.split, compute=Compute("cpu")))
    assert wrong.holds is False
    assert "furthest: " in wrong.words


def test_only_the_right_key_counts(run, tmp_path):
    stranger = load_public(generate(tmp_path / "stranger"))
    found = check_signature(run.record, stranger)
    assert (found.holds, "not the one given" in found.words) == (False, True)
    unsigned = {name: entry for name, entry in run.record.items() if name != "signature"}
    assert check_signature(unsigned).holds is None
    assert check_signature(unsigned, run.public).holds is False
    assert check_content(unsigned).holds
    forged = copy.deepcopy(run.record)
    forged["request"]["text"] = "nothing"
    forged["sections"]["request"] = sha256(canonical(forged["request"]))
    forged["hash"] = sha256(canonical({k: v for k, v in forged.items() if k not in ("hash", "signature")}))
    assert check_content(forged).holds
    assert check_signature(forged).holds is False


def test_private_files_are_private(run):
    for file in (run.key, run.folder / "one" / "forget-proofs.json"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(UsageError, match="never overwritten"):
        generate(run.key)


# One sample


def test_the_holder_of_a_sample_can_check_and_learns_no_other(run, tmp_path):
    for row in range(8):
        proof = prove(run.record, run.proofs, row)
        assert is_included(run.record, proof, content_digest(run.split, row, None))
        assert not is_included(run.record, proof, content_digest(run.split, (row + 1) % 8, None))
        shown = json.dumps(proof)
        others = [sample for sample in run.proofs["samples"] if sample["row"] != row]
        assert not any(sample["salt"] in shown for sample in others)
        # The proof shows leaves, but without their salts nobody can match them to samples.
        for other in others:
            digest = content_digest(run.split, other["row"], None)
            assert merkle.leaf(b"", digest).hex() not in shown
    with pytest.raises(UsageError, match="Sample 20 was not in this request"):
        prove(run.record, run.proofs, 20)
    np.save(tmp_path / "mine.npy", run.data[0][2].numpy())
    safetensors.torch.save_file({"inputs": run.data[0][2]}, tmp_path / "mine.safetensors")
    for name in ("mine.npy", "mine.safetensors"):
        digest = digest_of_file(tmp_path / name, "tensors")
        assert is_included(run.record, prove(run.record, run.proofs, 2), digest)


def test_the_same_request_twice_has_two_roots(run):
    first, second = ForgetSet.of(run.split), ForgetSet.of(run.split)
    assert first.root != second.root
    assert ForgetSet.of(run.split, salts=first.salts).root == first.root


def test_a_sample_can_be_the_bytes_of_its_file(run, tmp_path):
    files = {row: f"photograph {row}".encode() for row in range(60)}
    request = Request(id="bytes", content=files.__getitem__)
    unlearn_on_record(run.model, run.split, "ga", out=tmp_path / "run", request=request, compute=Compute("cpu"))
    record = read_record(tmp_path / "run" / "record.json")
    proof = prove(record, read_proofs(tmp_path / "run" / "forget-proofs.json"), 4)
    (tmp_path / "4.jpeg").write_bytes(files[4])
    assert is_included(record, proof, digest_of_file(tmp_path / "4.jpeg", record["forget"]["content"]))
    with pytest.raises(UsageError, match="must return bytes"):
        ForgetSet.of(run.split, content=lambda row: "text")


# Chains


@pytest.fixture(scope="module")
def chain(run):
    """A second request that continues the first."""
    split = Split(run.data, forget=range(40, 45), adjacent=range(45, 60), remote=range(8, 40))
    request = Request(id="2031-18", previous=run.file, key=run.key)
    model = run.result.model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unlearn_on_record(
            model, split, "two-stage", profile="released", out=run.folder / "two", test=split, request=request, **FAST
        )
    return read_record(run.folder / "two" / "record.json")


def test_records_chain(run, chain):
    assert chain["previous"] == {"hash": run.record["hash"], "id": "2031-17"}
    unbroken, again = check_chain(chain, [run.record], run.public)
    assert unbroken.holds
    assert again.holds is None  # it asks for the same samples, which only the owner of the proofs can see
    assert "asked for again, or learned again" in again.words
    (open_end,) = check_chain(chain, [], None)
    assert (open_end.holds, "2031-18 continues 2031-17" in open_end.words) == (None, True)
    (wrong,) = check_chain(run.record, [chain], None)[:1]
    assert wrong.holds is False
    assert "continues another record" in wrong.words
    damaged = copy.deepcopy(run.record) | {"request": {"id": "2031-17", "text": "x"}}
    (found,) = check_chain(chain, [damaged], None)
    assert (found.holds, "section request" in found.words) == (False, True)
    swapped = copy.deepcopy(chain)
    swapped["model"]["before"] = "0" * 64
    assert "did not begin with the model that this one produced" in check_chain(swapped, [run.record], None)[0].words


def test_drift_adds_up_over_a_chain(run, chain):
    assert [row["id"] for row in chain["drift"]] == ["2031-17", "2031-18"]
    assert chain["drift"][0] == run.record["drift"][0]
    exact = read_exact(run.folder / "two" / "exact-scores.json")["drift"]
    chain = {"drift": [run.exact["drift"], exact]}
    text = describe_drift(chain["drift"])
    change = sum(row["train"]["remote"]["after"] - row["train"]["remote"]["before"] for row in chain["drift"])
    assert f"{100 * change:+.1f}" in text.splitlines()[-1]


def test_drift_of_records_in_another_order_is_refused(run, chain):
    assert [row["id"] for row in drift_rows([run.record, chain])] == ["2031-17", "2031-18"]
    with pytest.raises(UsageError, match="2031-17 does not continue 2031-18"):
        drift_rows([chain, run.record])


def test_a_chain_begins_where_the_last_request_ended(run, tmp_path):
    with pytest.raises(UsageError, match="is about another model"):
        unlearn_on_record(
            run.model,
            run.split,
            "two-stage",
            profile="released",
            out=tmp_path / "x",
            request=Request(id="again", previous=run.file),
            compute=Compute("cpu"),
        )
    assert list(tmp_path.iterdir()) == []


# Wrong usage


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"id": ""}, "must be a string that is not empty"),
        ({"id": 7}, "must be a string that is not empty"),
        ({"id": "\ud800"}, "without control characters"),
        ({"id": "2031-17\nok    signature: ours"}, r"id holds '\\n' at position 7"),
        ({"id": "x", "text": "\x1b[2J"}, r"text holds '\\x1b' at position 0"),
        ({"id": "x", "text": "\u202eforget"}, "text holds .* at position 0"),
        ({"id": "x", "text": "y" * 200_000}, "at most"),
        ({"id": "x", "key": "nowhere.pem"}, "cannot be read"),
        ({"id": "x", "key": "public"}, "cannot be read as a PEM key"),
        ({"id": "x", "previous": "nowhere.json"}, "cannot be read"),
        ({"id": "x", "previous": "damaged"}, "does not match its own hash"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_done(run, tmp_path, request_, message):
    damaged = tmp_path / "damaged.json"
    damaged.write_text(json.dumps(run.record | {"seeds": {"run": 6, "evaluation": 0}}))
    places = {"public": run.folder / "key.pub", "damaged": damaged}
    request_ = {name: places.get(value, value) for name, value in request_.items()}
    with pytest.raises(UsageError, match=message):
        unlearn_on_record(
            run.model,
            run.split,
            "two-stage",
            profile="released",
            out=tmp_path / "run",
            request=request_,
            compute=Compute("cpu"),
        )
    assert [path.name for path in tmp_path.iterdir()] == ["damaged.json"]


def test_a_request_is_about_samples(run, tmp_path):
    nothing = Split(run.data, [], range(20), allow_empty=True)
    with pytest.raises(UsageError, match="no forget samples, but a request needs at least one"):
        unlearn_on_record(run.model, nothing, "ft", out=tmp_path / "run", request={"id": "9"}, compute=Compute("cpu"))
    assert list(tmp_path.iterdir()) == []


def test_a_record_needs_a_folder_and_a_signature_its_package(run, monkeypatch):
    with pytest.raises(UsageError, match="Pass out= to unlearn"):
        unlearn_on_record(
            run.model, run.split, "two-stage", profile="released", request={"id": "x"}, compute=Compute("cpu")
        )
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(UsageError, match=r"unweave\[record\]"):
        load_public(run.folder / "key.pub")


def test_a_resumed_run_began_when_it_was_first_started(run, tmp_path, monkeypatch):
    from unweave.methods.two_stage import Stage2

    request = {"id": "2031-19"}
    with monkeypatch.context() as patch:
        patch.setattr(Stage2, "step", lambda self, number: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            unlearn_on_record(
                run.model, run.split, "two-stage", profile="released", out=tmp_path / "run", request=request, **FAST
            )
    file = tmp_path / "run.unfinished" / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"begun": "2001-02-03T04:05:06+00:00"}))
    unlearn_on_record(
        run.model,
        run.split,
        "two-stage",
        profile="released",
        out=tmp_path / "run",
        request=request,
        resume=True,
        **FAST,
    )
    assert read_record(tmp_path / "run" / "record.json")["times"]["begun"] == "2001-02-03T04:05:06+00:00"


def test_a_method_without_stages_has_no_bound_and_says_so(run, tmp_path):
    unlearn_on_record(run.model, run.split, "ft", out=tmp_path / "run", request={"id": "x"}, compute=Compute("cpu"))
    record = read_record(tmp_path / "run" / "record.json")
    assert record["certificate"]["bound"] is None
    assert any("upper bound" in limit for limit in record["stated_limits"])
    assert any("No test data" in limit for limit in record["stated_limits"])


def test_the_bound_of_the_method_unweave_holds(run, tmp_path):
    unlearn_on_record(
        run.model, run.split, "unweave", out=tmp_path / "run", guard=None, request={"id": "x"}, compute=Compute("cpu")
    )
    certificate = read_exact(tmp_path / "run" / "exact-scores.json")["certificate"]
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())["train"]["forget"]
    assert scores["accuracy"] <= certificate["bound"] <= 1
    assert certificate["conditions"]["target"] == 10


# Fuzz

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def paths(content, before=()):
    found = [before] if before else []
    entries = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, entry in entries:
        found += paths(entry, (*before, key))
    return found


@hypothesis_settings(max_examples=200, deadline=None)
@given(choice=st.data(), value=VALUES | st.sampled_from([10**400, -(10**30), "\x1b[2J", "\ud800", 1e308]))
def test_an_odd_record_never_ends_in_a_traceback(run, choice, value):
    record = copy.deepcopy(choice.draw(st.sampled_from([run.record, run.whole | {"version": 1}])))
    del record["scores"]["train"], record["model"]["tensors"], record["scores"]["metrics"][3:]
    record["model"]["tensors"] = {}
    path = choice.draw(st.sampled_from(paths(record)))
    target = record
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    try:
        require_record(record, "it")
        check_content(record)
        check_signature(record, run.public)
        check_chain(record, [run.record], run.public)
        check_counts(record)
        check_times(record)
        check_model(record, run.model.state_dict())
        check_scores(record, run.result.scores)
        text = describe(record) + describe_drift(record["drift"])
        text.encode()
        assert "\x1b" not in text
    except (UsageError, RunError):
        pass


# The command line


@pytest.fixture
def command(monkeypatch, capsys):
    from unweave.cli import main

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["unweave", "record", *map(str, words)])
        with pytest.raises(SystemExit) as ended, warnings.catch_warnings():
            main()
        shown = capsys.readouterr()
        return ended.value.code, shown.out, shown.err

    return call


def test_the_commands(run, chain, command, tmp_path, monkeypatch):
    yours = tmp_path / "yours.py"
    yours.write_text(
        "from tests.helpers.records import *\ndef all(): s = make_split(make_data()); return make_model(), s, s\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    folder, key = run.folder / "one", run.folder / "key.pub"
    code, out, _ = command("show", folder, run.folder / "two")
    assert code == 0
    for words in ("Deletion record 2031-17", "Ümit's eight points", "certificate", "Drift in points", "2031-18"):
        assert words in out
    code, out, err = command(
        "verify", folder, "--public-key", key, "--model", folder, "--from", "yours:all", "--recompute"
    )
    assert code == 0, err
    for words in ("content", "signature", "model after", "split", "forget samples", "scores"):
        assert f"ok    {words}: " in out
    code, out, _ = command("verify", run.folder / "two", "--previous", folder, "--json")
    assert (code, json.loads(out)["holds"]) == (0, True)
    code, out, err = command("verify", folder, "--model", run.folder / "two")
    assert code == 1
    assert "FAIL  model after" in out
    assert "does not hold: model after" in err
    code, _, err = command("verify", folder, "--model", key)
    assert (code, "not a safetensors file" in err) == (1, True)
    assert command("prove", folder, "--sample", "2", "--out", tmp_path / "proof.json")[0] == 0
    np.save(tmp_path / "mine.npy", run.data[0][2].numpy())
    np.save(tmp_path / "other.npy", run.data[0][3].numpy())
    assert "was among the 8" in command("check-sample", folder, tmp_path / "proof.json", tmp_path / "mine.npy")[1]
    code, _, err = command("check-sample", folder, tmp_path / "proof.json", tmp_path / "other.npy")
    assert (code, "is not among" in err) == (1, True)
    assert command("keygen", tmp_path / "new")[0] == 0
    assert command("keygen", tmp_path / "new")[0] == 2
    code, _, err = command("show", tmp_path / "proof.json")
    assert (code, "is not a record" in err) == (2, True)


def test_a_folder_is_verified_with_what_it_has(command, tmp_path):
    benchmark = find_benchmark("digits")
    task, folder = benchmark.load(), tmp_path / "run"
    train = Split(task.train.samples, range(12), range(12, 30), range(30, 60))
    common = {"compute": Compute("cpu"), "callbacks": [Note(**benchmark.about(task))]}
    common["test"] = Split(task.test.samples, range(12), range(12, 30), range(30, 60))
    unlearn_on_record(benchmark.initial(0), train, "original", out=folder, request=Request(id="x"), **common)
    code, out, err = command("verify", folder, "--recompute", "--device", "cpu")
    assert code == 0, err
    for words in ("model after", "split", "forget samples", "scores"):
        assert f"ok    {words}: " in out
    code, _, err = command("verify", folder, "--benchmark", "digits", "--option", "forget=3")
    assert (code, "which differs from that of --option forget=3" in " ".join(err.split())) == (2, True)
    config = configuration(folder)  # run.json is not signed
    write_configuration(folder, config | {"settings": {"alpha": 0.1, "mean_sign": 1}})
    code, out, _ = command("verify", folder, "--recompute", "--device", "cpu")
    assert (code, "FAIL  run.json: differs from the record: settings" in out) == (1, True)
    write_configuration(folder, config)
    (folder / "model.safetensors").write_bytes(b"garbage")
    code, out, err = command("verify", folder, "--recompute")
    assert (code, "FAIL  model after: " in out) == (1, True)
    (folder / "model.safetensors").unlink()
    code, _, err = command("verify", folder, "--recompute")
    assert (code, "Give it with --model." in " ".join(err.split())) == (2, True)
    code, out, err = command("verify", folder, "--benchmark", "digits")  # this needs no model
    assert code == 0, err
    for words in ("split", "forget samples"):
        assert f"ok    {words}: " in out


def test_what_a_stranger_wrote_does_not_reach_the_terminal(run):
    record = copy.deepcopy(run.record)
    record["request"]["text"] = "\x1b]0;title\x07\x1b[2J"
    assert "\x1b" not in describe(record)
    assert "\x07" not in describe(record)


def test_the_schema_is_documented():
    from unweave.record.schema import NAMES

    text = (ROOT / "docs" / "record.md").read_text()
    for name in [*NAMES, "sections", "hash", "signature"]:
        assert f"`{name}`" in text


def test_the_documented_check_needs_nothing_of_ours(run, monkeypatch):
    text = (ROOT / "docs" / "record.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert "unweave" not in block
    monkeypatch.chdir(run.folder / "one")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        exec(compile(block, "record.md", "exec"), {})


def test_between_the_stages_is_what_the_audit_knows(run):
    def found(model, **settings):
        config = {"method": "two-stage", "settings": settings}
        return certificate_of(config, lambda phase: model_after(run.folder / "one", model, phase))

    assert isinstance(found(make_model(), alpha=0.5, mean_sign=-1), BeforeStage2)
    assert found(make_model()) is None
    with pytest.raises(UsageError, match="does not fit"):
        found(nn.Linear(2, 2), alpha=0.5, mean_sign=-1)
