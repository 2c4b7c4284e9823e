"""Every method, the guard, scores, folders, resume and records on every task."""

from __future__ import annotations

import json
import warnings
from functools import partial

import pytest
import torch
from torch import nn

import unweave as uw
from tests.helpers.fitting import ON_TOKENS
from tests.helpers.folders import configuration
from tests.helpers.tensors import same, weights
from tests.helpers.texts import WORDS, llama, tokenizer
from unweave.methods import METHODS
from unweave.runs import load_weights

CPU = uw.Compute("cpu")
PARTS = {"forget": range(12), "adjacent": range(12, 36), "remote": range(36, 96)}
QUIET = uw.Progress(show=False)
UNCLASSED = (uw.Regression, uw.Language)
NEED_CLASSES = ("scrub", "salun", "delete", "munba")
ON_ANSWERS = {"epochs": 1, "batch_size": 8, "learning_rate": 1e-3}


def inputs():
    return torch.randn(96, 6, generator=torch.Generator().manual_seed(1))


class Mapped(nn.Module):
    """A model that takes a mapping, with LayerNorm."""

    def __init__(self, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.ReLU(), nn.Linear(12, outputs))

    def forward(self, values):
        return self.layers(values)


def normalised(outputs):
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, outputs))


def images(outputs):
    return nn.Sequential(nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, outputs))


def as_pair(labels):
    return inputs(), labels


def as_mapping(labels):
    return {"values": inputs(), "labels": labels}


def as_images(labels):
    return inputs().view(96, 1, 2, 3), labels


def classes():
    return (inputs()[:, 0] > 0).long() + (inputs()[:, 1] > 0).long()


def yes_or_no():
    return (inputs()[:, 0] + inputs()[:, 1] > 0).long()


def several():
    return (inputs()[:, :3] > 0).float()


def numbers():
    return inputs()[:, :1] * 3 + 1


def words():
    """Texts of seven tokens: four of a prompt and three that follow from it."""
    prompt = torch.randint(1, 20, (96, 4), generator=torch.Generator().manual_seed(2))
    answer = (prompt[:, :3] + prompt[:, 1:]) % 20
    return torch.cat([prompt, answer], dim=1)


def as_texts(tokens):
    labels = tokens.clone()
    labels[:, :4] = -100
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


