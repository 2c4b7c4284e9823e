"""The yardsticks do the same work as ours: with whole sets as batches there is no chance, and all must agree."""

from __future__ import annotations

import copy

import pytest
import torch
from bench.released_loop import Loaders, StoredImages
from torch.utils.data import Subset, TensorDataset

from bench import measure, plain_loop, released_loop, workloads, yardsticks
from unweave.engine import Workbench
from unweave.maths import remove_span
from unweave.methods import find_method

CPU = torch.device("cpu")
WHOLE = 100


@pytest.fixture
def loaders(data, split):
    dataset = TensorDataset(*data)
    return Loaders(
        {subset: Subset(dataset, split[subset].tolist()) for subset in ("forget", "adjacent", "remote")},
        workers=0,
        device=CPU,
    )


def steps_of_ours(model, split, stage, count, **settings):
    bench = Workbench(copy.deepcopy(model), split, device=CPU)
    method = find_method("two-stage")
    phase = list(method.configure(settings).phases())[stage - 1]
    phase.prepare(bench)
    phase.begin()
    measure.take_steps(bench, phase, count)
    return phase, bench.model


def test_stage_1_is_the_same(model, split, loaders):
    sizes = {"stage1_remote_batch": WHOLE, "stage1_forget_batch": WHOLE, "stage1_learning_rate": 1e-2}
    phase, ours = steps_of_ours(model, split, 1, 4, **sizes)
    released_loop.stage1(
        model,
        loaders,
        steps=4,
        remote_batch=WHOLE,
        forget_batch=WHOLE,
        learning_rate=1e-2,
        pinned=float(phase.pinned),
    )
    for one, other in zip(ours.parameters(), model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_stage_2_is_the_same(model, split, loaders, alpha):
    sizes = {f"stage2_{subset}_batch": WHOLE for subset in ("forget", "adjacent", "remote")}
    ridge = 1e-8 * len(list(model.parameters()))
    before = copy.deepcopy(model)
    _, ours = steps_of_ours(model, split, 2, 4, **sizes, stage2_learning_rate=1e-2, alpha=alpha, ridge=ridge)
    released_loop.stage2(
        model,
        loaders,
        steps=4,
        adjacent_batch=WHOLE,
        forget_batch=WHOLE,
        remote_batch=WHOLE,
        batch_limit=10,
        learning_rate=1e-2,
        alpha=alpha,
    )
    for one, other, start in zip(ours.parameters(), model.parameters(), before.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
        assert not torch.allclose(one, start, atol=1e-4)


@pytest.fixture
def on_device(data, split):
    return {name: (data[0][split[name]], data[1][split[name]]) for name in ("forget", "adjacent", "remote")}


def test_the_plain_loop_takes_the_steps_of_the_released_one(model, on_device, loaders):
    other = copy.deepcopy(model)
    values = {"steps": 4, "remote_batch": WHOLE, "forget_batch": WHOLE, "learning_rate": 1e-2}
    plain_loop.stage1(model, on_device, **values, pinned=0.5)
    released_loop.stage1(other, loaders, **values, pinned=0.5)
    middle = copy.deepcopy(model)
    for one, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one, theirs, atol=1e-5)
    more = {**values, "adjacent_batch": WHOLE, "batch_limit": 10}
    plain_loop.stage2(model, on_device, **more)
    released_loop.stage2(other, loaders, **more)
    for one, theirs, before in zip(model.parameters(), other.parameters(), middle.parameters(), strict=True):
        assert torch.allclose(one, theirs, atol=1e-4)
        assert not torch.allclose(one, before, atol=1e-4)


def test_both_yardsticks_are_rehearsed_on_little_data(capsys):
    found = yardsticks.both(workloads.digits(workers=0), CPU, processes=[0], steps=1, compiled=False)
    yardsticks.show(found)
    assert found["released_fastest_processes"] == 0
    assert found["plain"][2]["steps"] == found["released"]["0"][2]["steps"] == 1
    shown = capsys.readouterr().out
    assert "released loop, 0 loader processes" in shown
    assert "(1 and 1 timed)" in shown


def test_projections_agree():
    first, second, third = ([torch.randn(4, 3), torch.randn(5)] for _ in range(3))
    for one, other in zip(
        remove_span(first, [second, third]), released_loop.project(first, second, third), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-6)


def test_stored_images_come_out_as_they_went_in():
    pixels = torch.arange(48, dtype=torch.uint8).view(1, 4, 4, 3)
    found, label = StoredImages(pixels.numpy(), [2], scale=255)[0]
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    assert torch.allclose(found.permute(1, 2, 0), (pixels[0] / 255 - mean) / std, atol=1e-6)
    assert label == 2


def test_evaluation_counts_the_same(model, split, loaders):
    found = released_loop.evaluate(model, {"train": loaders}, size=7)
    with torch.no_grad():
        inputs, labels = split.samples.read(split.rows("remote"))
        expected = float((model(inputs).argmax(1) == labels).double().mean())
    assert found["train remote accuracy"] == pytest.approx(expected)
