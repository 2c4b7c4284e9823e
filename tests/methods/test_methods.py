"""The defining property of every method, and one contract for all of them."""

from __future__ import annotations

import copy
import itertools
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from tests.helpers.calling import unlearn_with
from tests.helpers.fitting import FORMS, ON_ANYTHING, SCALED, method_of, quick
from tests.helpers.tensors import same, weights
from unweave import Compute, OwnLoss, RunError, Split, UsageError, unlearn
from unweave.data import RETAINED
from unweave.engine import Workbench
from unweave.maths import combine, divergence, gram_matrix
from unweave.methods import all_methods, find_method
from unweave.methods.delete import strike_out
from unweave.methods.gdr import Rectified, rectify
from unweave.methods.l1_sparse import L1Sparse, SparseFineTune
from unweave.methods.munba import bargain, literal_bargain
from unweave.methods.relabel import chance, random_labels
from unweave.methods.salun import Saliency, top

CPU = torch.device("cpu")


def bench_of(model, split, seed=0):
    return Workbench(copy.deepcopy(model), split, device=CPU, seed=seed)


def start(phase, bench):
    phase.prepare(bench)
    phase.begin()
    return phase


# One contract


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3)
        )

    def forward(self, images):
        return self.layers(images)


class Transformer(nn.Module):
    """A LayerNorm transformer with dropout that takes keywords and returns an object with .logits."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encode = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask):
        hidden = self.encode(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)
        return type("Output", (), {"logits": self.head(hidden.mean(dim=1))})()


def images():
    generator = torch.Generator().manual_seed(3)
    return (torch.randn(60, 1, 4, 4, generator=generator), torch.arange(60) % 3), Convolutional()


def text():
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(0, 20, (60, 6), generator=generator)
    mask = torch.ones_like(ids)
    mask[::2, 4:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.arange(60) % 3}, Transformer()


@pytest.mark.parametrize("kind", [images, text])
@pytest.mark.parametrize("name", FORMS)
def test_every_method_works_on_images_and_on_text_and_repeats_itself(name, kind):
    torch.manual_seed(0)
    data, model = kind()
    split = Split(data, forget=range(9), adjacent=range(9, 21), remote=range(21, 60))
    before = weights(model)
    first = copy.deepcopy(model)
    arguments = {
        **quick(name),
        "method": method_of(name),
        "seed": 7,
        "initial": lambda: first,
        "compute": Compute("cpu"),
    }
    if name == SCALED:
        arguments["guard"] = None  # what untrained models know by chance is lost
    runs = [unlearn_with(model, split, **arguments) for _ in range(2)]
    assert same(weights(runs[0].model), weights(runs[1].model)), "one seed, one result"
    assert same(before, weights(model)), "the model given is never changed"
    assert same(before, weights(runs[0].model)) == (name == "original")
    assert runs[0].history.rows == runs[1].history.rows
    assert runs[0].cost.sample_gradients > 0 or name == "original"
    assert runs[0].cost.process_memory_bytes is None or runs[0].cost.process_memory_bytes > 0
    assert runs[0].model.training == model.training


PROFILES = [(name, profile) for name, method in ON_ANYTHING.items() for profile in method.profiles if name != "retrain"]


@pytest.mark.parametrize(("name", "profile"), PROFILES)
def test_every_profile_runs(name, profile, digits):
    _, task, original = digits
    few = {"least_steps": 6, "effort": 2.0}  # how long a run is, whatever the profile
    known = ON_ANYTHING[name].configure(profile=profile).to_dict()
    finds_its_length = known.get("steps") == "scaled"
    short = {setting: few.get(setting, 1) for setting in known if setting.endswith("epochs") or setting in few}
    short = {} if finds_its_length else short
    result = unlearn(original, task.train, name, profile=profile, compute=Compute("cpu"), **short)
    assert len(result.history) > 0 or name == "original"


@pytest.mark.parametrize("name", [name for name in FORMS if name not in ("original", "adaptive")])
def test_evaluation_mode_keeps_statistics(name):
    """Normalisation is a setting of every gradient method but adaptive, and every method follows it."""
    data, model = images()
    split = Split(data, forget=range(9), adjacent=range(9, 21), remote=range(21, 60))
    for mode in ("eval", "train"):
        result = unlearn_with(
            model,
            split,
            method=method_of(name),
            normalisation=mode,
            initial=lambda: copy.deepcopy(model),
            compute=Compute("cpu"),
            **({"guard": None} if name == SCALED else {}),
            **quick(name),
        )
        kept = same(list(model.buffers()), list(result.model.buffers()))
        assert kept == (mode == "eval")


class Forbidden(Dataset):
    def __init__(self, data, rows):
        self.data, self.rows = data, set(rows.tolist())

    def __len__(self):
        return len(self.data[1])

    def __getitem__(self, index):
        assert index not in self.rows, f"sample {index} was read"
        return self.data[0][index], self.data[1][index]


@pytest.mark.parametrize("name", FORMS)
def test_a_method_reads_what_it_says_it_needs_and_nothing_else(name, data, split, model):
    method = ON_ANYTHING[method_of(name)]
    for subset in ("forget", "adjacent", "remote"):
        guarded = Split(Forbidden(data, split[subset]), split.forget, split.adjacent, split.remote)
        arguments = {**quick(name), "initial": lambda: copy.deepcopy(model), "guard": None, "compute": Compute("cpu")}
        if any(subset == need or subset in need for need in method.needs):
            with pytest.raises(AssertionError, match="was read"):
                unlearn_with(model, guarded, method=method_of(name), **arguments)
        else:
            unlearn_with(model, guarded, method=method_of(name), **arguments)


@pytest.mark.parametrize("name", [name for name in FORMS if ON_ANYTHING[method_of(name)].needs])
def test_a_method_says_what_it_lacks(name, data, model):
    bare = Split(data, forget=[], adjacent=[], remote=[], allow_empty=True)
    method = method_of(name)
    first = ON_ANYTHING[method].needs[0]
    lacking = first if isinstance(first, str) else " or ".join(first)
    with pytest.raises(UsageError, match=f"{method} needs {lacking} data"):
        unlearn(model, bare, method=method, compute=Compute("cpu"), **quick(name))


@pytest.mark.parametrize("name", [name for name in ON_ANYTHING if RETAINED in ON_ANYTHING[name].needs])
def test_what_takes_all_that_is_kept_as_one_needs_no_neighbours(name, data, split, model):
    """A user may know of no neighbours of the forget set, and still wants to retrain."""
    kept = np.concatenate([split.adjacent, split.remote])
    alone = Split(data, split.forget, [], kept, allow_empty=True)
    arguments = {**quick(name), "initial": lambda: copy.deepcopy(model), "guard": None, "compute": Compute("cpu")}
    found = unlearn_with(model, alone, method=name, **arguments).model
    assert any(not torch.equal(a, b) for a, b in zip(found.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("name", ["ga", "delete"])
def test_one_sample_and_statistics_of_a_batch(name, data):
    model = nn.Sequential(nn.Linear(data[0].shape[1], 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    one = Split(data, forget=[0], adjacent=[1, 2], allow_empty=True)
    common = {"guard": None, "compute": Compute("cpu")}
    with pytest.raises(UsageError, match="Use normalisation=eval"):
        unlearn(model, one, method=name, normalisation="train", **common)
    unlearn(model, one, method=name, normalisation="eval", **common)


@pytest.mark.parametrize("name", [name for name in ON_ANYTHING if name not in ("original", "ssd")])
def test_divergence_stops_with_the_step(name, split, model):
    values = dict(quick(name))
    for rate in ("learning_rate", "stage1_learning_rate", "stage2_learning_rate", "reach"):
        if rate in ON_ANYTHING[name].configure(values).to_dict():
            values[rate] = 1e30
    if "epochs" in values:
        values["epochs"] = 30
    with pytest.raises(RunError, match=r"in step|in the last step"):
        unlearn_with(model, split, method=name, initial=lambda: copy.deepcopy(model), compute=Compute("cpu"), **values)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("ga", "learning_rate", 1e39),
        ("ft", "weight_decay", 1e308),
        ("scrub", "learning_rate", 1e38),  # Adam multiplies it by ten before single precision holds it
        ("scrub", "temperature", 1e308),
        ("unweave", "target", 1e308),
        ("adaptive", "margin", 1e308),
    ],
)
@pytest.mark.parametrize("guard", [None, "default"])
def test_a_number_that_becomes_too_large_ends_the_run_and_says_where(name, setting, value, guard, split, model):
    values = {**quick(name), setting: value}
    guarded = {} if guard else {"guard": None}
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RunError, match=r"(in step \d+|before the first step) of .*\. Nothing was changed"):
        unlearn(model, split, method=name, compute=Compute("cpu"), **guarded, **values)
    assert all(torch.equal(model.state_dict()[key], tensor) for key, tensor in before.items())


def test_an_effort_without_end_is_refused():
    with pytest.raises(UsageError, match="effort is 1e\\+308, but must be above 0 and at most 1e\\+06"):
        find_method("adaptive")(effort=1e308)


# Fine-tuning, ascent, retraining


def test_ascent_raises_the_forget_loss_monotonically_for_a_small_step(split, model):
    losses = unlearn(
        model, split, method="ga", learning_rate=1e-3, momentum=0.0, weight_decay=0.0, epochs=20, compute=Compute("cpu")
    ).history.column("loss")
    assert all(later > earlier for earlier, later in itertools.pairwise(losses))


def test_retraining_begins_from_the_initial_weights(split, model):
    def initial():
        torch.manual_seed(42)
        return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))

    tiny = {"method": "retrain", "epochs": 1, "learning_rate": 1e-12, "optimizer": "sgd", "compute": Compute("cpu")}
    result = unlearn_with(model, split, initial=initial, **tiny)
    for ours, theirs in zip(result.model.parameters(), initial().parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-9)
    with pytest.raises(UsageError, match="needs the weights that training began from"):
        unlearn(model, split, **tiny)
    with pytest.raises(UsageError, match="needs the recipe"):
        unlearn_with(model, split, method="retrain", initial=initial, compute=Compute("cpu"))


def test_retraining_on_digits_is_training_without_the_forget_set(digits):
    benchmark, task, _ = digits
    again = unlearn_with(
        benchmark.initial(0),
        task.train,
        method="retrain",
        initial=lambda: benchmark.initial(0),
        compute=Compute("cpu"),
        **benchmark.settings_for(find_method("retrain"), None),
    ).model
    inputs, labels = task.train.samples.dataset.data
    with torch.no_grad():
        correct = again.eval()(inputs).argmax(1) == labels
    assert correct[task.train.remote].double().mean() > 0.99
    assert correct[task.train.forget].double().mean() < 0.5


# ℓ1-sparse


def test_the_penalty_of_l1_sparse_fades():
    phase = SparseFineTune(L1Sparse(sparsity=1.0, epochs=10))
    assert [phase.penalty(epoch) for epoch in range(10)] == pytest.approx([1 - e / 10 for e in range(10)])
    tail = SparseFineTune(L1Sparse(sparsity=1.0, epochs=10, plain_epochs=5))
    assert [tail.penalty(epoch) for epoch in range(10)] == pytest.approx([1, 0.8, 0.6, 0.4, 0.2, 0, 0, 0, 0, 0])
    with pytest.raises(UsageError, match="more than the 3 epochs"):
        SparseFineTune(L1Sparse(epochs=3, plain_epochs=4))


def test_l1_sparse_steps_along_loss_plus_norm(split, model):
    plain = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0}
    settings = L1Sparse(**plain, learning_rate=0.1, sparsity=0.3, epochs=1, batch_size=100)
    bench = bench_of(model, split)
    phase = start(SparseFineTune(settings), bench)
    twin = copy.deepcopy(bench.model)
    phase.step(0)
    batch = phase.batches[0]
    loss = functional.cross_entropy(twin(batch.data[0]), batch.data[1])
    loss = loss + 0.3 * sum(parameter.abs().sum() for parameter in twin.parameters())
    gradient = torch.autograd.grad(loss, list(twin.parameters()))
    for before, step, after in zip(twin.parameters(), gradient, bench.parameters, strict=True):
        assert torch.allclose(before - 0.1 * step, after, atol=1e-6)


# SCRUB


def test_scrub_makes_exactly_m_forget_passes_and_ends_with_retained_ones(split, model):
    method = find_method("scrub")
    settings = method.configure({"epochs": 4, "forget_epochs": 2, "batch_size": 13, "forget_batch": 3})
    bench = bench_of(model, split)
    (phase,) = settings.phases()
    start(phase, bench)
    kinds = [is_forget for _, is_forget, _ in phase.plan]
    assert kinds == ([True] * 3 + [False] * 4) * 2 + [False] * 8
    teacher = weights(phase.teacher)
    for number in range(phase.steps):
        phase.step(number)
    assert same(teacher, weights(phase.teacher))
    assert same(teacher, weights(model))
    assert not same(teacher, weights(bench.model))


def test_divergence_is_the_teachers_kl():
    teacher, student = torch.randn(5, 4), torch.randn(5, 4)
    expected = functional.kl_div(
        functional.log_softmax(student / 3, 1), functional.softmax(teacher / 3, 1), reduction="none"
    ).sum(1)
    assert torch.allclose(divergence(teacher, student, temperature=3.0), expected, atol=1e-6)
    assert torch.allclose(divergence(teacher, teacher), torch.zeros(5), atol=1e-6)


# SSD


def linear_split():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(24, 3, generator=generator, dtype=torch.float64)
    return inputs, torch.arange(24) % 2, nn.Linear(3, 2, bias=False).double()


def test_ssd_on_a_linear_model_equals_the_closed_form():
    inputs, labels, model = linear_split()
    split = Split((inputs, labels), forget=range(6), adjacent=range(6, 12), remote=range(12, 24))
    result = unlearn(model, split, method="ssd", batch_size=1, selection=1.2, dampening=0.5, compute=Compute("cpu"))
    # Cross-entropy of a linear model: the gradient of sample i is (p − onehot(y)) xᵀ.
    chances = functional.softmax(inputs @ model.weight.detach().T, 1) - functional.one_hot(labels, 2)
    squares = (chances[:, :, None] * inputs[:, None, :]).square()
    everywhere, on_forget = squares.mean(0), squares[:6].mean(0)
    factor = torch.where(on_forget > 1.2 * everywhere, (0.5 * everywhere / on_forget).clamp(max=1), 1.0)
    assert torch.allclose(result.model.weight, model.weight * factor, atol=1e-12)
    assert (factor < 1).any()
    assert (factor == 1).any()


def test_ssd_of_single_samples_does_not_depend_on_order_and_that_of_batches_does():
    inputs, labels, model = linear_split()
    found = {}
    for size in (1, 6):
        for order in ("label", "dataset"):
            split = Split((inputs, labels), forget=range(6), adjacent=range(6, 12), remote=range(12, 24))
            settings = {"batch_size": size, "order": order, "selection": 0.9, "dampening": 0.9}
            found[size, order] = unlearn(model, split, method="ssd", compute=Compute("cpu"), **settings).model.weight
    assert torch.allclose(found[1, "label"], found[1, "dataset"], atol=1e-12)
    assert not torch.allclose(found[6, "label"], found[6, "dataset"], atol=1e-6)


def test_ssd_in_the_order_of_the_release_takes_remote_then_adjacent_then_forget_data():
    inputs, labels, model = linear_split()
    split = Split((inputs, labels), forget=range(0, 24, 3), adjacent=range(1, 24, 3), remote=range(2, 24, 3))
    (phase,) = find_method("ssd").configure({"batch_size": 5}, profile="released").phases()
    phase.prepare(bench_of(model, split))
    order = torch.cat([batch.rows for batch in phase.everything.in_order()])
    assert order.tolist() == [*split.remote, *split.adjacent, *split.forget]


def test_ssd_never_enlarges_and_selects_nothing_for_a_huge_threshold():
    inputs, labels, model = linear_split()
    split = Split((inputs, labels), forget=range(6), adjacent=range(6, 12), remote=range(12, 24))
    shrunk = unlearn(model, split, method="ssd", selection=0.1, dampening=5.0, compute=Compute("cpu")).model.weight
    assert (shrunk.abs() <= model.weight.abs() + 1e-12).all()
    same_again = unlearn(model, split, method="ssd", selection=1e12, compute=Compute("cpu")).model.weight
    assert torch.equal(same_again, model.weight)


# SalUn


@pytest.mark.parametrize("passes", ["mixed", "in turn"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_salun_moves_the_chosen_share_and_nothing_else(split, model, optimizer, passes):
    settings = {
        "optimizer": optimizer,
        "momentum": 0.9 if optimizer == "sgd" else 0.0,
        "weight_decay": 0.1,
        "learning_rate": 1e-2,
        "saliency": 0.3,
        "batch_size": 16,
        "epochs": 3,
        "passes": passes,
    }
    held = unlearn(model, split, method="salun", compute=Compute("cpu"), **settings)
    leaked = unlearn(model, split, method="salun", leak=True, compute=Compute("cpu"), **settings)

    def moved(result):
        pairs = zip(model.parameters(), result.model.parameters(), strict=True)
        return torch.cat([(a != b).reshape(-1) for a, b in pairs])

    count = sum(parameter.numel() for parameter in model.parameters())
    assert moved(held).sum() <= round(0.3 * count)
    assert moved(held).sum() > 0.15 * count
    assert moved(leaked).sum() > 0.9 * count


def test_the_mask_is_the_global_top_of_the_signed_gradient(split, model):
    method = find_method("salun")
    settings = method.configure({"saliency": 0.25, "batch_size": 3})
    bench = bench_of(model, split)
    phase = start(Saliency(settings), bench)
    for number in range(phase.steps):
        phase.step(number)
    inputs, labels = split.samples.dataset.data
    total = None
    for number in range(phase.steps):
        rows = phase.forget[number].rows
        loss = -functional.cross_entropy(model(inputs[rows]), labels[rows])
        part = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])
        total = part if total is None else total + part
    flags = torch.cat([mask.reshape(-1) for mask in phase.masks()])
    assert flags.sum() == round(0.25 * len(flags))
    assert total.abs()[flags].min() >= total.abs()[~flags].max() - 1e-6


@given(values=st.lists(st.integers(0, 3), min_size=1, max_size=30), share=st.floats(0, 1))
def test_top_marks_exactly_as_many_as_asked(values, share):
    scores, count = torch.tensor(values, dtype=torch.float64), round(share * len(values))
    flags = top(scores, count)
    assert flags.sum() == count
    if 0 < count < len(values):
        assert scores[flags].min() >= scores[~flags].max()


def test_the_released_variant_chooses_whole_tensors(split, model):
    method = find_method("salun")
    settings = method.configure(profile="released")
    phase = start(Saliency(settings), bench_of(model, split))
    phase.step(0)
    masks = phase.masks()
    assert all(mask.all() or not mask.any() for mask in masks)
    assert sum(bool(mask.all()) for mask in masks) == math.ceil(0.5 * len(masks))
    unlearning = settings.phases()[1]
    assert unlearning.name == "difference"


def test_a_mask_of_tensors_is_scored_on_the_batches_of_the_difference(split, model):
    method = find_method("salun")
    settings = method.configure({"forget_batch": 1, "batch_size": 8}, profile="released")
    phase = start(Saliency(settings), bench_of(model, split))
    for number in range(phase.steps):
        phase.step(number)
    inputs, labels = split.samples.dataset.data
    for place, parameter in enumerate(model.parameters()):
        losses = [functional.cross_entropy(model(inputs[row]), labels[row]) for row in split.forget]
        total = sum(torch.autograd.grad(loss, parameter)[0].abs() for loss in losses)
        assert torch.allclose(phase.gradient[place], total, atol=1e-6)


def test_random_labels_are_uniform_repeatable_and_can_exclude_the_truth():
    true = torch.arange(30_000) % 5
    drawn = chance(30_000, seed=1, turn=2, device=CPU)
    assert torch.equal(drawn, chance(30_000, seed=1, turn=2, device=CPU))
    assert not torch.equal(drawn, chance(30_000, seed=1, turn=3, device=CPU))
    free = random_labels(true, drawn, classes=5)
    assert torch.bincount(free, minlength=5).double().div(30_000).sub(0.2).abs().max() < 0.02
    assert (free == true).double().mean() == pytest.approx(0.2, abs=0.02)
    other = random_labels(true, drawn, classes=5, exclude_true=True)
    assert not (other == true).any()
    assert torch.bincount(other, minlength=5).double().div(30_000).sub(0.2).abs().max() < 0.02


def test_salun_relabels_forget_samples_only_and_anew_each_epoch(split, model):
    method = find_method("salun")
    phases = method.configure({"batch_size": 60, "exclude_true": True, "saliency": 1.0}).phases()
    bench = bench_of(model, split)
    start(phases[0], bench)
    phase = start(phases[1], bench)
    batch = phase.plan[0][1][0]
    first, again, second = (phase.relabelled(batch, epoch) for epoch in (0, 0, 1))
    is_forget = torch.isin(batch.rows, torch.from_numpy(split.forget))
    assert torch.equal(first.labels[~is_forget], batch.labels[~is_forget])
    assert not (first.labels == batch.labels)[is_forget].any()
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.labels, second.labels)


# DELETE


def test_delete_strikes_out_the_label_and_pulls_towards_the_rest():
    teacher, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    target = functional.softmax(strike_out(teacher, labels), 1)
    assert target[torch.arange(6), labels].eq(0).all()
    whole = functional.softmax(teacher, 1)
    for row, label in enumerate(labels):
        rest = [k for k in range(4) if k != label]
        assert torch.allclose(target[row, rest], whole[row, rest] / whole[row, rest].sum(), atol=1e-6)
    student = torch.randn(6, 4, requires_grad=True)
    divergence(strike_out(teacher, labels), student).sum().backward()
    assert torch.allclose(student.grad, functional.softmax(student, 1) - target, atol=1e-6)
    assert student.grad.isfinite().all()


def test_delete_with_two_classes_is_label_flipping():
    inputs, labels = torch.randn(40, 5), torch.arange(40) % 2
    split = Split((inputs, labels), forget=range(10), adjacent=range(10, 20), remote=range(20, 40))
    model = nn.Linear(5, 2)
    settings = {"learning_rate": 0.1, "epochs": 3, "batch_size": 4, "seed": 3, "compute": Compute("cpu")}
    deleted = unlearn(model, split, method="delete", **settings).model
    # Ascending on the negative loss of the other label is descending on that label.
    other = unlearn(
        model,
        split,
        method="ga",
        optimizer="sgd",
        momentum=0.9,
        weight_decay=0.0,
        task=OwnLoss(lambda m, b: -functional.cross_entropy(m(b[0]), 1 - b[1], reduction="none")),
        **settings,
    ).model
    assert torch.allclose(deleted.weight, other.weight, atol=1e-5)


# GDR


@given(seed=st.integers(0, 9999))
def test_rectified_gradients(seed):
    generator = torch.Generator().manual_seed(seed)
    n, t = (torch.randn(6, dtype=torch.float64, generator=generator) for _ in range(2))
    new_n, new_t = rectify(n, t)
    dot = n @ t
    if dot >= 0:
        assert torch.equal(new_n, n)
        assert torch.equal(new_t, t)
        return
    cosine = dot / n.norm() / t.norm()
    assert new_n @ t == pytest.approx(0, abs=1e-10)
    assert new_t @ n == pytest.approx(float(dot * cosine**2), abs=1e-9)
    assert new_n @ new_t >= 0


def test_zero_gradients_do_not_break_the_rectification():
    zero, other = torch.zeros(3), torch.ones(3)
    for pair in ((zero, other), (other, zero), (zero, zero)):
        assert all(part.isfinite().all() for part in rectify(*pair))


@pytest.mark.parametrize("literal", [False, True])
def test_the_bank_is_left_alone_unless_upstream_is_wanted(split, model, literal):
    method = find_method("gdr")
    phase = start(Rectified(method.configure({"literal_bank": literal})), bench_of(model, split))
    phase.bank = [torch.tensor([1.0, 0.0]), torch.tensor([2.0, 1.0]), torch.tensor([-1.0, 0.0])]
    before = [entry.clone() for entry in phase.bank]
    forget = torch.tensor([-1.0, 1.0])
    result = phase.rectify_against_bank(forget)
    assert same(before, phase.bank) != literal
    if not literal:
        mean = torch.tensor([1.5, 0.5])
        expected = forget - (forget @ mean) / (mean @ mean) * mean
        assert torch.allclose(result, expected)
    assert torch.equal(phase.rectify_against_bank(torch.tensor([0.0, 0.0])), torch.tensor([0.0, 0.0]))


def test_gdr_forgets_only_while_the_retained_loss_is_low(split, model):
    method = find_method("gdr")
    bench = bench_of(model, split)
    for sharpness, tolerance in ((100.0, 0.02), (3.0, 1.0)):
        phase = start(Rectified(method.configure({"sharpness": sharpness, "tolerance": tolerance})), bench)
        logged = phase.step(0)
        retained = float(logged["retained_loss"])
        assert float(logged["weight"]) == pytest.approx(
            1 / (1 + math.exp(sharpness * (retained - tolerance))), rel=1e-4
        )
    assert retained > 0.1


def test_gdr_without_weight_on_forgetting_is_fine_tuning(split, model):
    """A model that does not fit its data (loss near 1) gets w ≈ 0: only the rectified retained gradient counts."""
    shared = {
        "optimizer": "sgd",
        "momentum": 0.0,
        "weight_decay": 0.0,
        "epochs": 1,
        "batch_size": 60,
        "compute": Compute("cpu"),
    }
    rate = {"learning_rate": 1e-3}
    gdr = unlearn(model, split, method="gdr", **shared, **rate).model
    bench = bench_of(model, split)
    inputs, labels = split.samples.dataset.data
    kept = torch.cat([torch.from_numpy(split.adjacent), torch.from_numpy(split.remote)])
    gradients = []
    for rows, sign in ((kept, 1), (torch.from_numpy(split.forget), -1)):
        loss = sign * functional.cross_entropy(bench.model(inputs[rows]), labels[rows])
        gradients.append(torch.autograd.grad(loss, bench.parameters))
    for before, after, n, t in zip(model.parameters(), gdr.parameters(), *gradients, strict=True):
        assert torch.allclose(before - 1e-3 * rectify(n, t)[0], after, atol=1e-6)


def test_the_bank_of_gdr_is_counted_in_the_larger_batches(split, model):
    method = find_method("gdr")
    for batches, capacity in (({"batch_size": 2}, 4), ({"batch_size": 4, "forget_batch": 1}, 2)):
        phase = start(Rectified(method.configure({"epochs": 2, **batches})), bench_of(model, split))
        for number in range(phase.steps):
            phase.step(number)
        assert phase.steps > capacity == len(phase.bank)


@pytest.mark.parametrize("name", ["gdr", "munba"])
def test_forget_batches_are_as_large_as_retained_ones_unless_said_otherwise(split, model, name):
    method = find_method(name)
    for chosen, forget in (({}, 4), ({"forget_batch": 2}, 2)):
        (phase,) = method.configure({"batch_size": 4, **chosen}).phases()
        phase.prepare(bench_of(model, split))
        assert (phase.forget.size, phase.retained.size) == (forget, 4)


# MUNBa


@given(seed=st.integers(0, 9999), power=st.integers(-5, 5))
def test_the_bargain(seed, power):
    generator = torch.Generator().manual_seed(seed)
    retained = [10.0**power * torch.randn(7, dtype=torch.float64, generator=generator)]
    forget = [torch.randn(7, dtype=torch.float64, generator=generator)]
    gram = gram_matrix([retained, forget])
    share = bargain(gram)
    (direction,) = combine([retained, forget], share)
    assert direction.norm() == pytest.approx(math.sqrt(2), rel=1e-6)
    for player, part in zip((retained[0], forget[0]), share, strict=True):
        assert direction @ player == pytest.approx(float(1 / part), rel=1e-6)
    scaled = bargain(gram_matrix([[3.0 * retained[0]], forget]))
    assert torch.allclose(combine([[3.0 * retained[0]], forget], scaled)[0], direction, atol=1e-9)


def test_the_literal_weights_fail_where_the_spec_says_so():
    """‖g_f‖ = 5, ‖g_r‖ = 0.01, cos = −0.05: the absolute 1e-8 dominates."""
    gram = torch.tensor([[1e-4, -0.05 * 0.05], [-0.05 * 0.05, 25.0]], dtype=torch.float64)
    assert float(bargain(gram)[1]) == pytest.approx(0.205, abs=1e-3)
    assert float(literal_bargain(gram)[1]) == pytest.approx(0.048, abs=5e-3)
    healthy = torch.tensor([[1.0, 0.3], [0.3, 2.0]], dtype=torch.float64)
    assert torch.allclose(bargain(healthy), literal_bargain(healthy), rtol=1e-4)


def test_opposite_gradients_do_not_break_the_bargain():
    gram = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    assert bargain(gram).isfinite().all()
    assert bargain(torch.zeros(2, 2, dtype=torch.float64)).isfinite().all()


def test_every_bargaining_step_has_length_one(split, model):
    method = find_method("munba")
    plain = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "learning_rate": 0.1}
    settings = method.configure(plain | {"pairing": "cycle", "batch_size": 8}, profile="closed-form")
    bench = bench_of(model, split)
    (phase,) = settings.phases()
    start(phase, bench)
    for number in range(5):
        before = torch.cat([parameter.detach().reshape(-1).clone() for parameter in bench.parameters])
        phase.step(number)
        after = torch.cat([parameter.detach().reshape(-1) for parameter in bench.parameters])
        assert (after - before).norm() == pytest.approx(0.1, rel=1e-3)


def test_once_paired_the_rest_of_the_epoch_is_training(split, model):
    shared = {"method": "munba", "batch_size": 8, "epochs": 2, "learning_rate": 1e-3, "compute": Compute("cpu")}
    once = unlearn(model, split, pairing="once", **shared).history
    cycle = unlearn(model, split, pairing="cycle", **shared).history
    assert len(once) == len(cycle) == 14
    assert len(once.column("relabelled_loss")) == 2
    assert len(cycle.column("relabelled_loss")) == 14


# A third party


def test_a_package_of_its_own_brings_a_method(tmp_path, monkeypatch, split, model):
    (tmp_path / "shrinking.py").write_text(
        "import torch\n"
        "from unweave.engine import Phase\n"
        "from unweave.methods import Method\n"
        "class Shrink(Phase):\n"
        "    name = 'shrink'\n"
        "    steps = 3\n"
        "    @torch.no_grad()\n"
        "    def step(self, number):\n"
        "        for parameter in self.bench.parameters:\n"
        "            parameter.mul_(0.5)\n"
        "        return {}\n"
        "class Halve(Method):\n"
        "    name, summary, needs = 'shrink', 'Halve.', ()\n"
        "    def phases(self):\n"
        "        return [Shrink()]\n"
    )
    info = tmp_path / "shrinking-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shrinking\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[unweave.methods]\nshrink = shrinking:Halve\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "shrink" in all_methods()
    result = unlearn(model, split, method="shrink", compute=Compute("cpu"))
    assert torch.allclose(result.model[0].weight, model[0].weight / 8)
    monkeypatch.delitem(sys.modules, "shrinking", raising=False)


def test_our_own_methods_are_found_without_a_look_at_every_installed_package(monkeypatch):
    def look(**_):
        raise AssertionError("it looked")

    monkeypatch.setattr("unweave.methods.known.entry_points", look)
    assert find_method("two-stage").name == "two-stage"
    with pytest.raises(AssertionError, match="it looked"):
        find_method("somebody-elses")


def test_numbers_of_a_linear_model_by_hand():
    """One frozen number: one GA step on one sample of a linear model."""
    model = nn.Linear(1, 2, bias=False)
    model.weight.data = torch.zeros(2, 1)
    split = Split((torch.ones(3, 1), torch.tensor([0, 0, 1])), forget=[0], adjacent=[1], remote=[2])
    plain = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0}
    result = unlearn(model, split, method="ga", learning_rate=1.0, epochs=1, compute=Compute("cpu"), **plain)
    assert np.allclose(result.model.weight.detach().ravel(), [-0.5, 0.5])
