"""Profiles that follow authors' code, against plain transcriptions of it, on a model that fits its data.

Where the training loss is small, gradients are too, and constants such as 1e-8 decide what happens.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.helpers.tensors import weights
from unweave import Split
from unweave.engine import Workbench
from unweave.methods import find_method

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def fitted():
    """A network with BatchNorm that fits 300 samples of 9 fine classes in 3 classes, which lie in no order."""
    generator = torch.Generator().manual_seed(0)
    fine = torch.randint(0, 9, (300,), generator=generator)
    centres = 3 * torch.randn(9, 6, generator=generator, dtype=torch.float64)
    inputs = centres[fine] + 0.3 * torch.randn(300, 6, generator=generator, dtype=torch.float64)
    labels = fine // 3
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    assert functional.cross_entropy(model.eval()(inputs), labels) < 1e-3
    return model, inputs, labels, fine


def begun(fitted, name, values, profile):
    """Return the only phase of a method, ready for its first step, on a model of its own."""
    model, inputs, labels, fine = fitted
    split = Split.by_class((inputs, labels), fine=fine, forget=4)
    bench = Workbench(copy.deepcopy(model), split, device=CPU)
    (phase,) = find_method(name).configure(values, profile=profile).phases()
    phase.prepare(bench)
    phase.begin()
    return phase


def munba_by_hand(model, pairs, settings):
    """Take the steps of MUNBa's authors: weights in their expression, then one backward pass and a clipped step."""
    optimizer = torch.optim.SGD(
        model.parameters(), lr=settings.learning_rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    fell_back = 0
    for (kept, kept_labels), other in pairs:
        kept_loss = functional.cross_entropy(model(kept), kept_labels)
        optimizer.zero_grad()
        if other is None:
            kept_loss.backward()
            optimizer.step()
            continue
        loss = functional.cross_entropy(model(other[0]), other[1])
        r, f = (
            torch.cat([g.flatten() for g in torch.autograd.grad(one, list(model.parameters()), retain_graph=True)])
            for one in (kept_loss, loss)
        )
        rr, rf, ff = float(r @ r), float(r @ f), float(f @ f)
        first = ((rr * ff - rf * (rr * ff) ** 0.5) / (rr * rr * ff - rr * rf * rf + 1e-8)) ** 0.5
        second = (1 - rr * first * first) / (rf * first + 1e-8)
        if first > 0 and second > 0:
            whole = first * kept_loss + second * loss
        else:
            whole, fell_back = kept_loss + 0.1 * loss, fell_back + 1
        whole.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return fell_back


@pytest.mark.parametrize("profile", ["official", "released", "closed-form"])
def test_munba_takes_its_authors_steps(fitted, profile):
    """From the second step on, momentum carries what happened before. The closed form goes elsewhere."""
    values = {"batch_size": 64, "forget_batch": 16, "epochs": 6, "learning_rate": 0.05}
    phase = begun(fitted, "munba", values, profile)
    per_epoch, forget = len(phase.retained), len(phase.forget)
    assert 1 < forget < per_epoch
    pairs = []
    for number in range(phase.steps):
        epoch, place = divmod(number, per_epoch)
        turn = number if profile == "released" else epoch * forget + place
        batch = None if profile != "released" and place >= forget else phase.relabelled(phase.forget[turn], turn)
        kept = phase.retained[number]
        pairs.append(((kept.data[0], kept.labels), None if batch is None else (batch.data[0], batch.labels)))
    model = copy.deepcopy(fitted[0]).train(profile != "released")
    fell_back = munba_by_hand(model, pairs, phase.settings)
    for number in range(phase.steps):
        phase.step(number)
    found, expected = weights(phase.bench.model), weights(model)
    if profile == "closed-form":
        apart = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
        assert apart > 1e-2
    else:
        assert 0 < fell_back < sum(other is not None for _, other in pairs), "both branches are taken"
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def ssd_by_hand(model, everything, forget, *, selection, dampening):
    """Return the weights that SSD's authors reach from two lists of batches, with a network in evaluation mode."""
    model.eval()

    def importance(batches):
        total = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for inputs, labels in batches:
            loss = functional.cross_entropy(model(inputs), labels)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            total = [one + gradient**2 for one, gradient in zip(total, gradients, strict=True)]
        return [one / len(batches) for one in total]

    changed = []
    for parameter, every, own in zip(model.parameters(), importance(everything), importance(forget), strict=True):
        share = (dampening * every / own).clamp(max=1)
        changed.append(torch.where(own > selection * every, parameter.detach() * share, parameter.detach()))
    return changed


def test_ssd_released_goes_by_the_fine_class_the_forget_class_last(fitted):
    """As the release does on CIFAR-100. In the order of the data set, weights come out otherwise."""
    model, inputs, labels, fine = fitted
    values = {"selection": 2.0, "batch_size": 16}
    ways = [row for kind in (0, 1, 2, 3, 5, 6, 7, 8, 4) for row in range(300) if fine[row] == kind]
    gone = [row for row in range(300) if fine[row] == 4]
    batches = [
        [(inputs[rows[start : start + 16]], labels[rows[start : start + 16]]) for start in range(0, len(rows), 16)]
        for rows in (ways, gone)
    ]
    expected = ssd_by_hand(copy.deepcopy(model), *batches, selection=2.0, dampening=1.0)
    found = {}
    for order in ("fine", "dataset"):
        phase = begun(fitted, "ssd", {**values, **({} if order == "fine" else {"order": order})}, "released")
        for number in range(phase.steps):
            phase.step(number)
        phase.finish()
        found[order] = [parameter.detach() for parameter in phase.bench.model.parameters()]
    torch.testing.assert_close(found["fine"], expected, rtol=1e-9, atol=1e-12)
    apart = max(float((a - b).abs().max()) for a, b in zip(found["dataset"], expected, strict=True))
    assert apart > 1e-2
