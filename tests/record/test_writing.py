"""A record that is written after the run, at once or later from its folder, is the one that the run would have had."""

from __future__ import annotations

import copy
import stat
import warnings

import pytest
import torch
from torch import nn

from tests.helpers.calling import unlearn_on_record
from tests.helpers.folders import configuration
from tests.helpers.records import FAST, make_data, make_model, make_split
from unweave import Compute, Request, RunError, Split, UsageError, unlearn
from unweave.evaluation import evaluate
from unweave.record import (
    FinishedRun,
    certificate_of,
    check_chain,
    check_content,
    check_exact,
    check_forget,
    check_scores,
    check_signature,
    check_split,
    generate,
    load_public,
    model_after,
    read_exact,
    read_proofs,
    read_record,
    with_exact,
    write_record,
    writing,
)

CPU = torch.device("cpu")
BEGUN = "2031-05-04T09:00:00+00:00"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("writing"))


class Made:
    """The same run twice: with a request, and without."""

    def __init__(self, folder):
        self.folder, self.data, self.original = folder, make_data(), make_model().eval()
        self.split = make_split(self.data)
        self.request = Request(id="2031-17", text="Ümit's eight points")
        self.unlearn("with", request=self.request)
        self.result = self.unlearn("without")
        self.record = read_record(folder / "with" / "record.json")
        self.exact = read_exact(folder / "with" / "exact-scores.json")

    def unlearn(self, name, **more):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            common = {**FAST, "stage1_learning_rate": 0.1, "stage1_epochs": 20}
            run = unlearn_on_record if more else unlearn
            return run(
                self.original,
                self.split,
                "two-stage",
                out=self.folder / name,
                test=self.split,
                seed=5,
                **common,
                **more,
            )

    def between(self):
        folder = self.folder / "without"
        return certificate_of(self.record["configuration"], lambda phase: model_after(folder, make_model(), phase))

    def at_once(self):
        config = configuration(self.folder / "without")
        parts = {"model": self.result.model, "split": self.split, "test": self.split, "certificate": self.between()}
        scores, cost = self.result.scores, self.result.cost
        return FinishedRun.here(config=config, scores=scores, cost=cost, begun=BEGUN, device=CPU, **parts)

    def later(self, **more):
        known = {"begun": BEGUN, "device": CPU, "certificate": self.between()}
        parts = {"model": self.result.model, "split": self.split, "test": self.split}
        return FinishedRun.read(self.folder / "without", **{**parts, **known, **more})


