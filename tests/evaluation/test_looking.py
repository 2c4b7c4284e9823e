"""Looking at a model changes nothing and depends on nothing but model and data; what cannot work is said early."""

from __future__ import annotations

import copy
import json
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from tests.helpers.calling import unlearn_on_record
from tests.helpers.folders import configuration
from tests.helpers.tensors import same, weights
from unweave import Compute, Note, OwnLoss, Request, Split, StopWhen, UsageError, evaluate, unlearn
from unweave.data import Samples
from unweave.data.padding import trimmed
from unweave.engine import Workbench
from unweave.evaluation import predict
from unweave.storage import write_whole
from unweave.tasks import cross_entropy

CPU = torch.device("cpu")


class Noisy(Dataset):
    """Every reading of some samples is another."""

    def __init__(self, data, *, rows=range(60)):
        self.data, self.rows = data, set(rows)

    def __len__(self):
        return len(self.data[1])

    def __getitem__(self, row):
        noise = torch.randn(5) + random.random() + np.random.rand() if row in self.rows else 0
        return self.data[0][row] + noise, self.data[1][row]


def states():
    return torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()


def test_what_is_seen_of_random_transforms_is_no_matter_of_the_callers_random_numbers(data, model, split, tmp_path):
    noisy = Split(Noisy(data), split.forget, split.adjacent, split.remote)
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        before = states()
        result = unlearn(model, noisy, "ga", epochs=1, out=tmp_path / str(seed), test=noisy, compute=Compute("cpu"))
        seen = evaluate(model, noisy, noisy, compute=Compute("cpu"), resamples=0).to_dict()
        near = str(noisy.entanglement(model, device="cpu", k=3))
        after = states()
        assert torch.equal(before[0], after[0])
        assert before[1:] == after[1:]
        found.append((result.scores.to_dict(), seen, near))
    assert found[0] == found[1]


def test_random_transforms_of_one_subset_are_noticed(data, split):
    samples = Samples(Noisy(data, rows=split.remote))
    samples.keep(split.rows("forget"), CPU)
    assert samples.kept(CPU)
    samples.keep(split.rows("remote"), CPU)
    assert not samples.kept(CPU)
    first, second = (samples.batch(split.rows("remote")[:4], CPU).data[0] for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(samples.batch(split.rows("forget"), CPU).data[0], data[0][split.forget])


class Words(nn.Module):
    """Takes texts, as models with a tokenizer of their own do."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(60, 3)

    def forward(self, texts):
        return self.embed(torch.tensor([int(text) for text in texts]))


def test_a_batch_of_texts_is_read_anew_each_time_and_never_joined():
    data = [(str(row), row % 3) for row in range(60)]
    split = Split(
        data,
        range(8),
        range(8, 20),
        collate=lambda batch: ([text for text, _ in batch], torch.tensor([y for _, y in batch])),
    )
    model = Words()
    whole = predict(model, split.samples, torch.arange(60), device="cpu").logits
    for part in torch.arange(60).split(20):
        assert torch.equal(predict(model, split.samples, part, device="cpu").logits, whole[part])
    bench = Workbench(copy.deepcopy(model), split, device=CPU)
    batches = [bench.batches(subset, size=4)[0] for subset in ("forget", "remote")]
    bench.mode("eval")
    together = bench.losses_together(*batches)
    assert all(torch.equal(losses, bench.losses(batch)) for losses, batch in zip(together, batches, strict=True))


def test_numbers_as_wide_as_the_tokens_are_not_cut():
    tokens = {"input_ids": torch.ones(2, 40), "attention_mask": torch.ones(2, 40), "labels": torch.zeros(2)}
    assert trimmed(tokens, 5)["input_ids"].shape == (2, 16)
    assert trimmed({**tokens, "numbers": torch.rand(2, 40)}, 5)["numbers"].shape == (2, 40)


class Counting(nn.Module):
    """Has a buffer that it does not save, and that training mode changes."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 3)
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, inputs):
        if self.training:
            self.seen += 1
        return self.inner(inputs) * (1 + 0.1 * self.seen)


def test_a_resumed_run_has_the_buffers_that_a_model_does_not_save(split, tmp_path):
    model, values = (
        Counting(),
        {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "guard": None, "compute": Compute("cpu")},
    )
    whole = unlearn(model, split, "ft", **values)
    left = iter(range(99))
    with pytest.raises(Exception, match="can be resumed"):
        unlearn(model, split, "ft", out=tmp_path / "run", callbacks=[StopWhen(lambda: next(left) == 7)], **values)
    resumed = unlearn(model, split, "ft", out=tmp_path / "run", resume=True, **values)
    assert same(weights(whole.model), weights(resumed.model))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_which_small_steps_are_lost_are_refused(model, split, dtype):
    with pytest.raises(UsageError, match=r"which loses small steps. Pass model.float\(\)"):
        unlearn(model.to(dtype), split, "ft", compute=Compute("cpu"))


def doubled(model, batch):
    return 2 * cross_entropy(model, batch)


def squared(model, batch):
    return cross_entropy(model, batch) ** 2


