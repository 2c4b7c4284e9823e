"""Folded normalisation and convolutions over blocks compute the same values and the same gradients."""

import pytest
import torch
from torch import nn

from unweave.engine.compiling import blocks
from unweave.engine.compiling.folding import FOLDED, rewrite
from unweave.lab.benchmarks import networks


@pytest.fixture(autouse=True)
def _forget_what_was_compiled():
    torch._dynamo.reset()  # dynamo keeps at most eight variants of a model


def lively(model):
    """Give every normalisation random statistics and weights."""
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
    """Return the model, traced and rewritten, and a list of the folded and pooled nodes in each graph."""
    folded = []

    def backend(graph, examples):
        rewrite(graph)
        found = [node for node in graph.graph.nodes if node.target in FOLDED.values()]
        folded.append((len(found), sum("pooling" in node.kwargs for node in found)))
        return graph.forward

    return torch.compile(model, backend=backend, dynamic=False), folded


def outcome(model, run, data):
    model.zero_grad()
    found = run(data)
    found = getattr(found, "logits", found)
    found.square().sum().backward()
    return found.detach(), [parameter.grad for parameter in model.parameters()]


class Block(nn.Module):
    """A convolution and a normalisation."""

    def __init__(self):
        super().__init__()
        self.convolution, self.normalisation = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)


class Twice(Block):
    """Uses the output of its convolution twice."""

    def forward(self, data):
        found = self.convolution(data)
        return found + self.normalisation(found)


class Overwritten(nn.Module):
    """Overwrites the input of its convolution before it normalises the output."""

    def __init__(self):
        super().__init__()
        self.convolution, self.normalisation = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)

    def forward(self, data):
        data = data * 1.0
        found = self.convolution(data)
        return torch.relu_(data) + self.normalisation(found)


class Computed(Block):
    """Computes the weights of its normalisation after the convolution."""

    def forward(self, data):
        found, norm = self.convolution(data), self.normalisation
        scale = norm.weight * 2
        return nn.functional.batch_norm(found, norm.running_mean, norm.running_var, scale, norm.bias)


class Looked(Block):
    """Uses the output of its ReLU twice."""

    def forward(self, data):
        found = torch.relu(self.normalisation(self.convolution(data)))
        return nn.functional.max_pool2d(found, 3).sum() + found.sum()


class WithIndices(Block):
    """Asks for the indices of the maxima."""

    def forward(self, data):
        found = torch.relu(self.normalisation(self.convolution(data)))
        return nn.functional.max_pool2d(found, 3, 3, 0, 1, False, True)[0]


POOL = nn.MaxPool2d(3, 2, padding=1)


@pytest.mark.parametrize(
    ("model", "shape", "count", "pooled"),
    [
        (networks.resnet18(classes=5, small_images=True, width=4), (3, 3, 16, 16), 20, 0),
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)), (4, 2, 6, 6), 1, 0),
        (nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, groups=2), nn.BatchNorm2d(4, affine=False)), (4, 2, 7, 7), 1, 0),
        (nn.Sequential(nn.Conv1d(2, 3, 3, padding=1, bias=False), nn.BatchNorm1d(3, eps=0.1)), (4, 2, 6), 1, 0),
        (Twice(), (4, 2, 6, 6), 0, 0),
        (Computed(), (4, 2, 6, 6), 0, 0),
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.BatchNorm2d(3)), (4, 2, 6, 6), 0, 0),
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, track_running_stats=False)), (4, 2, 6, 6), 0, 0),
        (networks.resnet18(classes=5, width=4), (3, 3, 64, 64), 20, 1),
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), POOL), (4, 2, 9, 9), 1, 1),
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), POOL, nn.ReLU()), (4, 2, 9, 9), 1, 0),
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), POOL, nn.BatchNorm2d(3)), (4, 2, 9, 9), 0, 0),
        (Looked(), (4, 2, 9, 9), 1, 0),
        (nn.Sequential(nn.Conv1d(2, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.MaxPool2d(3)), (4, 2, 9), 1, 0),
        (WithIndices(), (4, 2, 9, 9), 1, 0),
    ],
)
def test_a_folded_model_gives_the_same_losses_and_gradients(model, shape, count, pooled):
    lively(model)
    data = torch.randn(*shape, dtype=torch.float64)
    run, folded = traced(model)
    torch.testing.assert_close(outcome(model, run, data), outcome(model, model, data), rtol=1e-10, atol=1e-10)
    assert folded == [(count, pooled)]


