from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from unweave import RunWarning, Split, UsageError
from unweave.data import adjacency_scores
from unweave.data.neighbours import nearest
from unweave.evaluation import features

FEW_FOUND = pytest.mark.filterwarnings("ignore:Only .* adjacent samples were found:unweave.RunWarning")
FINE = [0, 0, 1, 1, 2, 2, 3, 3]
LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
INPUTS = torch.arange(16.0).reshape(8, 2)


class Plain(Dataset):
    """A map-style data set with nothing but length and indexing."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return INPUTS[index], int(LABELS[index])


def hugging_face():
    datasets = pytest.importorskip("datasets", reason="the datasets extra is not installed")
    return datasets.Dataset.from_dict({"x": INPUTS.tolist(), "label": LABELS.tolist(), "text": ["a"] * 8})


SOURCES = {
    "tensors": lambda: (INPUTS, LABELS),
    "arrays": lambda: (INPUTS.numpy(), LABELS.numpy()),
    "mapping": lambda: {"x": INPUTS, "labels": LABELS},
    "tensor data set": lambda: TensorDataset(INPUTS, LABELS),
    "plain data set": Plain,
    "Hugging Face": hugging_face,
}


def parts(split):
    return split.forget.tolist(), split.adjacent.tolist(), split.remote.tolist()


@FEW_FOUND
@pytest.mark.parametrize("source", SOURCES)
def test_every_constructor_works_on_every_kind_of_data(source):
    data = SOURCES[source]()
    expected = ([0, 1], [2, 3], [4, 5, 6, 7])
    names = ["cat", "dog", "car", "bus"]
    label = (lambda s: int(s[1])) if source not in ("mapping", "Hugging Face") else None

    def is_animal(sample):
        return (label(sample) if label else int(sample.get("label", sample.get("labels")))) == 0

    assert parts(Split(data, forget=[1, 0], adjacent=[2, 3], remote=range(4, 8))) == expected
    assert parts(Split(data, forget=[0, 1], adjacent=torch.tensor([3, 2]))) == expected
    assert parts(Split.by_class(data, fine=FINE, forget="cat", names=names)) == expected
    assert parts(Split.by_class(data, fine=FINE, forget=0)) == expected
    assert parts(Split.where(data, forget=np.arange(8) < 2, adjacent=is_animal)) == expected
    near = Split.by_neighbours(data, forget=[0, 1], features=INPUTS, k=2, fraction=1 / 3)
    assert parts(near) == expected


@FEW_FOUND
@pytest.mark.parametrize("source", ["tensors", "plain data set", "mapping", "Hugging Face"])
def test_neighbours_come_from_the_model(source):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(2, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.body(x))

    model = Model().train()
    split = Split.by_neighbours(SOURCES[source](), forget=[0, 1], model=model, k=2, fraction=1 / 3, device="cpu")
    assert parts(split) == ([0, 1], [2, 3], [4, 5, 6, 7])
    assert model.training


def test_several_classes_can_go():
    data, names = (INPUTS, LABELS), ["cat", "dog", "car", "bus"]
    split = Split.by_class(data, fine=FINE, forget=["cat", "car"], names=names, allow_empty=True)
    assert parts(split) == ([0, 1, 4, 5], [2, 3, 6, 7], [])
    with pytest.raises(UsageError, match="remote set is empty"):
        Split.by_class(data, fine=FINE, forget=[0, 2])


def test_a_function_of_the_sample_chooses(data):
    split = Split.where(
        data, forget=lambda s: s[1] == 0 and s[0][0] > 0, adjacent=lambda s: s[1] == 0, allow_empty=True
    )
    assert all(data[1][i] == 0 and data[0][i, 0] > 0 for i in split.forget)
    assert len(split.forget) + len(split.adjacent) == 20
    assert len(split.remote) == 40


@given(
    seed=st.integers(0, 999),
    forget=st.integers(1, 12),
    kept=st.integers(6, 40),
    k=st.integers(1, 6),
    width=st.integers(1, 5),
)
def test_adjacency_scores_equal_the_obvious_loop(seed, forget, kept, k, width):
    generator = np.random.default_rng(seed)
    gone, rest = generator.normal(size=(forget, width)), generator.normal(size=(kept, width))
    counts = np.zeros(kept, dtype=int)
    for sample in gone:
        for index in np.argsort(((rest - sample) ** 2).sum(1))[:k]:
            counts[index] += 1
    assert adjacency_scores(torch.tensor(gone), torch.tensor(rest), k).tolist() == counts.tolist()


@given(seed=st.integers(0, 99), chunk=st.integers(2, 9))
def test_chunks_do_not_change_neighbours(seed, chunk):
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(11, 3, generator=generator, dtype=torch.float64)
    points = torch.randn(23, 3, generator=generator, dtype=torch.float64)
    distances, positions = nearest(queries, points, np.int64(4), chunk=chunk)
    exact = torch.cdist(queries, points).square().sort(dim=1)
    assert torch.equal(positions, exact.indices[:, :4])
    assert torch.allclose(distances, exact.values[:, :4])


def test_neighbours_need_no_matrix_of_all_pairs():
    """20,000 × 20,000 distances would take 1.6 GB; no product is larger than 128 MB."""
    points = torch.randn(20_000, 8)
    largest = 0
    original = torch.addmm

    def watched(*args, **kwargs):
        nonlocal largest
        result = original(*args, **kwargs)
        largest = max(largest, result.numel() * result.element_size())
        return result

    torch.addmm = watched
    try:
        nearest(points, points, 3)
    finally:
        torch.addmm = original
    assert 0 < largest <= 2**27


def test_the_rule_of_the_appendix(digits):
    """Top 10% of retained samples by how often they are among the 20 nearest of a forget sample."""
    _, task, model = digits
    how = {"forget": task.train.forget, "model": model, "device": "cpu"}
    found = Split.by_neighbours(task.train.samples.dataset.data, rule="fixed", **how)
    inside = features(model, task.train.samples, torch.arange(1347), device="cpu").double().numpy()
    kept = np.setdiff1d(np.arange(1347), task.train.forget)
    counts = np.zeros(1347, dtype=int)
    for row in task.train.forget:
        apart = ((inside[kept] - inside[row]) ** 2).sum(1)
        counts[kept[np.argsort(apart)[:20]]] += 1
    assert len(found.adjacent) == round(0.1 * len(kept))
    assert counts[found.adjacent].min() >= counts[found.remote].max()
    assert len(inside[0]) == 64


def crowd():
    """300 samples on a line, of which 0 to 59 are forgotten: each is nearest to those next to it."""
    line = torch.arange(300.0)[:, None]
    return {"dataset": (line, torch.zeros(300, dtype=torch.long)), "forget": range(60), "features": line}


def test_samples_that_nobody_names_are_not_adjacent():
    found = Split.by_neighbours(**crowd(), k=55, fraction=0.9)
    assert found.adjacent.tolist() == list(range(60, 115))
    assert found.named == 55
    assert str(found).endswith("; 55 were named as neighbours")
    assert Split.by_neighbours(**crowd(), k=100, fraction=0.25).adjacent.tolist() == list(range(60, 120))  # at most
    fixed = Split.by_neighbours(**crowd(), k=1, fraction=0.9, rule="fixed")
    assert (len(fixed.adjacent), fixed.named) == (216, 1)
    with pytest.raises(UsageError, match=r"There is no rule 'fixd'\. Did you mean 'fixed'"):
        Split.by_neighbours(**crowd(), rule="fixd")


@pytest.mark.parametrize(
    ("few", "advice", "better"),
    [
        ({"k": 20, "fraction": 0.5}, r"Only 20 adjacent .* Raise k \(20\), or name", {"k": 60}),
        ({"k": 60, "fraction": 0.1}, r"Only 24 adjacent .* Raise fraction \(0.1\), or name", {"fraction": 0.5}),
    ],
)
def test_few_neighbours_are_said_and_the_advice_finds_more(few, advice, better):
    with pytest.warns(RunWarning, match=advice):
        Split.by_neighbours(**crowd(), **few)
    assert len(Split.by_neighbours(**crowd(), **few | better).adjacent) == 60  # and no warning


def test_entanglement_names_the_look_alikes(digits):
    _, task, model = digits
    found = task.train.entanglement(model, groups=task.fine, names=task.fine_names, device="cpu")
    at_risk = {group["group"] for group in found.groups[:3]}
    assert at_risk == {"1", "4", "7"}
    assert all(group["same_label"] == (group["group"] in "147") for group in found.groups)
    assert 0 < found.score < 1
    assert len(found.per_sample) == len(task.train.forget)
    assert "× average" in str(found)


def test_entanglement_counts_by_hand():
    line = torch.tensor([[0.0], [1.0], [2.0], [10.0], [11.0], [3.5]])
    split = Split((line, torch.tensor([0, 0, 0, 1, 1, 1])), forget=[0, 1], adjacent=[2], remote=[3, 4, 5])
    found = split.entanglement(features=line, k=2)
    # Around 0.0: 1.0 (forget) and 2.0 (kept, same label). Around 1.0: 0.0 and 2.0 likewise.
    assert found.per_sample.tolist() == [0.5, 0.5]
    assert [group["share"] for group in found.groups] == [0.5, 0.0]


def test_noise_moves_the_share_that_was_asked_for(split):
    noisy = split.with_noise(remote_to_adjacent=0.2, seed=1)
    assert len(noisy.adjacent) == 12 + 8
    assert set(split.adjacent) <= set(noisy.adjacent)
    assert noisy == split.with_noise(remote_to_adjacent=0.2, seed=1) != split.with_noise(remote_to_adjacent=0.2, seed=2)
    other = split.with_noise(adjacent_to_remote=0.5)
    assert (len(other.adjacent), len(other.remote)) == (6, 46)
    assert np.array_equal(other.forget, split.forget)


def test_a_split_is_saved_loaded_hashed_and_printed(split, data, tmp_path):
    path = tmp_path / "split.json"
    split.save(path)
    loaded = Split.load(path, data)
    assert loaded == split
    assert loaded.hash == split.hash
    assert str(loaded) == "Split of 60 samples: 8 forget, 12 adjacent, 40 remote"
    assert split.hash != Split(data, forget=range(7), adjacent=range(7, 20), remote=range(20, 60)).hash
    assert [file.name for file in tmp_path.iterdir()] == ["split.json"]


@pytest.mark.parametrize(
    ("forget", "adjacent", "remote", "message"),
    [
        ([], [1], [2], "forget set is empty"),
        ([0], [], [2], "adjacent set is empty"),
        ([0], [1], [], "remote set is empty"),
        ([0, 1], [1, 2], [3], "1 samples are in both forget and adjacent"),
        ([0], [1], [0], "both forget and remote"),
        ([0], [1, 2], [2], "both adjacent and remote"),
        ([99], [1], [2], "outside the data set of 8"),
        ([-1], [1], [2], "outside the data set"),
        ([0, 0], [1], [2], "more than once"),
        ([0.5], [1], [2], "whole numbers"),
        ([True, False], [1], [2], "Split.where"),
    ],
)
def test_wrong_subsets_are_refused(forget, adjacent, remote, message):
    with pytest.raises(UsageError, match=message):
        Split((INPUTS, LABELS), forget=forget, adjacent=adjacent, remote=remote)


def test_test_data_may_lack_a_subset():
    split = Split((INPUTS, LABELS), forget=[], adjacent=[0], remote=[1], allow_empty=True)
    assert len(split.forget) == 0


def test_what_may_lack_a_subset_still_may_after_other_requests_and_with_noise(data):
    test = Split(data, forget=[0, 1], adjacent=range(2, 60), remote=[], allow_empty=True)
    after = test.after(Split(data, forget=[2], adjacent=[3]))
    assert (len(after.adjacent), len(after.remote), len(after.forgotten)) == (57, 0, 1)
    assert len(test.with_noise(remote_to_adjacent=0.5).adjacent) == 58
    with pytest.raises(UsageError, match="The adjacent set is empty"):
        Split(data, forget=[0], adjacent=[1]).after(Split(data, forget=[1], adjacent=[2]))


def test_wrong_arguments_are_named():
    data = (INPUTS, LABELS)
    with pytest.raises(UsageError, match="Did you mean 'cat'"):
        Split.by_class(data, fine=FINE, forget="cta", names=["cat", "dog", "car", "bus"])
    for odd in ("cat dog", b"cat", 3):  # a text would be taken for a list of its letters
        with pytest.raises(UsageError, match="names must be a list of names, not"):
            Split.by_class(data, fine=FINE, forget="c", names=odd)
        with pytest.raises(UsageError, match="names must be a list of names, not"):
            Split(data, forget=[0], adjacent=[1]).entanglement(features=INPUTS, groups=FINE, names=odd)
    with pytest.raises(UsageError, match="No sample has the fine class 9"):
        Split.by_class(data, fine=FINE, forget=9)
    with pytest.raises(UsageError, match="fine has 3 entries"):
        Split.by_class(data, fine=[0, 1, 2], forget=0)
    with pytest.raises(UsageError, match=r"forget must be a fine class or a list of them, not 1\.5"):
        Split.by_class(data, fine=FINE, forget=1.5)
    with pytest.raises(UsageError, match=r"labels has the shape \(3,\)"):
        Split.by_class(data, fine=FINE, forget=0, labels=[0, 1, 2])
    with pytest.raises(UsageError, match="Labels must be whole numbers, the classes from 0 on, not str"):
        Split.by_class([(INPUTS[0], "cat"), (INPUTS[1], "dog")], fine=[0, 1], forget=0)
    with pytest.raises(UsageError, match="one boolean for each"):
        Split.where(data, forget=[0, 1], adjacent=[2])
    with pytest.raises(UsageError, match="fraction is 2"):
        Split.by_neighbours(data, forget=[0], features=INPUTS, fraction=2)
    with pytest.raises(UsageError, match="k is 50"):
        Split.by_neighbours(data, forget=[0], features=INPUTS, k=50)
    with pytest.raises(UsageError, match="features must be finite, but those of sample 1 are not"):
        Split.by_neighbours(
            data, forget=[0], features=torch.where(torch.arange(len(INPUTS))[:, None] == 1, math.nan, INPUTS)
        )
    with pytest.raises(UsageError, match="k is 0, but must be at least 1"):
        Split(data, [0], [1]).entanglement(features=INPUTS, k=0)
    with pytest.raises(UsageError, match="need a model"):
        Split.by_neighbours(data, forget=[0])
    with pytest.raises(UsageError, match="no linear layer"):
        Split.by_neighbours(data, forget=[0], model=nn.Softmax(dim=1), k=1)
    with pytest.raises(UsageError, match="same length"):
        Split((INPUTS, LABELS[:3]), forget=[0], adjacent=[1], remote=[2])
    with pytest.raises(UsageError, match="len\\(\\) and indexing"):
        Split(iter([]), forget=[0], adjacent=[1], remote=[2])


def test_damaged_split_files_are_refused(split, data, tmp_path):
    path = tmp_path / "split.json"
    split.save(path)
    good = json.loads(path.read_text())
    for change, message in [
        ({"format": "other"}, "not a split file"),
        ({"version": 99}, "version 99"),
        ({"samples": 5}, "made for 5 samples"),
        ({"forget": [0]}, "hash"),
        ({"forget": ["x"]}, "whole numbers"),
        ({"forget": [[1], [2, 3]]}, "whole numbers"),
    ]:
        path.write_text(json.dumps(good | change))
        with pytest.raises(UsageError, match=message):
            Split.load(path, data)
    path.write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        Split.load(path, data)
