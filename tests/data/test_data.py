from __future__ import annotations

import random

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from tests.helpers.tensors import same, weights
from unweave import Compute, OwnLoss, Split, UsageError, evaluate, unlearn
from unweave.data import Samples, labels_of
from unweave.data.samples import READINGS
from unweave.runtime import pick_device

CPU = torch.device("cpu")


class Counted(Dataset):
    """Counts how often each sample is read; can refuse some, and can add noise to all."""

    def __init__(self, data, *, forbidden=(), noise=0.0):
        self.data, self.forbidden, self.noise, self.reads = data, set(forbidden), noise, []

    def __len__(self):
        return len(self.data[1])

    def __getitem__(self, index):
        assert index not in self.forbidden, f"sample {index} was read"
        self.reads.append(index)
        return self.data[0][index] + self.noise * torch.randn(5), self.data[1][index]


def test_a_data_set_that_never_varies_is_read_once(data, split, model):
    counted = Counted(data)
    unlearn(
        model,
        Split(counted, split.forget, split.adjacent, split.remote),
        "two-stage",
        profile="released",
        stage2_epochs=3,
        compute=Compute("cpu"),
    )
    for row in range(READINGS, 60):
        assert counted.reads.count(row) <= 4, "a sample is read to probe, to learn its size, and to keep it"
    assert len(counted.reads) < 60 + 100


def test_kept_and_reread_data_give_the_same_run(data, split, model, monkeypatch):
    runs = []
    for room in (2**30, 0):
        monkeypatch.setattr("unweave.data.samples._room", lambda device, room=room: room)
        counted = Counted(data)
        result = unlearn(
            model,
            Split(counted, split.forget, split.adjacent, split.remote),
            "two-stage",
            profile="released",
            seed=5,
            compute=Compute("cpu"),
        )
        runs.append((list(result.model.parameters()), len(counted.reads)))
    assert all(torch.equal(a, b) for a, b in zip(runs[0][0], runs[1][0], strict=True))
    assert runs[1][1] > 3 * runs[0][1]


def test_random_transforms_are_noticed_and_not_frozen(data, split, model):
    noisy = Counted(data, noise=1.0)
    samples = Samples(noisy)
    assert samples.varies(torch.arange(60))
    samples.keep(torch.arange(60), CPU)
    first, second = samples.batch(torch.arange(4), CPU), samples.batch(torch.arange(4), CPU)
    assert not torch.equal(first.data[0], second.data[0])
    result = unlearn(
        model,
        Split(noisy, split.forget, split.adjacent, split.remote),
        "two-stage",
        profile="released",
        stage2_epochs=2,
        compute=Compute("cpu"),
    )
    # Reference and current losses see the same noisy inputs, so the distance still starts at zero.
    assert result.history.column("squared_wasserstein")[0] == 0


def test_probing_leaves_the_global_generator_alone(data):
    before = torch.random.get_rng_state()
    Samples(Counted(data, noise=1.0)).varies(torch.arange(60))
    assert torch.equal(before, torch.random.get_rng_state())


class Flipped(Dataset):
    """Images that are mirrored now and then, by Python's own random numbers."""

    def __len__(self):
        return 40

    def __getitem__(self, row):
        image = torch.tensor([float(row), -1.0])
        return image.flip(0) if random.random() < 0.3 else image, row % 3


def test_whether_samples_vary_depends_on_the_data_alone():
    """Not on where the caller's random numbers stand, nor on how few samples are looked at."""
    for seed in range(20):
        random.seed(seed)
        before = random.getstate()
        assert Samples(Flipped()).varies(torch.tensor([7]))
        assert random.getstate() == before


