"""A user's own models, data and losses: what they do is done to them, or refused in words; nothing is lost."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.helpers.calling import unlearn_on_record, unlearn_with
from tests.helpers.tensors import same, weights
from unweave import Compute, OwnLoss, ScoreOn, Split, StopWhen, UsageError, evaluate, unlearn
from unweave.data import Samples, may_cut
from unweave.engine import Phase
from unweave.errors import RunWarning, Stopped
from unweave.evaluation import Look, features
from unweave.evaluation.distances import weight_distance
from unweave.lab.audit import load_subject
from unweave.methods import Method
from unweave.record import DeletionRequest
from unweave.runs import load_weights
from unweave.tasks import CLASSIFICATION

PARTS = {"forget": range(8), "adjacent": range(8, 20), "remote": range(20, 60)}


def ours(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


# Losses


@pytest.mark.parametrize("method", ["scrub", "delete"])
def test_methods_that_work_on_logits_refuse_another_loss(model, split, method):
    with pytest.raises(UsageError, match=f"{method} works on logits"):
        unlearn(model, split, method, task=OwnLoss(ours))


@pytest.mark.parametrize("loss", [functional.cross_entropy, nn.CrossEntropyLoss, nn.CrossEntropyLoss()])
def test_losses_of_torch_are_refused_in_words(model, split, loss):
    with pytest.raises(UsageError, match="function of \\(model, batch\\)"):
        unlearn(model, split, "ft", task=OwnLoss(loss))


# What else is given


@pytest.mark.parametrize("initial", [nn.Linear(5, 3), "weights"])
def test_initial_is_a_function(model, split, initial):
    with pytest.raises(UsageError, match=r"initial= must be a function|cannot be given as text"):
        unlearn_with(model, split, "retrain", initial=initial)


def test_resuming_needs_a_folder(model, split):
    with pytest.raises(UsageError, match="Name the folder with out="):
        unlearn(model, split, "ft", resume=True)


def test_a_run_without_a_folder_is_stopped_too(model, split):
    asked = []
    with pytest.raises(Stopped, match="nothing is kept"):
        unlearn(
            model,
            split,
            "ft",
            batch_size=8,
            compute=Compute("cpu"),
            callbacks=[StopWhen(lambda: bool(asked.append(1)) or len(asked) == 3)],
        )
    assert len(asked) == 3


def test_a_look_at_other_data_is_refused(model, data):
    one, other = (Split(data, forget=[first], adjacent=[8, 9]) for first in (0, 1))
    with pytest.raises(UsageError, match="was made from other data"):
        evaluate(model, one, look=Look(other))


def test_numbers_of_numpy_are_numbers(model, split):
    result = unlearn(model, split, "ft", learning_rate=np.float32(0.25), epochs=np.int64(1), compute=Compute("cpu"))
    assert result.settings.to_dict()["learning_rate"] == 0.25
    assert type(result.settings.to_dict()["epochs"]) is int


def test_earlier_splits_are_splits(model, split):
    with pytest.raises(UsageError, match="earlier must be made of splits"):
        split.after("first")


def test_a_function_as_reference_returns_a_result(model, split):
    with pytest.raises(UsageError, match="To give a model itself, write reference=model"):
        unlearn(model, split, "unweave", goal="retrain", reference=lambda: model, compute=Compute("cpu"))


# Models


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.other = nn.Linear(5, 3), nn.Linear(5, 4)

    def forward(self, x):
        return self.used(x)


@pytest.mark.parametrize("method", ["ft", "scrub", "salun", "munba", "gdr", "ga", "l1-sparse"])
def test_weights_that_a_task_does_not_use_are_left_alone(data, method):
    model, split = TwoHeads(), Split(data, **PARTS)
    after = unlearn(model, split, method, guard=None, compute=Compute("cpu")).model
    if method == "l1-sparse":  # whose penalty is on every weight
        assert not same(weights(model.other), weights(after.other))
    else:
        assert same(weights(model.other), weights(after.other))
    assert not same(weights(model.used), weights(after.used))


class Counting(nn.Linear):
    def __init__(self):
        super().__init__(5, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + len(x)
        return super().forward(x)


@pytest.mark.filterwarnings("ignore::unweave.errors.RunWarning")
def test_a_model_that_counts_is_left_as_it_was(data, tmp_path):
    model, split = Counting(), Split(data, **PARTS)
    before, buffer = weights(model), model.seen
    unlearn(model, split, "ft", epochs=1, out=tmp_path / "run", test=split, compute=Compute("cpu"))
    evaluate(model, split, compute=Compute("cpu"))
    assert same(before, weights(model))
    assert model.seen is buffer


class Keeping(nn.Linear):
    def forward(self, x):
        self.last = super().forward(x)
        return self.last


def test_a_model_that_cannot_be_copied_is_refused_in_words(data):
    model = Keeping(5, 3)
    model(data[0])
    with pytest.raises(UsageError, match="cannot be copied"):
        unlearn(model, Split(data, **PARTS), "ft")


class Extra(nn.Linear):
    def get_extra_state(self):
        return {"version": 1}

    def set_extra_state(self, state):
        pass


def test_a_state_that_is_no_tensor_is_refused_in_words(data):
    with pytest.raises(UsageError, match="_extra_state, a dict"):
        unlearn(Extra(5, 3), Split(data, **PARTS), "ft")


def test_a_model_without_values_is_refused_in_words(data):
    with pytest.raises(UsageError, match="meta"):
        unlearn(nn.Linear(5, 3, device="meta"), Split(data, **PARTS), "ft")


def test_a_model_that_cannot_be_trained_still_gets_its_other_scores(model, split):
    frozen = model.requires_grad_(False)
    scores = evaluate(frozen, split, split, questions=("membership", "relearn"), resamples=0, compute=Compute("cpu"))
    assert scores.metric("relearn_steps", "train", "forget").value is None
    assert "no trainable parameters" in scores.metric("relearn_steps", "train", "forget").note
    assert scores["train"]["remote"]["samples"] == 40


class Gated(nn.Module):
    """Its logits come of a bare parameter; a gate before it happens to have as many outputs."""

    def __init__(self):
        super().__init__()
        self.gate, self.head = nn.Linear(5, 3), nn.Parameter(torch.randn(3, 3))

    def forward(self, x):
        return torch.sigmoid(self.gate(x)) @ self.head


def test_features_are_what_the_head_receives(data):
    with pytest.raises(UsageError, match="no linear layer whose outputs are its logits"):
        features(Gated(), Samples(data), torch.arange(10), device="cpu")


def test_distances_of_weights_do_not_wrap_around():
    first, second = nn.Module(), nn.Module()
    for model, value in ((first, 0), (second, 1)):
        model.weight = nn.Parameter(torch.full((2,), value, dtype=torch.uint8), requires_grad=False)
    assert weight_distance(first, second) == pytest.approx(2**0.5)


@pytest.mark.parametrize("after", [lambda z: z.log_softmax(1), lambda z: z / 4, lambda z: 5 * torch.tanh(z / 5)])
def test_what_is_done_to_logits_afterwards_does_not_hide_the_head(data, after):
    class Softened(nn.Sequential):
        def forward(self, x):
            return after(super().forward(x))

    model = Softened(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    found = features(model, Samples(data), torch.arange(10), device="cpu")
    assert torch.allclose(found, model[1](model[0](data[0][:10])))


def test_a_scripted_model_can_be_examined(data):
    model = torch.jit.script(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval())
    evaluate(model, Split(data, **PARTS), resamples=0, compute=Compute("cpu"))


class Growing(nn.Linear):
    """Has a table that grows with the longest batch, and remembers how long it is, as rotary embeddings do."""

    def __init__(self):
        super().__init__(5, 3)
        self.register_buffer("table", torch.zeros(2, 3), persistent=False)
        self.length = 2

    def forward(self, x):
        if len(x) > self.length:
            self.table, self.length = torch.zeros(len(x), 3), len(x)
        return super().forward(x) + self.table[: len(x)]


def test_a_table_that_grew_is_not_cut_again(data):
    model, split = Growing(), Split(data, **PARTS)
    first, second = (
        evaluate(model, split, resamples=0, compute=Compute("cpu"))["train"]["remote"]["loss"] for _ in range(2)
    )
    assert first == second


def test_a_state_that_is_no_tensor_does_no_harm_where_nothing_is_kept(data):
    unlearn(Extra(5, 3), Split(data, **PARTS), "ft", epochs=1, guard=None, compute=Compute("cpu"))


# Data


class Flat(nn.Module):
    """Wants all of its tokens, and does not look at the mask."""

    def __init__(self, width=64):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 4), nn.Linear(4 * width, 3)

    def forward(self, input_ids, attention_mask):
        return self.head(self.embedding(input_ids).flatten(1))


class Mean(Flat):
    def __init__(self):
        super().__init__(width=1)

    def forward(self, input_ids, attention_mask):
        return self.head(self.embedding(input_ids).mean(1))


class Masked(Mean):
    def forward(self, input_ids, attention_mask):
        mask = attention_mask[:, :, None].float()
        return self.head((self.embedding(input_ids) * mask).sum(1) / mask.sum(1))


def sentences(model):
    tokens = torch.randint(1, 20, (60, 64))
    mask = (torch.arange(64) < torch.randint(3, 15, (60, 1))).long()
    batch = {"input_ids": tokens * mask, "attention_mask": mask}
    with torch.no_grad():
        return {**batch, "labels": model(**batch).argmax(1)}


def padding_may_be_cut(model, split, run=CLASSIFICATION.tried_outputs):
    return may_cut(split.samples, model, run, split.rows(*PARTS), torch.device("cpu"))


@pytest.mark.parametrize("kept", ["device", "host"])
@pytest.mark.parametrize(("kind", "cut"), [(Flat, False), (Mean, False), (Masked, True)])
def test_padding_is_cut_where_the_model_does_not_need_it(kind, cut, kept):
    torch.manual_seed(0)
    model = kind()
    split = Split(sentences(model), **PARTS)
    split.samples.keep_data = kept
    scores = evaluate(model, split, resamples=0, compute=Compute("cpu"))
    assert {scores["train"][subset]["accuracy"] for subset in PARTS} == {1.0}
    assert padding_may_be_cut(model, split) is cut
    fresh = Split(sentences(model), **PARTS)
    unlearn(model, fresh, "ft", epochs=1, compute=Compute("cpu"))
    assert padding_may_be_cut(model, fresh) is cut
    assert fresh.samples.cut_padding is None, "the user's own choice"


def test_padding_that_a_later_model_needs_stays():
    torch.manual_seed(0)
    first, second = Masked(), Mean()
    split = Split(sentences(second), **PARTS)
    evaluate(first, split, resamples=0, compute=Compute("cpu"))
    scores = evaluate(second, split, resamples=0, compute=Compute("cpu"))
    assert {scores["train"][subset]["accuracy"] for subset in PARTS} == {1.0}


def test_a_loss_of_several_samples_leaves_the_padding():
    def contrastive(model, batch):
        outputs = model(batch["input_ids"], batch["attention_mask"])
        assert len(outputs) > 1
        return functional.cross_entropy(outputs - outputs.mean(0), batch["labels"], reduction="none")

    split = Split(sentences(Masked()), **PARTS)
    unlearn(Masked(), split, "ft", task=OwnLoss(contrastive), epochs=1, guard=None, compute=Compute("cpu"))
    assert not padding_may_be_cut(Masked(), split, OwnLoss(contrastive).tried_outputs)


def test_a_text_beside_the_labels_is_left_out():
    samples = [{"x": torch.zeros(2), "label": "cat", "labels": 1}] * 4
    assert Split(samples, forget=[0], adjacent=[1]).samples.labels().tolist() == [1] * 4


class Faces:
    """A data set in the manner of Hugging Face's, whose collator makes the training labels."""

    def __init__(self):
        self.column_names, self.format = ["x", "label"], {"type": None}

    def select_columns(self, names):
        raise AssertionError("the raw column is not what the model is trained on")

    def __len__(self):
        return 12

    def __getitem__(self, row):
        return {"x": torch.zeros(2), "label": row % 6}