@pytest.fixture
def clean(made):
    """The folder of the run without a record, before and after each test."""
    folder = made.folder / "without"
    known = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    yield folder
    for path in folder.iterdir():
        if path.is_file() and path not in known:
            path.unlink()
    assert known == {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


ALIKE = ("format", "version", "previous", "model", "forget", "seeds", "certificate", "drift")


def without_bound(scores):
    """Return scores without the bound, which a run measures among its scores only if it has a request."""
    scores["metrics"] = [row for row in scores["metrics"] if not row["metric"].startswith("forget_bound")]
    scores["train"]["forget"] = {k: v for k, v in scores["train"]["forget"].items() if not k.startswith("forget_bound")}
    return scores


@pytest.mark.parametrize("when", ["at_once", "later"])
def test_it_is_the_record_that_the_run_would_have_had(made, clean, when):
    path = write_record(clean, made.request, getattr(made, when)(), original=made.original)
    record = read_record(path)
    again = evaluate(made.result.model, made.split, made.split, certificate=made.between(), compute=Compute("cpu"))
    proofs, exact = read_proofs(clean / "forget-proofs.json"), read_exact(clean / "exact-scores.json")
    whole = with_exact(record, exact)
    for check in (
        check_content(record),
        check_split(record, made.split, proofs),
        check_forget(record, made.split, proofs),
        check_exact(record, exact),
        check_scores(whole, again),
    ):
        assert check.holds, check
    forged = whole | {"certificate": whole["certificate"] | {"bound": 0.1}}
    assert "the certificate's bound" in check_scores(forged, again).words
    for name in ALIKE:
        entry, expected = (dict(one[name]) if name == "forget" else one[name] for one in (record, made.record))
        if name == "forget":
            assert entry.pop("root") != expected.pop("root")  # each has salts of its own
        assert entry == expected, name
    assert exact["certificate"]["bound"] is not None
    assert (exact["certificate"], exact["drift"]) == (made.exact["certificate"], made.exact["drift"])
    assert without_bound(exact["scores"]) == without_bound(copy.deepcopy(made.exact["scores"]))
    assert record["configuration"] == {k: v for k, v in made.record["configuration"].items() if k != "request"}
    assert record["times"]["begun"] == BEGUN
    if when == "at_once":
        assert (record["software"], record["hardware"]) == (made.record["software"], made.record["hardware"])
        assert record["stated_limits"] == made.record["stated_limits"]


def test_its_files_are_those_of_a_run_with_a_request(made, clean):
    write_record(clean, made.request, made.later(), original=made.original)
    there, expected = ({path.name for path in folder.iterdir()} for folder in (clean, made.folder / "with"))
    assert there == expected
    for name in ("forget-proofs.json", "exact-scores.json", "split.json", "test-split.json", "run.json", "scores.json"):
        assert stat.S_IMODE((clean / name).stat().st_mode) == 0o600
    assert Split.load(clean / "split.json", made.data) == made.split


def test_what_the_folder_does_not_say_is_named(made, clean):
    path = write_record(clean, made.request, made.later(begun="unknown"), original=made.original)
    record = read_record(path)
    assert record["times"]["begun"] == record["times"]["finished"] == record["hardware"]["device"] == "unknown"
    (limit,) = [words for words in record["stated_limits"] if "Not known" in words]
    for words in ("when it began", "when it finished", "the version of unweave", "the hardware"):
        assert words in limit
    path.unlink()
    known = {"finished": BEGUN, "software": {"unweave": "1"}, "hardware": {"device": "a calculator"}}
    record = read_record(write_record(clean, made.request, made.later(**known), original=made.original))
    assert not [words for words in record["stated_limits"] if "Not known" in words]
    assert record["hardware"]["device"] == "a calculator"


def test_a_key_and_the_record_before_can_be_given_with_it(made, clean, tmp_path):
    public = load_public(generate(tmp_path / "key"))
    unlearn_on_record(
        made.original, made.split, "original", out=tmp_path / "0", request={"id": "0", "key": tmp_path / "key"}
    )
    before = tmp_path / "0" / "record.json"
    path = write_record(
        clean, made.request, made.later(), original=made.original, key=tmp_path / "key", previous=before
    )
    record = read_record(path)
    assert check_signature(record, public).holds
    assert [row["id"] for row in record["drift"]] == ["0", "2031-17"]
    assert check_chain(record, [read_record(before)], None)[0].holds


def test_a_crash_in_between_loses_nothing(made, clean, monkeypatch):
    kept = writing.write_whole

    def killed(path, *content, **more):
        if path.name == "record.json":
            raise KeyboardInterrupt
        kept(path, *content, **more)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(writing, "write_whole", killed)
        write_record(clean, made.request, made.later(), original=made.original)
    assert not (clean / "record.json").exists()
    left = read_proofs(clean / "forget-proofs.json")
    record = read_record(write_record(clean, made.request, made.later(), original=made.original))
    assert read_proofs(clean / "forget-proofs.json") == left
    assert record["forget"]["root"] == left["root"]
    assert check_forget(record, made.split, left).holds
    assert check_split(record, made.split, left).holds


def test_a_full_disk_leaves_no_half_of_a_record(made, clean, monkeypatch):
    def full(path, *_, **__):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(writing, "write_whole", full)
    with pytest.raises(RunError, match=r"The record cannot be written to .*No space left"):
        write_record(clean, made.request, made.later(), original=made.original)


def other_split(made):
    return Split(made.data, forget=range(1, 9), adjacent=[0, *range(9, 20)], remote=range(20, 60))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda made: {"original": make_model(3)}, "began with another model than original="),
        (lambda made: {"split": other_split(made)}, "unlearned another split than the one given"),
        (lambda made: {"test": None}, r"was scored on test data, but no test split was given"),
        (lambda made: {"test": Split(made.data, range(3), range(3, 9))}, "was scored on another test split"),
        (lambda made: {"model": make_model(3).eval()}, "is not the one in .*: model after does not match"),
        (lambda made: {"request": Request(id="x", key="nowhere.pem")}, "cannot be read"),
        (lambda made: {"request": Request(id="x", previous="nowhere.json")}, "cannot be read"),
        (lambda made: {"config": {"seed": 6}}, "is not the one in .*: run.json differs from the record: seed"),
        (lambda made: {"config": {"judged_on": "another"}}, "was scored on another split than it unlearned"),
    ],
)
def test_parts_of_another_run_are_refused(made, clean, change, message):
    there = {path.name for path in clean.iterdir()}
    change = change(made)
    original, request = change.pop("original", made.original), change.pop("request", made.request)
    config = change.pop("config", {})
    run = made.later(**change)
    run.config.update(config)
    with pytest.raises(UsageError, match=message):
        write_record(clean, request, run, original=original)
    assert {path.name for path in clean.iterdir()} == there


def test_a_record_is_never_overwritten(made, clean, tmp_path):
    path = write_record(clean, made.request, made.later(), original=made.original)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="A record is never overwritten"):
        write_record(clean, made.request, made.later(), original=made.original)
    assert path.read_bytes() == before
    path.unlink()
    other = Request(id="other", content=lambda row: b"another content")
    proofs = (clean / "forget-proofs.json").read_bytes()
    with pytest.raises(UsageError, match="proves other samples than those of this request"):
        write_record(clean, other, made.later(), original=made.original)
    assert (clean / "forget-proofs.json").read_bytes() == proofs
    with pytest.raises(UsageError, match=r"has no run\.json"):
        write_record(tmp_path, made.request, made.later(), original=made.original)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", '{"configuration": []}', "must be an object"),
        ("run.json", "{}", "lacks the entry 'method'"),
        ("scores.json", "{}", "lacks the entry 'schema'"),
        ("scores.json", '{"schema": 1, "metrics": [], "cost": {"seconds": 1}}', "have schema 1"),
        ("scores.json", '{"schema": 2, "metrics": [{"odd": 1}], "cost": {"seconds": 1}}', "lacks the entry 'metric'"),
    ],
)
def test_a_folder_without_a_run_is_refused(made, tmp_path, name, content, message):
    for file in ("run.json", "scores.json"):
        (tmp_path / file).write_bytes((made.folder / "without" / file).read_bytes())
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=message):
        FinishedRun.read(tmp_path, model=nn.Linear(1, 1), split=made.split)