def test_a_method_reads_only_what_it_needs(data, split, model):
    guarded = Counted(data, forbidden=split.forget.tolist())
    unlearn(
        model, Split(guarded, split.forget, split.adjacent, split.remote), method="ft", epochs=1, compute=Compute("cpu")
    )
    guarded = Counted(data, forbidden=[*split.adjacent.tolist(), *split.remote.tolist()])
    unlearn(
        model,
        Split(guarded, split.forget, split.adjacent, split.remote),
        method="ga",
        epochs=1,
        guard=None,
        compute=Compute("cpu"),
    )


def test_labels_are_read_without_decoding_hugging_face_inputs():
    datasets = pytest.importorskip("datasets", reason="the datasets extra is not installed")
    made = datasets.Dataset.from_dict({"x": [[1.0], [2.0]], "label": [1, 0]}).with_format("torch")
    assert Samples(made).labels().tolist() == [1, 0]
    batch = Samples(made).batch(torch.tensor([1]), CPU)
    assert batch.data["labels"].tolist() == [0]


def test_text_of_different_lengths_needs_a_collator():
    datasets = pytest.importorskip("datasets", reason="the datasets extra is not installed")
    made = datasets.Dataset.from_dict({"input_ids": [[1], [2, 3]], "labels": [0, 1]})
    with pytest.raises(UsageError, match="collate="):
        Samples(made).batch(torch.arange(2), CPU)

    def pad(samples):
        longest = max(len(sample["input_ids"]) for sample in samples)
        return {
            "input_ids": torch.tensor([s["input_ids"] + [0] * (longest - len(s["input_ids"])) for s in samples]),
            "labels": torch.tensor([sample["labels"] for sample in samples]),
        }

    padded = Samples(made, collate=pad)
    padded.keep(torch.arange(2), CPU)
    assert padded.batch(torch.tensor([1, 0]), CPU).data["input_ids"].tolist() == [[2, 3], [1, 0]]


def test_batches_of_different_shapes_are_not_kept(monkeypatch):
    lengths = [1, 5]

    class Ragged(Dataset):
        def __len__(self):
            return 2000

        def __getitem__(self, index):
            return torch.ones(lengths[index >= 1024]), 0

    samples = Samples(Ragged())
    samples.keep(torch.arange(2000), CPU)
    assert samples.batch(torch.tensor([0]), CPU).data[0].shape == (1, 1)
    assert samples.batch(torch.tensor([1999]), CPU).data[0].shape == (1, 5)


def test_bad_samples_are_named(data, split, model):
    broken = data[0].clone()
    broken[33, 2] = torch.nan
    with pytest.raises(UsageError, match="first: sample 33"):
        unlearn(
            model,
            Split((broken, data[1]), split.forget, split.adjacent, split.remote),
            "two-stage",
            profile="released",
            compute=Compute("cpu"),
        )
    labels = data[1].clone()
    labels[40] = 7
    with pytest.raises(UsageError, match="Sample 40 has the label 7, but the model has 3 classes"):
        unlearn(
            model,
            Split((data[0], labels), split.forget, split.adjacent, split.remote),
            "two-stage",
            profile="released",
            compute=Compute("cpu"),
        )
    with pytest.raises(UsageError, match="'labels'"):
        Samples({"x": data[0]})
    with pytest.raises(UsageError, match="pair"):
        labels_of(torch.zeros(2))
    with pytest.raises(UsageError, match=r"needs one integer per sample .* not torch.float32"):
        unlearn(
            model,
            Split((data[0], data[1].float()), split.forget, split.adjacent, split.remote),
            "two-stage",
            profile="released",
            compute=Compute("cpu"),
        )


def test_labels_of_data_that_is_not_kept_are_checked_batch_by_batch(data, split, model, monkeypatch):
    monkeypatch.setattr("unweave.data.samples._room", lambda device: 0)
    labels = data[1].clone()
    labels[40] = 7
    largest = 0

    class Watched(Counted):
        def __getitems__(self, rows):
            nonlocal largest
            largest = max(largest, len(rows))
            return [self[row] for row in rows]

    wrong = Split(Watched((data[0], labels)), split.forget, split.adjacent, split.remote)
    with pytest.raises(UsageError, match="Sample 40 has the label 7"):
        unlearn(model, wrong, method="ft", batch_size=8, guard=None, compute=Compute("cpu"))
    assert largest <= READINGS < 60, "a check must not read more at once than a batch or a probe"


