"""Features at several depths: images, texts, and layers that give no rows."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from unweave.data import Samples
from unweave.errors import UsageError
from unweave.evaluation import votes_in
from unweave.evaluation.layers import LONGEST, MOST, layer_features


def layers_of(model, inputs, **how):
    samples = Samples((inputs, torch.zeros(len(inputs), dtype=torch.long)))
    return layer_features(model, samples, torch.arange(len(inputs)), device="cpu", **how)


def test_depths_are_evenly_chosen_from_the_input_to_the_outputs():
    model = nn.Sequential(*(layer for width in range(2, 22) for layer in (nn.Linear(width, width + 1), nn.ReLU())))
    widths = [part.shape[1] for part in layers_of(model, torch.randn(6, 2))]
    assert len(widths) == MOST + 1
    assert (widths[0], widths[1], widths[-1]) == (2, 3, 22)
    assert widths == sorted(widths)


@pytest.mark.parametrize("size", [3, 40])
def test_images_are_made_small(size):
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Flatten(), nn.Linear(8 * size * size, 2))
    found = layers_of(model, torch.randn(4, 3, size, size))
    assert all(part.shape[1] <= LONGEST for part in found)
    assert len(found) == 3


def test_texts_are_counts_of_their_words_and_means_without_padding():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(1000, 4), nn.Linear(4, 2)

        def forward(self, input_ids, attention_mask):
            return self.head(self.words(input_ids)).mean(1)

    words = torch.tensor([[5, 6, 7, 9], [7, 6, 5, 3]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0]])
    samples = Samples({"input_ids": words, "attention_mask": mask, "labels": torch.tensor([0, 1])})
    counts, means, _ = layer_features(Reader(), samples, torch.arange(2), device="cpu")
    assert counts[0].count_nonzero() == 3
    assert torch.equal(counts[0], counts[1])
    assert torch.allclose(means[0], means[1], atol=1e-6)


def test_videos_and_wide_rows_are_made_short():
    model = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.Flatten(), nn.Linear(4 * 5 * 40 * 40, 2))
    video, first, last = layers_of(model, torch.randn(3, 1, 5, 40, 40))
    assert video.shape[1] <= LONGEST
    assert first.shape[1] <= LONGEST
    assert last.shape == (3, 2)
    wide, _ = layers_of(nn.Linear(30_000, 2), torch.randn(3, 30_000))
    assert wide.shape == (3, LONGEST)


def test_samples_of_different_sizes_have_the_last_features_alone():
    class Summing(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.head = nn.Identity(), nn.Linear(1, 2)

        def forward(self, inputs):
            return self.head(inputs.sum(1, keepdim=True))

    def padded(some):
        longest = max(len(one[0]) for one in some)
        rows = [nn.functional.pad(one[0], (0, longest - len(one[0]))) for one in some]
        return torch.stack(rows), torch.tensor([one[1] for one in some])

    data = [(torch.ones(1 + number // 300), number % 2) for number in range(900)]
    samples = Samples(data, collate=padded)
    model, rows = Summing(), torch.arange(900)
    with pytest.raises(UsageError, match="rows of"):
        layer_features(model, samples, rows, device="cpu")
    labels = torch.arange(900) % 2
    found = votes_in(model, samples, rows[:100], rows[100:], labels, k=5, device="cpu")
    assert len(found.kept) == 1


def test_a_model_whose_layers_give_no_rows_has_no_depths():
    class Headless(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.rest = nn.Parameter(torch.ones(2, 3)), nn.Identity()

        def forward(self, inputs):
            return self.rest(inputs @ self.weight)

    assert layers_of(Headless(), torch.randn(5, 2)) == []