def coarse(samples):
    return {"x": torch.stack([s["x"] for s in samples]), "labels": torch.tensor([s["label"] // 3 for s in samples])}


def test_labels_are_those_that_the_collator_makes():
    split = Split.by_class(Faces(), fine=[row % 6 for row in range(12)], forget=1, collate=coarse)
    assert split.adjacent.tolist() == [0, 2, 6, 8]


def test_only_samples_of_the_split_must_be_finite(data):
    inputs, labels = data[0].clone(), data[1]
    inputs[59] = torch.nan
    without = Split((inputs, labels), forget=range(8), adjacent=range(8, 20), remote=range(20, 59))
    unlearn(nn.Linear(5, 3), without, "ft", epochs=1, compute=Compute("cpu"))
    with pytest.raises(UsageError, match=r"1 samples hold NaN .* sample 59"):
        unlearn(nn.Linear(5, 3), Split((inputs, labels), **PARTS), "ft", epochs=1, compute=Compute("cpu"))


class Mixed(torch.utils.data.Dataset):
    """Images of eight bits, and some of sixteen."""

    def __len__(self):
        return 60

    def __getitem__(self, row):
        return torch.full((5,), row, dtype=torch.uint8 if row < 20 else torch.int32), row % 3


class Floats(nn.Linear):
    def forward(self, x):
        return super().forward(x.float())


def test_samples_may_be_of_several_types():
    result = unlearn(
        Floats(5, 3), Split(Mixed(), **PARTS), "ga", epochs=1, compute=Compute("cpu")
    )  # reads the small ones first
    scores = evaluate(result.model, Split(Mixed(), **PARTS), resamples=0, compute=Compute("cpu"))
    assert scores["train"]["remote"]["samples"] == 40


def test_a_view_that_runs_backwards_is_taken():
    inputs = np.arange(12, dtype=np.float32).reshape(6, 2)[::-1]
    split = Split((inputs, [0, 1, 0, 1, 0, 1]), forget=[0], adjacent=[1])
    assert split.samples.read(torch.tensor([0]))[0].tolist() == [[10.0, 11.0]]


@pytest.mark.parametrize(
    "kind", [list, tuple, np.array, torch.tensor, lambda labels: pd.Series(labels, index=range(9, 3, -1))]
)
def test_labels_come_in_any_column(kind):
    split = Split((torch.zeros(6, 2), kind([0, 1, 0, 1, 0, 1])), forget=[0], adjacent=[2])
    assert len(split.samples) == 6
    assert split.samples.labels().tolist() == [0, 1, 0, 1, 0, 1]
    mapping = Split({"x": torch.zeros(6, 2), "labels": kind([0, 1, 0, 1, 0, 1])}, forget=[0], adjacent=[2])
    assert mapping.samples.labels().tolist() == [0, 1, 0, 1, 0, 1]


def test_texts_as_labels_are_named():
    samples = [{"x": torch.zeros(2), "label": "cat"}] * 4
    with pytest.raises(UsageError, match="Column 'label' holds str"):
        evaluate(nn.Linear(2, 2), Split(samples, forget=[0], adjacent=[1]), compute=Compute("cpu"))


def test_a_condition_says_yes_or_no(data):
    with pytest.raises(UsageError, match="True or False"):
        Split.where(data, forget=lambda sample: sample[0] > 0, adjacent=lambda sample: False)


# Runs


def broken_test(data):
    inputs, labels = data[0].repeat(3, 1), data[1].repeat(3).clone()
    labels[150] = 7  # beyond the few that are tried out first
    return Split((inputs, labels), forget=range(5), adjacent=range(5, 20))


@pytest.mark.filterwarnings("ignore::unweave.errors.RunWarning")
def test_what_was_worked_out_is_not_lost_to_bad_test_data(model, data, split, tmp_path):
    words = {"epochs": 1, "learning_rate": 0.1, "compute": Compute("cpu")}
    with pytest.raises(UsageError, match=r"label 7.*the unlearned weights are in") as caught:
        unlearn(model, split, "ft", out=tmp_path / "run", test=broken_test(data), **words)
    kept = next(tmp_path.rglob("*.safetensors"))
    assert str(kept) in str(caught.value)
    expected = unlearn(model, split, "ft", **words).model
    assert same(weights(load_weights(copy.deepcopy(model), kept)), weights(expected))
    assert not (tmp_path / "run").exists()


def test_contents_that_are_not_there_are_missed_before_any_work(model, split, tmp_path):
    def content(row):
        raise FileNotFoundError(row)

    steps = []
    words = {"out": tmp_path / "run", "request": DeletionRequest(id="r", content=content), "compute": Compute("cpu")}
    with pytest.raises(FileNotFoundError):
        unlearn_on_record(model, split, "ft", callbacks=[StopWhen(lambda: bool(steps.append(1)))], **words)
    assert not steps
    assert not list(tmp_path.iterdir())


def test_a_record_is_of_the_data_that_was_unlearned(model, data, split, tmp_path):
    other = Split((data[0] + 1, data[1]), split.forget, split.adjacent, split.remote)
    with pytest.raises(UsageError, match="was scored on another split than it unlearned"):
        unlearn_on_record(model, split, "ft", request={"id": "r"}, out=tmp_path / "run", callbacks=[ScoreOn(other)])


class Push(Phase):
    """Five steps up the forget loss, or down."""

    guards = ()
    guards_at_end = ("forget",)
    steps = 5

    def __init__(self, name, by):
        self.name, self.by = name, by

    def step(self, number):
        loss = self.bench.losses(self.bench.batches("forget", size=8)[0]).mean()
        self.bench.move(self.bench.gradient([loss]), by=self.by)
        return {"forget_loss": loss.detach()}


def made(called, make_phases):
    class Own(Method):
        name = called

        def phases(self):
            return make_phases()

    return Own


def test_a_resumed_run_gives_the_same_advice(model, split, tmp_path):
    """What was forgotten comes back: the run says what to use instead, also where it was stopped in between."""
    phases = lambda: [Push("forget", 0.2), Push("learn again", -1.0)]  # noqa: E731
    method = made("to and fro", phases)

    def advice(**more):
        with pytest.warns(RunWarning) as said:
            unlearn(model, split, method, compute=Compute("cpu"), **more)
        return [str(one.message) for one in said]

    asked = []
    with pytest.raises(Stopped):
        stop = lambda: bool(asked.append(1)) or len(asked) == 7  # noqa: E731
        unlearn(model, split, method, out=tmp_path / "run", compute=Compute("cpu"), callbacks=[StopWhen(stop)])
    straight = advice(out=tmp_path / "straight")
    assert sum("came back. Use the method adaptive" in one for one in straight) == 1
    assert advice(out=tmp_path / "run", resume=True) == straight


# The command line

MINE = """
import torch
from torch import nn
from unweave import Split, unlearn

def data():
    torch.manual_seed(0)
    return torch.randn(60, 5), torch.arange(60) % 3

def load(first=0):
    torch.manual_seed(1)
    return nn.Linear(5, 3), Split(data(), forget=range(first, first + 8), adjacent=range(10, 20)), None

def other():
    return load(1)
"""


@pytest.mark.filterwarnings("ignore::unweave.errors.RunWarning")
def test_a_run_is_examined_with_what_its_folder_knows(tmp_path, monkeypatch):
    (tmp_path / "own_mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_mine

    model, split, _ = own_mine.load()
    unlearn(model, split, "unweave", epochs=1, least_steps=0, out="run", guard=None, compute=Compute("cpu"))
    own = made("mine", lambda: [Push("up", 0.1)])
    unlearn(model, split, own, out="other", guard=None, compute=Compute("cpu"))
    assert load_subject(tmp_path / "other", source="own_mine:load").method == "original"
    subject = load_subject(tmp_path / "run", source="own_mine:load")
    assert (subject.method, subject.settings["epochs"]) == ("unweave", 1)
    with pytest.raises(UsageError, match="another split than own_mine:other returns"):
        load_subject(tmp_path / "run", source="own_mine:other")


def test_the_installed_command_finds_a_module_beside_it(tmp_path):
    (tmp_path / "own_mine.py").write_text(MINE)
    command = [os.path.join(os.path.dirname(sys.executable), "unweave"), "evaluate", "--from", "own_mine:load"]
    if not os.path.exists(command[0]):
        pytest.skip("the command is not installed beside this Python")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
