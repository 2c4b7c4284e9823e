"""Fast paths give the results of slow ones, and no step waits for the device."""

from __future__ import annotations

import copy
import json
import traceback

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers.fitting import ON_ANYTHING
from tests.helpers.folders import configuration
from tests.helpers.tensors import same, weights
from tests.helpers.tiny import Scaled
from unweave import Compute, Split, UsageError, evaluate, unlearn
from unweave.data import tensors_of
from unweave.engine import Workbench, run_phases
from unweave.evaluation import Look, predictions
from unweave.methods import find_method
from unweave.runtime import exact_head, resolve_precision, use_channels_last, use_contiguous

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
FAST = {"stage1_learning_rate": 1e-2, "stage2_learning_rate": 1e-2, "stage2_adjacent_batch": 4}
# Operations that make the host wait: their result is a value, or has a shape that depends on values.
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "is_nonzero"}


class Watch(TorchDispatchMode):
    """Notes every operation that would make the host wait for a GPU.

    It leaves out an optimiser's own counters, which are on the host on every device.
    """

    def __init__(self):
        super().__init__()
        self.seen, self.patch = [], pytest.MonkeyPatch()

    def __enter__(self):
        for name in ("tolist", "cpu", "numpy"):
            whole = getattr(torch.Tensor, name)
            self.patch.setattr(torch.Tensor, name, lambda *a, name=name, whole=whole: self.note(name) or whole(*a))
        return super().__enter__()

    def __exit__(self, *error):
        self.patch.undo()
        return super().__exit__(*error)

    def note(self, name):
        if not any("/torch/optim/" in frame.filename for frame in traceback.extract_stack(limit=12)):
            self.seen.append(name)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name().removeprefix("aten::").split(".")[0]
        masked = name.startswith("index") and any(i.dtype == torch.bool for i in tensors_of(args[1]))
        if name in WAITING or masked:
            self.note(name)
        return function(*args, **(kwargs or {}))


def test_the_watch_sees_operations_that_wait():
    values = torch.tensor([0.0, 1.0])
    for wait in (bool, torch.nonzero, torch.unique, lambda v: v.tolist(), lambda v: v.cpu(), lambda v: v[v > 0]):
        with Watch() as watch:
            wait(values.sum() if wait is bool else values)
        assert len(watch.seen) == 1, wait
    with Watch() as watch:
        values[torch.tensor([0])] + values.sum().clamp(max=1)
    assert watch.seen == []


# adaptive waits: it differentiates only the forget samples that lack something, and judges the end of a round.
@pytest.mark.parametrize("name", [name for name in ON_ANYTHING if name not in ("original", "adaptive")])
def test_no_step_waits_for_the_device(name, split):
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    chosen = find_method(name)
    values = {key: 1 for key in chosen.configure().to_dict() if key.endswith("epochs")}
    if name == "unweave":
        values["least_steps"] = 6
    if "batch_size" in chosen.configure().to_dict():
        values["batch_size"] = 8
    bench = Workbench(copy.deepcopy(model), split, device=CPU)
    seen = []
    phases = list(chosen.configure(values).with_given(initial=lambda: model).phases())
    for phase in phases:

        def step(number, taken=phase.step):
            with Watch() as watch:
                logged = taken(number)
            seen.append(watch.seen)
            return logged

        phase.step = step
    run_phases(bench, phases)
    assert seen
    assert not any(seen), seen


# Precision and layout


def test_auto_precision_is_float32_on_the_cpu_and_bfloat16_on_cuda(model, split, tmp_path):
    assert resolve_precision("auto", CPU) == "float32"
    assert resolve_precision("auto", CUDA) == "bfloat16"
    assert resolve_precision("float32", CUDA) == "float32"
    with pytest.raises(UsageError, match="precision"):
        resolve_precision("float16", CPU)
    unlearn(model, split, method="ga", out=tmp_path / "run", compute=Compute("cpu"))
    config = configuration(tmp_path / "run")
    assert config["precision"] == "float32"
    assert config["compile"] == "auto"
    assert json.loads((tmp_path / "run" / "scores.json").read_text())["precision"] == "float32"


def test_an_unknown_way_to_compile_is_rejected(model, split):
    with pytest.raises(UsageError, match="way to compile"):
        unlearn(model, split, "two-stage", profile="released", compute=Compute("cpu", compile="sometimes"))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.Flatten(), nn.Linear(5 * 16, 3)
    )


@pytest.fixture
def images():
    data = torch.randn(24, 3, 8, 8), torch.arange(24) % 3
    return Split(data, forget=range(6), adjacent=range(6, 12), remote=range(12, 24))


def test_channels_last_changes_neither_weights_nor_results():
    model = convolutional().eval()
    before, inputs = weights(model), torch.randn(2, 3, 8, 8)
    expected = model(inputs)
    changed = use_channels_last(model, CUDA)
    assert [tuple(tensor.shape) for tensor in changed] == [(4, 3, 3, 3), (5, 4, 3, 3)]
    assert not model[0].weight.is_contiguous()
    assert torch.allclose(model(inputs), expected, atol=1e-6)
    use_contiguous(changed)
    assert all(tensor.is_contiguous() for tensor in model.state_dict().values())
    assert same(weights(model), before)
    assert use_channels_last(nn.Linear(2, 2), CUDA) == use_channels_last(model, CPU) == []