@pytest.mark.parametrize("kind", [torch.int32, torch.int16, torch.uint8, torch.bool, torch.uint16])
def test_labels_may_be_of_every_whole_number_type(kind, data, split):
    model, labels = nn.Linear(5, 2), data[1] % 2
    runs = []
    for given in (labels, labels.to(kind)):
        train = Split((data[0], given), split.forget, split.adjacent, split.remote)
        runs.append(unlearn(model, train, method="scrub", epochs=1, forget_epochs=1, compute=Compute("cpu")).model)
        assert evaluate(model, train, compute=Compute("cpu"))["train"]["remote"]["accuracy"] > 0
    assert same(weights(runs[0]), weights(runs[1]))


@pytest.mark.parametrize("limits", [None, {}])
def test_labels_that_are_no_class_numbers_are_refused_except_by_another_loss(limits, data, split):
    model, numbers = nn.Linear(5, 1), data[1].float()
    for labels in (numbers, data[1][:, None], torch.zeros(60, 2)):
        train = Split((data[0], labels), split.forget, split.adjacent, split.remote)
        with pytest.raises(UsageError, match=r"one integer per sample|no task fits"):
            unlearn(nn.Linear(5, 3), train, method="ft", epochs=1, guard=limits, compute=Compute("cpu"))
        with pytest.raises(UsageError, match=r"one integer per sample|no task fits"):
            evaluate(nn.Linear(5, 3), train, compute=Compute("cpu"))

    def squared(model, data):
        return (model(data[0])[:, 0] - labels_of(data)).square()

    train = Split((data[0], numbers), split.forget, split.adjacent, split.remote)
    unlearn(model, train, method="ft", epochs=1, task=OwnLoss(squared), guard=limits, compute=Compute("cpu"))


@pytest.mark.parametrize("count", [1, 3])
def test_tensors_that_are_no_pair_are_refused(count, data):
    with pytest.raises(UsageError, match=f"this one holds {count}"):
        Samples(TensorDataset(*[data[1]] * count))
    assert len(Samples(TensorDataset(*data))) == 60


def test_iterable_data_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(UsageError, match="map-style"):
        Samples(Stream())


def test_images_must_be_tensors():
    with pytest.raises(UsageError, match="Column 'image' holds object"):
        Samples([{"image": object(), "label": 1}]).batch(torch.tensor([0]), CPU)


def test_dict_batches_reach_the_model_by_name(data, split):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, features):
            return type("Output", (), {"logits": self.layer(features)})()

    pair, named = nn.Linear(5, 3), Named()
    named.layer.load_state_dict(pair.state_dict())
    mapping = Split({"features": data[0], "labels": data[1]}, split.forget, split.adjacent, split.remote)
    first = unlearn(
        pair,
        split,
        "two-stage",
        profile="released",
        stage1_learning_rate=1e-2,
        stage2_learning_rate=1e-2,
        compute=Compute("cpu"),
    ).model
    second = unlearn(
        named,
        mapping,
        "two-stage",
        profile="released",
        stage1_learning_rate=1e-2,
        stage2_learning_rate=1e-2,
        compute=Compute("cpu"),
    ).model
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_device_that_is_not_there_gets_one_sentence(monkeypatch):
    def refuse(*_, **__):
        raise NotImplementedError("Could not run 'empty' with 'MPS'. This could be because of\na lot\nof things")

    monkeypatch.setattr("torch.empty", refuse)
    with pytest.raises(UsageError, match=r"^The device 'mps' cannot be used here: Could not run 'empty' with 'MPS'$"):
        pick_device("mps")
