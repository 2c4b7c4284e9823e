"""Fast ways give what slow ways give, and nothing in a step waits for the device."""

from __future__ import annotations

import copy
import gc
import json
import traceback
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers.tensors import same, weights
from unweave import Split, UsageError, evaluate, unlearn
from unweave.data import tensors_of
from unweave.engine import Workbench, run_phases
from unweave.engine.compiling import Forwards
from unweave.engine.compiling import forwards as compiled
from unweave.engine.compiling.forwards import Variant
from unweave.errors import RunWarning
from unweave.evaluation import Look, predictions
from unweave.methods import METHODS, find_method
from unweave.runtime import exact_head, resolve_precision, use_channels_last, use_contiguous
from unweave.tasks import logits

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
FAST = {"stage1_learning_rate": 1e-2, "stage2_learning_rate": 1e-2, "stage2_adjacent_batch": 4}
# Operations whose result the host must wait for: a value, or a shape that depends on values.
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "is_nonzero"}


class Watch(TorchDispatchMode):
    """Notes every operation that would make the host wait for a GPU, but for those on an optimiser's own counters.

    (These are on the host on every device.)
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


def test_the_watch_sees_what_waits():
    values = torch.tensor([0.0, 1.0])
    for wait in (bool, torch.nonzero, torch.unique, lambda v: v.tolist(), lambda v: v.cpu(), lambda v: v[v > 0]):
        with Watch() as watch:
            wait(values.sum() if wait is bool else values)
        assert len(watch.seen) == 1, wait
    with Watch() as watch:
        values[torch.tensor([0])] + values.sum().clamp(max=1)
    assert watch.seen == []


@pytest.mark.parametrize("name", [name for name in METHODS if name != "original"])
def test_no_step_waits_for_the_device(name, split):
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    chosen = find_method(name)
    values = {key: 1 for key in chosen.configure().to_dict() if key.endswith("epochs")}
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
    unlearn(model, split, method="ga", device="cpu", out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["precision"] == "float32"
    assert config["compile"] == "auto"
    assert json.loads((tmp_path / "run" / "scores.json").read_text())["precision"] == "float32"


def test_a_wrong_way_to_compile_is_refused(model, split):
    with pytest.raises(UsageError, match="way to compile"):
        unlearn(model, split, device="cpu", compile="sometimes")


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
    """The layout is a matter of CUDA, but its arithmetic is the same anywhere."""
    model = convolutional()
    plain = unlearn(model, images, device="cpu", **FAST)
    monkeypatch.setattr("unweave.engine.workbench.use_channels_last", lambda m, _: use_channels_last(m, CUDA))
    last = unlearn(model, images, device="cpu", **FAST)
    for name, tensor in last.model.state_dict().items():
        assert tensor.is_contiguous()
        assert torch.allclose(tensor, plain.model.state_dict()[name], atol=1e-4), name


def test_logits_are_in_float32_whatever_the_body_does():
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


# Compiling


class Scaled(nn.Module):
    """A model that takes a mapping, as Hugging Face models do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, values):
        return self.layer(torch.tanh(values))


def test_compiled_and_plain_runs_are_equal_and_a_copy_finds_the_code_ready(data):
    if " " in torch.__file__:
        pytest.skip("torch's own compiler calls do not quote paths, and this one has a space")
    values, labels = data
    split = Split({"values": values, "labels": labels}, forget=range(8), adjacent=range(8, 20), remote=range(20, 60))
    settings = FAST | {"stage1_remote_batch": 18, "stage2_remote_batch": 16, "stage1_forget_batch": 8, "limits": None}
    model = Scaled()
    plain = unlearn(model, split, device="cpu", compile="off", **settings)
    before = set(compiled._WARM)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RunWarning)
        fast = unlearn(model, split, device="cpu", compile="on", **settings)
    assert before < compiled._WARM
    assert list(fast.model.state_dict()) == list(model.state_dict())
    for key, tensor in plain.model.state_dict().items():
        assert torch.allclose(fast.model.state_dict()[key], tensor, atol=1e-5)
    known = set(compiled._WARM)
    unlearn(model, split, device="cpu", compile="auto", seed=1, **settings)
    assert known == compiled._WARM


def test_a_filled_batch_has_the_losses_and_the_gradient_of_its_own_samples(data):
    if " " in torch.__file__:
        pytest.skip("torch's own compiler calls do not quote paths, and this one has a space")
    values, labels = data
    split = Split({"values": values, "labels": labels}, forget=range(15), adjacent=range(15, 31), remote=range(31, 60))
    model, found = Scaled(), []
    for way in ("off", "on"):
        bench = Workbench(model, split, device=CPU, compile=way)
        bench.mode("eval")
        for _ in range(3):
            bench.gradient([bench.losses(bench.batches("adjacent", size=16)[0]).mean()])
        losses = bench.losses(bench.batches("forget", size=15)[0])
        found.append([losses.detach(), *bench.gradient([losses.square().mean()])])
        assert {known.samples for known in bench.passes.forwards._known} == ({16} if way == "on" else set())
    for plain, filled in zip(*found, strict=True):
        assert torch.allclose(plain, filled, atol=1e-6)