def test_a_run_laid_out_channels_last_gives_the_same_weights(images, monkeypatch):
    """Only CUDA uses this layout, but its arithmetic is the same on every device."""
    model = convolutional()
    plain = unlearn(model, images, "two-stage", profile="released", compute=Compute("cpu"), **FAST)
    monkeypatch.setattr("unweave.engine.workbench.use_channels_last", lambda m, _: use_channels_last(m, CUDA))
    last = unlearn(model, images, "two-stage", profile="released", compute=Compute("cpu"), **FAST)
    for name, tensor in last.model.state_dict().items():
        assert tensor.is_contiguous()
        assert torch.allclose(tensor, plain.model.state_dict()[name], atol=1e-4), name


def test_logits_are_float32_in_every_precision():
    model = convolutional().eval()
    inputs = torch.randn(4, 3, 8, 8)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(inputs).dtype == torch.bfloat16
        with exact_head(model, "bfloat16"):
            assert model(inputs).dtype == torch.float32
        assert model(inputs).dtype == torch.bfloat16


def test_evaluation_in_bfloat16_is_near_float32(images):
    model = convolutional()
    half, full = (predictions.observe(model, images, precision=p, device="cpu") for p in ("bfloat16", "float32"))
    assert not torch.equal(half("train").logits, full("train").logits)
    assert torch.allclose(half("train").logits, full("train").logits, atol=0.05)


# Shared passes, and no pass for what is known


@pytest.mark.parametrize("named", [False, True])
def test_batches_share_a_pass_when_that_changes_nothing(data, named):
    values, labels = data
    split = Split({"values": values, "labels": labels} if named else data, range(8), range(8, 20), range(20, 60))
    model = Scaled() if named else nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    bench = Workbench(model, split, device=CPU)
    batches = [bench.batches(subset, size=6)[0] for subset in ("forget", "remote")]
    for mode, passes in (("eval", 1), ("train", 2)):
        bench.mode(mode)
        ran = []
        handle = model.register_forward_pre_hook(lambda *_, ran=ran: ran.append(1))
        torch.manual_seed(7)
        together = bench.losses_together(*batches)
        assert len(ran) == passes
        torch.manual_seed(7)
        apart = [bench.losses(batch) for batch in batches]
        handle.remove()
        for one, other in zip(together, apart, strict=True):
            assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(("most", "at_once", "passes"), [(4, 0, 5), (8, 0, 3), (4, 512, 1)])
def test_small_batches_share_passes_up_to_a_size(split, most, at_once, passes):
    """On CUDA, where a small pass takes as long as a large one, more samples share a pass."""
    model = Counting(5, 3)
    bench = Workbench(model.eval(), split, device=CPU)
    assert bench.at_once == 0
    bench.at_once = at_once
    batches = bench.batches("remote", size=4)
    ran = []
    model.register_forward_pre_hook(lambda *_: ran.append(1))
    groups = list(bench.losses_in_passes(batches.several(0, 5), most=most))
    assert len(ran) == len(groups) == passes
    model.train()  # samples may depend on each other
    assert len(list(bench.losses_in_passes(batches.several(0, 5), most=most))) == 5
    pairs = [pair for group in groups for pair in group]
    assert [batch.rows.tolist() for batch, _ in pairs] == [batches[n].rows.tolist() for n in range(5)]
    for batch, losses in pairs:
        assert torch.allclose(losses, bench.losses(batch))


def test_batches_of_two_lengths_take_two_passes():
    """Padding is cut to the longest sentence of a batch, so the batches of a subset differ in shape."""

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(9, 3)

        def forward(self, input_ids, attention_mask):
            ran.append(tuple(input_ids.shape))
            return (self.table(input_ids) * attention_mask[..., None]).sum(1)

    ran = []
    ids = torch.randint(1, 9, (60, 32), generator=torch.Generator().manual_seed(0))
    ids[:20, 16:] = 0  # the forget sentences are short
    words = {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.arange(60) % 3}
    bench = Workbench(Mean().eval(), Split(words, range(20), range(20, 40), range(40, 60)), device=CPU)
    short, long = (bench.batches(subset, size=5) for subset in ("forget", "remote"))
    batches = [short[0], long[0], short[1], long[1]]
    ran.clear()
    together = bench.losses_together(*batches)
    assert ran == [(10, 16), (10, 32)]
    for losses, batch in zip(together, batches, strict=True):
        assert torch.allclose(losses, bench.losses(batch))


class Counting(nn.Linear):
    """Counts the samples it has seen."""

    seen = 0

    def forward(self, inputs):
        self.seen += len(inputs)
        return super().forward(inputs)


def test_evaluation_runs_each_model_once_and_a_look_remembers_it(split):
    model, original = Counting(5, 3), Counting(5, 3)
    look = Look(split, split, device="cpu", task="classification")
    first = evaluate(model, split, split, original=original, look=look, compute=Compute("cpu"))
    assert model.seen == original.seen == 120
    other = Counting(5, 3)
    again = evaluate(other, split, split, original=original, look=look, compute=Compute("cpu"))
    assert (other.seen, original.seen) == (120, 120)
    name = ("loss", "train", "remote")
    assert again.metric(*name).before == first.metric(*name).before


def test_batches_are_halved_when_memory_runs_out(split):
    sizes = []

    class Small(nn.Linear):
        def forward(self, inputs):
            sizes.append(len(inputs))
            if len(inputs) > 20:
                raise torch.OutOfMemoryError("too much")
            return super().forward(inputs)

    model = Small(5, 3)
    found = predictions.observe(model, split, device="cpu")
    assert sizes == [1, 60, 60, 30, 30, 15, 15, 15, 15], "one sample tells the task; each size is tried twice"
    with torch.no_grad():
        expected = nn.functional.linear(split.samples.read(torch.arange(60))[0], model.weight, model.bias)
    assert torch.allclose(found("train").logits, expected)
