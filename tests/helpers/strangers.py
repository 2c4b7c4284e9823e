"""Small models on made-up clusters that no default was made for, trained in several usual ways."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def blobs(count=900, classes=3, groups=9, seed=0, spread=0.45):
    """Samples around nine centres, three for each label."""
    draw = torch.Generator().manual_seed(seed)
    centres = 3 * torch.randn((groups, 8), generator=torch.Generator().manual_seed(7))
    of = torch.arange(count) % groups
    return centres[of] + spread * torch.randn((count, 8), generator=draw), of % classes, of


def trained(data, labels, network, *, rate=1e-2, epochs=60, sgd=False):
    torch.manual_seed(3)
    model = network()
    make = torch.optim.SGD if sgd else torch.optim.Adam
    optimizer = make(model.parameters(), lr=rate)
    for _ in range(epochs):
        for batch in torch.randperm(len(data)).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(model(data[batch]), labels[batch]).backward()
            optimizer.step()
    return model.eval()


def mlp():
    return nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 3))


def normed():
    return nn.Sequential(nn.Linear(8, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 3))


def wide_scale():
    """Its last weights are a hundred times smaller than its first."""
    model = nn.Sequential(nn.Linear(8, 48), nn.Tanh(), nn.LayerNorm(48), nn.Linear(48, 3))
    with torch.no_grad():
        model[3].weight.mul_(0.01)
    return model


def accuracy(model, pair, rows):
    data, labels = (part[torch.from_numpy(rows)] for part in pair)
    with torch.no_grad():
        return (model(data).argmax(dim=1) == labels).double().mean().item()