@torch.no_grad()
def test_the_input_of_a_convolution_may_be_overwritten_later():
    model = lively(Overwritten())
    data = torch.randn(4, 2, 6, 6, dtype=torch.float64)
    run, folded = traced(model)
    torch.testing.assert_close(run(data), model(data), rtol=1e-10, atol=1e-10)
    assert folded == [(1, 0)]


def test_normalisation_in_training_mode_is_not_folded():
    model = lively(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))).train()
    run, folded = traced(model)
    before = model[1].running_mean.clone()
    run(torch.randn(4, 2, 6, 6, dtype=torch.float64))
    assert folded == [(0, 0)]
    assert not torch.equal(model[1].running_mean, before)


def test_normalisation_in_a_wider_type_is_folded_too():
    model = lively(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))).float()
    model[0].bfloat16()
    data = torch.randn(4, 2, 6, 6, dtype=torch.bfloat16)
    run, folded = traced(model)
    found, expected = outcome(model, run, data), outcome(model, model, data)
    assert (folded, found[0].dtype) == ([(1, 0)], torch.bfloat16)
    for one, other in zip([found[0], *found[1]], [expected[0], *expected[1]], strict=True):
        assert (one - other).abs().max() < 0.05 * other.abs().max()


@pytest.mark.parametrize("size", [(16, 16), (15, 18), (9, 12)])
@pytest.mark.parametrize(("kernel", "padding"), [((7, 7), (3, 3)), ((5, 6), (0, 2)), ((8, 5), (1, 0))])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_convolution_over_blocks_is_the_same_convolution(size, kernel, padding, channels):
    torch.manual_seed(0)
    data, weight = (
        torch.randn(*shape, dtype=torch.float64) for shape in ((2, channels, *size), (6, channels, *kernel))
    )
    bias = torch.randn(6, dtype=torch.float64)
    outcomes = []
    for run in (
        lambda d, w, b: torch.conv2d(d, w, b, 2, padding),
        lambda d, w, b: blocks.over_blocks(d, w, b, padding=padding),
    ):
        leaves = [tensor.clone().requires_grad_() for tensor in (data, weight, bias)]
        found = run(*leaves)
        found.square().sum().backward()
        outcomes.append([found.detach(), *(leaf.grad for leaf in leaves)])
    torch.testing.assert_close(outcomes[0], outcomes[1], rtol=1e-10, atol=1e-10)


def test_only_first_convolutions_with_stride_2_go_over_blocks():
    data, weight = torch.zeros(1, 3, 16, 16), torch.zeros(4, 3, 7, 7)
    assert blocks.suits(data, weight, stride=(2, 2), padding=3)
    assert blocks.suits(data, weight, stride=2)
    for other in ({"stride": 1}, {"stride": (2, 1)}, {"dilation": 2}, {"groups": 3}, {"padding": "valid"}):
        assert not blocks.suits(data, weight, **{"stride": 2, **other})
    assert not blocks.suits(data[0], weight, stride=2)  # one image, without a batch
    assert not blocks.suits(torch.zeros(1, 64, 16, 16), torch.zeros(4, 64, 7, 7), stride=2)
    assert not blocks.suits(data, torch.zeros(4, 3, 3, 3), stride=2)


def test_a_whole_network_over_blocks_gives_the_same_losses_and_gradients(monkeypatch):
    used = []
    monkeypatch.setattr(blocks, "applies", lambda data: used.append(data.shape) or True)
    model = lively(networks.resnet18(classes=5, width=4))
    data = torch.randn(3, 3, 64, 64, dtype=torch.float64)
    run, _ = traced(model)
    torch.testing.assert_close(outcome(model, run, data), outcome(model, model, data), rtol=1e-9, atol=1e-9)
    assert used