KINDS = {  # task: labels, outputs, model, data
    "classification-images": (uw.Classification, classes, 3, images, as_images),
    "classification-mapping": (uw.Classification, classes, 3, Mapped, as_mapping),
    "binary": (uw.Binary, yes_or_no, 1, normalised, as_pair),
    "multi-label": (uw.MultiLabel, several, 3, Mapped, as_mapping),
    "regression": (uw.Regression, numbers, 1, normalised, as_pair),
    "language": (uw.Language, words, 20, partial(llama, hidden=16, layers=1), as_texts),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    """A task, a model that was trained on it, and its split."""
    task, labels, outputs, make, data = KINDS[request.param]
    torch.manual_seed(0)
    model = make(outputs)
    split = uw.Split(data(labels()), **PARTS)
    made = uw.Retrain(epochs=60, learning_rate=1e-2, batch_size=32, initial=lambda: model)
    whole = uw.Split(split.samples, range(0), range(48), range(48, 96), allow_empty=True)
    trained = uw.unlearn(model, whole, made, compute=CPU, guard=None, callbacks=[QUIET])
    return task, trained.model, split


def settings_of(name, model):
    quick = {"epochs": 1, "batch_size": 32}
    own = {
        "original": {},
        "ssd": {},
        "two-stage": {"stage1_epochs": 1, "stage2_epochs": 1},
        "pgd": {"stage1_epochs": 1, "stage2_epochs": 1},
        "unweave": {"epochs": 1, "least_steps": 4},
        "adaptive": {"effort": 2.0, "least_steps": 4},
        "retrain": {**quick, "initial": lambda: model},
        "rmu": {**ON_ANSWERS, "layer": 0},
        "dpo": {**ON_ANSWERS, "alternatives": other_words()},
        "idk-dpo": {**ON_ANSWERS, "tokenizer": tokenizer(WORDS[:17])},
        "altpo": {**ON_ANSWERS, "alternatives": other_words()},
    }
    return own.get(name, ON_ANSWERS if name in ON_TOKENS else quick)


def other_words():
    """Another answer to each of the forget texts."""
    texts = words()[list(PARTS["forget"])]
    texts[:, 4:] = (texts[:, 4:] + 1) % 20
    return as_texts(texts)


@pytest.mark.parametrize(("name", "profile"), [*((name, None) for name in METHODS), ("two-stage", "released")])
def test_every_method_works_on_every_task_or_says_why_not(kind, name, profile):
    """By name, two-stage finds its steps; its profile has fixed ones."""
    task, model, split = kind
    before = weights(model)

    def run():
        how = {"compute": CPU, "guard": None, "callbacks": [QUIET], "profile": profile}
        return uw.unlearn(model, split, name, **how, **settings_of(name, model))

    if name in ON_TOKENS and task is not uw.Language:
        with pytest.raises(uw.UsageError, match="works on the tokens of answers"):
            run()
        return
    if task in UNCLASSED and name in NEED_CLASSES:
        with pytest.raises(uw.UsageError, match=f"{task.name} has no classes"):
            run()
        return
    first, second = run(), run()
    assert isinstance(first.task, task) or first.task is None
    assert same(weights(first.model), weights(second.model))
    assert same(weights(model), before)


def test_scores_guard_folder_resume_and_record(kind, tmp_path):
    task, model, split = kind
    steps = iter(range(99))
    method = uw.Unweave(epochs=2, least_steps=8, target=4.0)
    how = {"test": split, "compute": CPU, "guard": uw.Limits(share=1.0, adjacent_accuracy_drop=1.0, samples=20)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = uw.unlearn(model, split, method, out=tmp_path / "whole", **how)
        with pytest.raises(uw.Stopped):
            uw.unlearn(
                model, split, method, out=tmp_path / "run", callbacks=[uw.StopWhen(lambda: next(steps) == 4)], **how
            )
        result = uw.unlearn(model, split, method, out=tmp_path / "run", resume=True, **how)
    assert same(weights(result.model), weights(whole.model))
    assert same(weights(load_weights(model_like(model), tmp_path / "run")), weights(result.model))
    assert "accuracy" in result.checks[-1]["remote"]
    scores = result.scores["train"]
    assert 0 <= scores["forget"]["accuracy"] <= 1
    assert result.verdict.forgotten is (scores["forget"]["accuracy"] <= 0.01)
    config = configuration(tmp_path / "run")
    assert config.get("task", "classification") == task.name
    uw.record.write(result, {"id": "17"})
    exact = json.loads((tmp_path / "run" / "exact-scores.json").read_text())
    bound = exact["certificate"]["bound"]
    assert (bound is None) if task in UNCLASSED else bound >= scores["forget"]["accuracy"]


def model_like(model):
    import copy

    found = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.zero_()
    return found


def test_attacks_are_made_or_absent_with_the_reason(kind):
    task, model, split = kind
    scores = uw.evaluate(model, split, split, reference=model, resamples=0, compute=uw.Compute("cpu"))
    assert scores.metric("mia_population_auc", "train", "forget").value is not None
    assert scores.metric("loss_wasserstein", "train", "forget").value == 0
    needing = [
        scores.metric("mia_rmia_auc", "train", "forget"),
        scores.metric("prediction_total_variation", "train", "forget"),
    ]
    for metric in needing:
        if task in UNCLASSED:
            assert metric.value is None
            assert f"{task.name} has no class probabilities" in metric.note
        else:
            assert metric.value is not None


@pytest.mark.parametrize(
    ("labels", "outputs", "task", "words"),
    [
        (classes().float(), 3, None, "needs one integer per sample as its label, not torch.float32"),
        (classes(), 1, None, r"one logit tells only two classes apart.*task='regression'"),
        (classes(), 1, "binary", r"has the label \[2\], but a model with one logit tells .*task='classification'"),
        (numbers(), 3, "classification", r"not torch.float32 of shape \(12, 1\)\. If .* use task='regression'"),
        (several(), 3, "classification", r"several for each sample, are those of task='multi-label'"),
        (classes(), 3, "regression", r"A sample has 1 label, but the model predicts 3 numbers.*task='classification'"),
        (several(), 2, None, "The model gives 2 numbers per sample, but a sample has 3 labels"),
        (several() * 2, 3, "multi-label", "each must be 0 or 1"),
        (numbers() * torch.nan, 1, "regression", "is not finite|NaN"),
        (classes(), 3, "clasification", "Did you mean 'classification'"),
    ],
)
def test_a_task_that_does_not_fit_names_the_one_that_would(labels, outputs, task, words):
    split = uw.Split((inputs(), labels), **PARTS)
    with pytest.raises(uw.UsageError, match=words):
        uw.unlearn(nn.Linear(6, outputs), split, "ga", task=task, compute=CPU)


def test_a_loss_of_ones_own_may_say_what_recognised_means():
    def loss(model, batch):
        return (model(batch[0])[:, 0] - batch[1][:, 0]).abs()

    task = uw.OwnLoss(loss, recognised=lambda model, batch: loss(model, batch) < 1)
    split = uw.Split((inputs(), numbers()), **PARTS)
    model = nn.Linear(6, 1)
    result = uw.unlearn(model, split, "ga", task=task, compute=CPU, guard=None)
    expected = (loss(result.model, (inputs()[:12], numbers()[:12])) < 1).float().mean()
    assert result.scores["train"]["forget"]["accuracy"] == pytest.approx(float(expected))
    bare = uw.unlearn(model, split, "ga", task=uw.OwnLoss(loss), compute=CPU, guard=None)
    assert bare.scores["train"]["forget"]["accuracy"] >= 0  # the task that outputs and labels speak for


def test_mean_odds_is_the_odds_of_the_mean_loss():
    from unweave.tasks.choices import mean_odds

    odds = torch.randn(20, 4, dtype=torch.float64) * 5
    mean = torch.nn.functional.softplus(odds).mean(dim=1)
    assert torch.allclose(torch.nn.functional.softplus(mean_odds(odds)), mean, rtol=1e-9)


def test_binary_is_binary_cross_entropy():
    task, raw, labels = uw.Binary(), torch.randn(9, 1), torch.arange(9) % 2
    expected = nn.functional.binary_cross_entropy_with_logits(raw[:, 0], labels.float(), reduction="none")
    assert torch.allclose(task.losses(task.read(raw), labels), expected, atol=1e-6)
    log_odds = task.odds(task.read(raw), labels)
    assert torch.allclose(nn.functional.softplus(log_odds), expected, atol=1e-6)