def test_a_run_does_not_resume_with_another_loss(model, split, tmp_path):
    common = {"out": tmp_path / "run", "guard": None, "compute": Compute("cpu")}
    left = iter(range(99))
    with pytest.raises(Exception, match="can be resumed"):
        unlearn(
            model,
            split,
            "two-stage",
            profile="released",
            task=OwnLoss(doubled),
            callbacks=[StopWhen(lambda: next(left) == 1)],
            **common,
        )
    with pytest.raises(UsageError, match="started with different values for loss"):
        unlearn(model, split, "two-stage", profile="released", task=OwnLoss(squared), resume=True, **common)
    unlearn(model, split, "two-stage", profile="released", task=OwnLoss(doubled), resume=True, **common)
    assert configuration(tmp_path / "run")["loss"].endswith("test_looking.doubled")


def test_what_cannot_be_put_on_record_is_said_before_the_work(model, split, data, tmp_path):
    from_floats = Split((data[0], data[1].float()), split.forget, split.adjacent, split.remote)
    common = {"out": tmp_path / "run", "method": "ga", "guard": None, "compute": Compute("cpu")}
    for words, arguments in {
        "one integer per sample": {"split": from_floats},
        "must hold only values that JSON supports": {"split": split, "callbacks": [Note(x=object())]},
        "callbacks must be made of": {"split": split, "callbacks": ["watch"]},
        "seed is -1": {"split": split, "seed": -1},
        "a Split of the training data, not tuple": {"split": data},
        "Limits, a mapping": {"split": split, "guard": 0.02},
        "not float": {"split": split, "task": OwnLoss(lambda model, batch: 1.0)},
    }.items():
        with pytest.raises(UsageError, match=words):
            unlearn(model, **(common | arguments))
        assert list(tmp_path.iterdir()) == []
    for words, request in {"request's id is ''": {"text": "x"}, "a Request, or a mapping": "x"}.items():
        with pytest.raises(UsageError, match=words):
            Request.of(request)
    with pytest.raises(UsageError, match="One of torch's takes"):
        OwnLoss(nn.CrossEntropyLoss(reduction="none"))
    with pytest.raises(UsageError, match="reference must be a retrained"):
        evaluate(model, split, reference="x", compute=Compute("cpu"))


def test_a_loss_of_ones_own_has_a_record_without_a_bound(model, split, tmp_path):
    common = {"guard": None, "target": 1.0, "epochs": 1, "request": {"id": "x"}, "compute": Compute("cpu")}
    unlearn_on_record(model, split, "unweave", out=tmp_path / "run", task=OwnLoss(doubled), **common)
    certificate = json.loads((tmp_path / "run" / "record.json").read_text())["certificate"]
    assert certificate["bound"] is None


def test_who_has_a_private_file_open_before_it_is_written_reads_nothing(tmp_path):
    (tmp_path / "key.partial").write_text("")
    with (tmp_path / "key.partial").open() as stranger:
        write_whole(tmp_path / "key", b"secret", private=True)
        assert stranger.read() == ""


def test_a_finished_run_is_said_to_be_finished(model, split, tmp_path):
    unlearn(model, split, "ga", epochs=1, out=tmp_path / "run", guard=None, compute=Compute("cpu"))
    with pytest.raises(UsageError, match="is finished: there is nothing to resume"):
        unlearn(model, split, "ga", epochs=1, out=tmp_path / "run", guard=None, resume=True, compute=Compute("cpu"))


@pytest.mark.parametrize("labels", [["a", "b"] * 30, np.array(["a", "b"] * 30)])
def test_labels_that_are_words_are_said_to_be(data, labels):
    with pytest.raises(UsageError, match="Labels must be whole numbers"):
        Split((data[0], labels), range(8), range(8, 20))
    assert len(Split((data[0], data[1].tolist()), range(8), range(8, 20)).samples) == 60
    assert len(Split({"x": data[0], "labels": data[1].tolist()}, range(8), range(8, 20)).samples) == 60


def test_what_a_collator_cannot_take_is_said_with_the_columns(model):
    def collate(batch):
        raise ValueError("Unable to create tensor\nmore")

    data = [{"text": "x", "labels": 0}] * 20
    split = Split(data, range(4), range(4, 8), collate=collate)
    with pytest.raises(UsageError, match=r"with the columns text, labels: Unable to create tensor .*remove_columns"):
        unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu"))


def test_odd_arguments_are_said_in_a_sentence(data, split, model):
    wide = nn.Linear(5, 4)
    for words, call in {
        "one class per sample": lambda: Split.by_class(data, fine=3, forget=0),
        "a function of one sample": lambda: Split.where(data, forget=lambda x, y: y == 0, adjacent=lambda x: True),
        "seed is -1": lambda: split.with_noise(remote_to_adjacent=0.1, seed=-1),
        "Leave names out": lambda: split.entanglement(model, groups=["a"] * 60, names=["a"], device="cpu"),
        "resamples is -1, but must be at least 0": lambda: evaluate(model, split, resamples=-1, compute=Compute("cpu")),
        "has 4 classes, but the model has 3": lambda: evaluate(model, split, reference=wide, compute=Compute("cpu")),
    }.items():
        with pytest.raises(UsageError, match=words):
            call()
