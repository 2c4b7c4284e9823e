"""Normalisation folded into convolutions: the same function and the same gradients."""

import pytest
import torch
from torch import nn

from unweave.benchmarks import networks
from unweave.engine.folding import fold_normalisation


def lively(model):
    """Give every normalisation statistics and weights of its own."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if module.running_mean is not None:
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
            if module.affine:
                nn.init.normal_(module.weight, 1, 0.2)
                nn.init.normal_(module.bias)
    return model.double().eval()


def traced(model):
    """Return the model as torch traces it, folded, and a list that fills with how many there were in each graph."""
    folded = []

    def backend(graph, examples):
        folded.append(fold_normalisation(graph))
        return graph.forward

    return torch.compile(model, backend=backend, dynamic=False), folded


def outcome(model, run, data):
    model.zero_grad()
    found = run(data)
    found = getattr(found, "logits", found)
    found.square().sum().backward()
    return found.detach(), [parameter.grad for parameter in model.parameters()]


class Twice(nn.Module):
    """Uses the output of its convolution beside the normalisation, too."""

    def __init__(self):
        super().__init__()
        self.convolution, self.normalisation = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)

    def forward(self, data):
        found = self.convolution(data)
        return found + self.normalisation(found)


class Overwritten(nn.Module):
    """Changes the input of its convolution in place before it normalises the output."""

    def __init__(self):
        super().__init__()
        self.convolution, self.normalisation = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)

    def forward(self, data):
        data = data * 1.0
        found = self.convolution(data)
        return torch.relu_(data) + self.normalisation(found)


class Computed(nn.Module):
    """Computes the weights of its normalisation after the convolution."""

    def __init__(self):
        super().__init__()
        self.convolution, self.normalisation = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)

    def forward(self, data):
        found, norm = self.convolution(data), self.normalisation
        scale = norm.weight * 2
        return nn.functional.batch_norm(found, norm.running_mean, norm.running_var, scale, norm.bias)


@pytest.mark.parametrize(
    ("model", "shape", "count"),
    [
        (networks.resnet18(classes=5, small_images=True, width=4), (3, 3, 16, 16), 20),
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)), (4, 2, 6, 6), 1),
        (nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, groups=2), nn.BatchNorm2d(4, affine=False)), (4, 2, 7, 7), 1),
        (nn.Sequential(nn.Conv1d(2, 3, 3, padding=1, bias=False), nn.BatchNorm1d(3, eps=0.1)), (4, 2, 6), 1),
        (Twice(), (4, 2, 6, 6), 0),
        (Computed(), (4, 2, 6, 6), 0),
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.BatchNorm2d(3)), (4, 2, 6, 6), 0),
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, track_running_stats=False)), (4, 2, 6, 6), 0),
    ],
)
def test_what_is_folded_gives_the_same_losses_and_gradients(model, shape, count):
    lively(model)
    data = torch.randn(*shape, dtype=torch.float64)
    run, folded = traced(model)
    torch.testing.assert_close(outcome(model, run, data), outcome(model, model, data), rtol=1e-10, atol=1e-10)
    assert sum(folded) == count


@torch.no_grad()
def test_the_input_of_a_convolution_may_be_overwritten_later():
    model = lively(Overwritten())
    data = torch.randn(4, 2, 6, 6, dtype=torch.float64)
    run, folded = traced(model)
    torch.testing.assert_close(run(data), model(data), rtol=1e-10, atol=1e-10)
    assert folded == [1]


def test_statistics_that_are_not_frozen_stay():
    model = lively(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))).train()
    run, folded = traced(model)
    before = model[1].running_mean.clone()
    run(torch.randn(4, 2, 6, 6, dtype=torch.float64))
    assert folded == [0]
    assert not torch.equal(model[1].running_mean, before)


def test_normalisation_in_a_wider_type_is_folded_too():
    model = lively(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))).float()
    model[0].bfloat16()
    data = torch.randn(4, 2, 6, 6, dtype=torch.bfloat16)
    run, folded = traced(model)
    found, expected = outcome(model, run, data), outcome(model, model, data)
    assert (folded, found[0].dtype) == ([1], torch.bfloat16)
    for one, other in zip([found[0], *found[1]], [expected[0], *expected[1]], strict=True):
        assert (one - other).abs().max() < 0.05 * other.abs().max()
