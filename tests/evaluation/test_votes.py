"""The forecast: whose votes count, and how many samples it takes."""

from __future__ import annotations

import torch

from unweave.data import Samples
from unweave.evaluation import votes_by, votes_in

FORGET, KEPT = torch.arange(10), torch.arange(10, 50)
LABELS = torch.cat([torch.ones(10), torch.zeros(20), torch.ones(20)]).long()


def depth(forget_at, apart):
    """Features in which kept classes lie at 0 and ``apart``, and the forget samples somewhere."""
    draw = torch.Generator().manual_seed(0)
    places = torch.cat([torch.full((10,), forget_at), torch.zeros(20), torch.full((20,), apart)])
    return (places + 0.1 * torch.randn(50, generator=draw))[:, None]


def share(*layers):
    return votes_by(list(layers), FORGET, KEPT, LABELS, k=5).forecast


def test_the_first_depth_at_which_kept_data_is_as_known_as_in_the_end_counts():
    clear, learned = depth(0.0, 4.0), depth(4.0, 4.0)
    assert share(clear, learned) == 0
    assert share(learned) == 1
    mixed = depth(0.0, 0.0)  # kept classes lie together, so half of the way is still to go
    assert share(mixed, clear, learned) < share(mixed)
    assert share(mixed) < share(mixed, learned) < 1


def test_duplicates_of_kept_samples_and_tiny_data_have_a_forecast():
    same = torch.zeros(50, 2)
    assert 0 <= share(same, same) <= 1
    tiny = votes_by([torch.zeros(2, 1)] * 2, torch.tensor([0]), torch.tensor([1]), torch.tensor([3, 3]), k=20)
    assert tiny.forecast == 1.0


def test_only_so_many_samples_are_run(monkeypatch):
    monkeypatch.setattr("unweave.evaluation.votes.FORGET", 5)
    monkeypatch.setattr("unweave.evaluation.votes.KEPT", 20)
    seen = []

    class Spy(torch.nn.Linear):
        def forward(self, inputs):
            seen.append(len(inputs))
            return super().forward(inputs)

    samples = Samples((depth(4.0, 4.0), LABELS))
    assert votes_in(Spy(1, 2), samples, FORGET, KEPT, LABELS, k=5, device="cpu").forecast == 1.0
    assert max(seen) == 25
