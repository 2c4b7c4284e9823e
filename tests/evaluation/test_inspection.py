"""The look before a run: the forecast, which groups will pay, and what is advised."""

from __future__ import annotations

import pytest
import torch

import unweave as uw


def clouds(sizes, labels, seed=0):
    """Clouds of samples on a line, with a label each; neighbouring clouds touch."""
    draw = torch.Generator().manual_seed(seed)
    of = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    features = of[:, None] + 0.35 * torch.randn((len(of), 1), generator=draw)
    return features, torch.tensor(labels)[of], of


def look(features, labels, forget, adjacent, **how):
    return uw.Split((features, labels), forget, adjacent).inspect(features=features, k=10, **how)


@pytest.mark.parametrize("copies", [1, 3])
def test_copies_of_forget_samples_among_retained_data_raise_the_forecast(copies):
    features, labels, of = clouds([60, 60, 60], [0, 1, 1])
    gone = (of == 0).nonzero()[:, 0]
    before = look(features, labels, gone, range(60, 120)).still_recognised
    found = []
    for share in (0.25, 0.5, 1.0):
        some = gone[: int(share * len(gone))].repeat(copies * 5)
        more, theirs = torch.cat([features, features[some]]), torch.cat([labels, labels[some]])
        found.append(look(more, theirs, gone, range(60, 120)).still_recognised)
    assert [before, *found] == sorted([before, *found])
    assert before < 0.1
    assert found[-1] == 1.0


def test_the_groups_that_will_pay_are_named_with_how_much():
    features, labels, of = clouds([50, 100, 100, 300], [0, 0, 1, 1])
    gone = (of == 0).nonzero()[:, 0]
    found = look(features, labels, gone, range(50, 150), groups=of, names=["gone", "near", "next", "far"])
    assert "near" in found.at_risk[0]
    assert not any("far" in words for words in found.at_risk)
    assert found.at_risk[0] in str(found)
    assert found.to_dict()["at_risk"] == list(found.at_risk)
    entangled = torch.cat([features[gone], features[gone] + 0.01, features[of > 0]])
    theirs = torch.cat([labels[gone], labels[gone], labels[of > 0]])
    groups = torch.cat([of[gone], torch.full((50,), 4), of[of > 0]])
    names = ["gone", "near", "next", "far", "twin"]
    worse = look(entangled, theirs, range(50), range(50, 100), groups=groups, names=names)
    assert "twin will probably lose much accuracy" in worse.at_risk[0]


def test_samples_spread_over_the_labels_are_advised_the_goal_retrain_and_told_how():
    features, labels, _ = clouds([80, 80, 80], [0, 1, 2])
    found = look(features, labels, range(0, 240, 12), range(1, 240, 3))
    assert found.still_recognised >= 0.5
    (advice,) = (words for words in found.advice if 'Take the goal "retrain"' in words)
    assert 'uw.Unweave(goal="retrain", reference=held_out_split)' in advice


def test_a_class_apart_is_advised_the_goal_erase():
    features, labels, of = clouds([60, 60, 60], [0, 1, 1])
    found = look(features, labels, (of == 0).nonzero()[:, 0], range(60, 120))
    assert any('goal "erase"' in words for words in found.advice)
    assert not any("retrain" in words and "Take" in words for words in found.advice)


def test_neighbours_that_are_not_adjacent_are_advised_as_adjacent_data():
    features, labels, of = clouds([50, 100, 100, 300], [0, 0, 1, 1])
    gone = (of == 0).nonzero()[:, 0]
    names = ["gone", "near", "next", "far"]
    missed = look(features, labels, gone, (of == 3).nonzero()[:, 0], groups=of, names=names)
    assert any("Add the neighbours in near" in words for words in missed.advice)
    chosen = look(features, labels, gone, (of == 1).nonzero()[:, 0], groups=of, names=names)
    assert not any("Add the neighbours" in words for words in chosen.advice)


def test_a_memorised_label_does_not_vote_for_itself():
    torch.manual_seed(0)
    inputs, labels, _ = clouds([200, 200, 200], [0, 1, 2])
    gone = torch.arange(0, 600, 30)
    labels = labels.clone()
    labels[gone] = (labels[gone] + 1) % 3
    model = torch.nn.Sequential(torch.nn.Linear(1, 3), torch.nn.Linear(3, 3))
    memory = Memory(inputs[gone], labels[gone], model)
    fit(model, inputs, labels)
    split = uw.Split((inputs, labels), gone, range(1, 600, 3))
    by_head = split.inspect(features=memory.told(inputs), k=10).still_recognised
    assert by_head == 1.0, "the last features agree with the labels"
    assert split.inspect(memory, k=10, device="cpu").still_recognised < 0.3


class Memory(torch.nn.Module):
    """A model that says what it was told of some samples, and otherwise what another model says."""

    def __init__(self, samples, labels, model):
        super().__init__()
        self.samples, self.labels, self.model = samples, labels, model
        self.head = torch.nn.Linear(3, 3, bias=False)
        torch.nn.init.eye_(self.head.weight)

    def told(self, inputs):
        outputs = 10 * torch.nn.functional.one_hot(self.model(inputs).argmax(1), 3).float()
        known = (inputs[:, None] == self.samples[None]).all(-1)
        mine = 10 * torch.nn.functional.one_hot(self.labels[known.long().argmax(1)], 3).float()
        return torch.where(known.any(1, keepdim=True), mine, outputs)

    def forward(self, inputs):
        return self.head(self.told(inputs))


def fit(model, inputs, labels):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