def test_a_compiler_that_fails_is_no_obstacle(model, split, monkeypatch):
    def broken(*_, **__):
        def call(*_, **__):
            raise RuntimeError("no compiler here")

        return call

    plain = unlearn(model, split, device="cpu", compile="off", **FAST)
    monkeypatch.setattr(torch, "compile", broken)
    with pytest.warns(RunWarning, match="no compiler here"):
        found = unlearn(model, split, device="cpu", compile="on", **FAST)
    assert same(weights(plain.model), weights(found.model))


def variant(samples, *, training=False):
    return Variant("model", training, True, False, (((samples, 5), "torch.float32"), ((samples,), "torch.int64")))


def test_auto_compiles_only_what_saves_more_than_it_takes(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    forwards = Forwards("auto", CPU)
    forwards._steps, forwards._left, forwards._seconds = 10, 1000, 1e-3
    often, rare, never = variant(8), variant(7), variant(6)
    forwards._calls[often], forwards._calls[rare] = 10, 1
    assert forwards._pays(often, samples=8, layers=16)  # 1000 × 8 × 3 × 1 ms × 0.35 = 8.4 s > 8 s
    forwards._claims.pop(often).release()
    assert not forwards._pays(rare, samples=7, layers=16)
    assert not forwards._pays(never, samples=6, layers=16)
    forwards._left = 900
    assert not forwards._pays(often, samples=8, layers=16)
    mark = forwards._mark(often)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()  # what another process compiled is ready in seconds
    assert forwards._pays(often, samples=8, layers=16)


def test_what_another_process_is_compiling_is_waited_for(model, split, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    often = variant(8)
    first, second = (Forwards("auto", CPU) for _ in range(2))  # with an open file each, as two processes have
    for forwards in (first, second):
        forwards._steps, forwards._left, forwards._seconds = 10, 1000, 1e-3
        forwards._calls[often] = 10
    assert first._pays(often, samples=8, layers=16)
    assert first._pays(often, samples=8, layers=16)
    assert not second._pays(often, samples=8, layers=16)
    first._run_compiled(lambda model, data: model(data[0]), model, split.samples.read(torch.arange(8)), often)
    second._left = 100  # ready code pays much sooner
    assert second._pays(often, samples=8, layers=16)
    assert not list(tmp_path.rglob("*.lock"))


def test_a_batch_is_filled_up_to_a_compiled_one_that_is_little_larger():
    forwards = Forwards("on", CPU)
    forwards._known = {variant(128), variant(512), variant(512, training=True)}
    assert forwards._to_fill(variant(500), 500) == 512
    assert forwards._to_fill(variant(512), 512) is None
    assert forwards._to_fill(variant(300), 300) is None, "far from any"
    assert forwards._to_fill(variant(500, training=True), 500) is None, "a sample would depend on the filling"


def test_a_model_that_ran_as_it_is_may_go():
    forwards, model = Forwards("auto", CPU), nn.Linear(5, 3)
    gone = weakref.ref(model)
    forwards.run(logits, model, (torch.zeros(2, 5), torch.zeros(2)))
    del model
    gc.collect()
    assert gone() is None


# One pass, and none for what is known


@pytest.mark.parametrize("named", [False, True])
def test_batches_share_a_pass_where_that_changes_nothing(data, named):
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
    """The size that is asked for; on CUDA more, for there a small pass takes as long as a large one."""
    model = Counting(5, 3)
    bench = Workbench(model.eval(), split, device=CPU)
    assert bench.at_once == 0
    bench.at_once = at_once
    batches = bench.batches("remote", size=4)
    ran = []
    model.register_forward_pre_hook(lambda *_: ran.append(1))
    groups = list(bench.losses_in_passes(batches.several(0, 5), most=most))
    assert len(ran) == len(groups) == passes
    model.train()  # where samples may depend on each other
    assert len(list(bench.losses_in_passes(batches.several(0, 5), most=most))) == 5
    pairs = [pair for group in groups for pair in group]
    assert [batch.rows.tolist() for batch, _ in pairs] == [batches[n].rows.tolist() for n in range(5)]
    for batch, losses in pairs:
        assert torch.allclose(losses, bench.losses(batch))


def test_batches_of_two_lengths_take_two_passes():
    """Padding is cut to a batch's longest sentence, so batches of one subset differ in shape."""

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
    """Counts the samples that went through."""

    seen = 0

    def forward(self, inputs):
        self.seen += len(inputs)
        return super().forward(inputs)


def test_evaluation_runs_each_model_once_and_what_a_look_remembers_never_again(split):
    model, original = Counting(5, 3), Counting(5, 3)
    look = Look(split, split, device="cpu")
    first = evaluate(model, split, split, original=original, look=look, device="cpu")
    assert model.seen == original.seen == 120
    other = Counting(5, 3)
    again = evaluate(other, split, split, original=original, look=look, device="cpu")
    assert (other.seen, original.seen) == (120, 120)
    name = ("loss", "train", "remote")
    assert again.metric(*name).before == first.metric(*name).before


def test_memory_that_is_too_small_halves_the_batches(split):
    sizes = []

    class Small(nn.Linear):
        def forward(self, inputs):
            sizes.append(len(inputs))
            if len(inputs) > 20:
                raise torch.OutOfMemoryError("too much")
            return super().forward(inputs)

    model = Small(5, 3)
    found = predictions.observe(model, split, device="cpu")
    assert sizes[:6] == [60, 60, 60, 60, 32, 16]
    with torch.no_grad():
        expected = nn.functional.linear(split.samples.read(torch.arange(60))[0], model.weight, model.bias)
    assert torch.allclose(found("train").logits, expected)
