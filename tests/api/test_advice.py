"""Every piece of advice in an error of `unlearn` was tried: the case that failed succeeds once it is followed."""

from __future__ import annotations

import ast
import re

import pytest
import torch
from torch import nn

import unweave as uw
from tests.helpers import advised
from tests.helpers.advised import Advised, classes, inputs, linear, quantities, run, several, split
from tests.helpers.advised_texts import TEXTS
from tests.helpers.places import ROOT

HELD_OUT = torch.randn((20, 5)), torch.arange(20) % 3
FIRST = torch.arange(48) < 6


def held_out():
    return uw.Split(HELD_OUT, [], range(20), [], allow_empty=True)


ARGUMENTS = [
    Advised(
        "Call unlearn outside of it.",
        lambda: advised.gradients_off(outside=False),
        lambda: advised.gradients_off(outside=True),
    ),
    Advised(
        "Omit task=.",
        lambda: run(method="scrub", task=uw.OwnLoss(uw.Classification().batch_losses)),
        lambda: run(method="scrub"),
    ),
    Advised(
        "Let get_extra_state return a tensor.",
        lambda: run(advised.Extra(float), guard=uw.Limits()),
        lambda: run(advised.Extra(torch.tensor), guard=uw.Limits()),
    ),
    Advised(
        "Load its weights first.",
        lambda: run(advised.on_meta(loaded=False)),
        lambda: run(advised.on_meta(loaded=True)),
    ),
    Advised(
        "Load the model without quantization_config",
        lambda: run(advised.odd_model(is_quantized=True)),
        lambda: run(advised.odd_model(is_quantized=False)),
    ),
    Advised(
        "Load it without device_map",
        lambda: run(advised.odd_model(hf_device_map={"0": "cpu", "2": "disk"})),
        lambda: run(advised.odd_model()),
    ),
    Advised(
        "use parametrizations.weight_norm instead",
        lambda: run(advised.normed(nn.utils.weight_norm)),
        lambda: run(advised.normed(nn.utils.parametrizations.weight_norm)),
    ),
    Advised(
        "Set it on the object, or pass the method by name: ",
        lambda: run(method=uw.GradientAscent(epochs=1), learning_rate=0.1),
        lambda: (run(method=uw.GradientAscent(epochs=1, learning_rate=0.1)), run(learning_rate=0.1)),
    ),
    Advised(
        "Give at most one.",
        lambda: run(callbacks=[uw.Watch(), uw.Progress(show=False), uw.Progress(show=False)]),
        lambda: run(callbacks=[uw.Watch(), uw.Progress(show=False)]),
    ),
    Advised(
        "Use OwnLoss(loss, recognised=...).",
        lambda: run(task=uw.OwnLoss(uw.Classification().batch_losses), callbacks=[uw.Best()]),
        lambda: run(
            task=uw.OwnLoss(
                uw.Classification().batch_losses, recognised=lambda model, batch: model(batch[0]).argmax(1) == batch[1]
            ),
            callbacks=[uw.Best()],
        ),
    ),
    *(
        Advised(
            "Take a method that needs losses only, such as two-stage or unweave.",
            lambda m=method, labels=labels, outputs=outputs: run(linear(outputs), split(labels()), m),
            lambda labels=labels, outputs=outputs: [
                run(linear(outputs), split(labels()), name) for name in ("two-stage", "unweave")
            ],
        )
        for method, labels, outputs in (
            ("npo", classes, 3),
            ("scrub", quantities, 1),
            ("salun", quantities, 1),
        )
    ),
]

METHODS = [
    Advised(
        "Lower it.",
        lambda: run(method="l1-sparse", plain_epochs=3, epochs=1),
        lambda: run(method="l1-sparse", plain_epochs=1, epochs=1),
    ),
    Advised(
        "pass epochs=, learning_rate=, optimizer=, batch_size= and the other settings",
        lambda: uw.unlearn(linear(), split(), "retrain", initial=linear, **advised.HOW),
        lambda: uw.unlearn(
            linear(),
            split(),
            "retrain",
            initial=linear,
            epochs=1,
            learning_rate=0.1,
            optimizer="adam",
            batch_size=8,
            **advised.HOW,
        ),
    ),
    Advised(
        "pass initial=, a function that returns the model before training",
        lambda: run(method="retrain", learning_rate=0.1),
        lambda: run(method="retrain", learning_rate=0.1, initial=linear),
    ),
    *(
        Advised(
            "pass reference=, which may be",
            lambda: run(method="unweave", goal="retrain"),
            lambda reference=reference: run(method="unweave", goal="retrain", reference=reference()),
        )
        for reference in (linear, held_out, lambda: [0.5, 1.0, 2.0])
    ),
    Advised(
        "Give held-out data that has some.",
        lambda: run(
            method="unweave",
            goal="retrain",
            reference=uw.Split(HELD_OUT, range(9), [], range(9, 20), allow_empty=True),
        ),
        lambda: run(method="unweave", goal="retrain", reference=held_out()),
    ),
    Advised(
        "To give a model itself, write reference=model.",
        lambda: run(method="unweave", goal="retrain", reference=linear),
        lambda: run(method="unweave", goal="retrain", reference=linear()),
    ),
    *(
        Advised(
            "Set goal, or leave it out.",
            lambda: run(method="unweave", reference=[0.5, 1.0]),
            lambda more=more: run(method="unweave", **more),
        )
        for more in ({"goal": "retrain", "reference": [0.5, 1.0]}, {})
    ),
    Advised(
        "Set a larger target.",
        lambda: run(method="unweave", target=0.5),
        lambda: run(method="unweave", target=2.5),
    ),
    *(
        Advised(
            "Use normalisation=eval or smaller batches.",
            lambda: run(method="ft", normalisation="train", compute=uw.Compute("cpu", micro_batch=4)),
            lambda more=more: run(method="ft", compute=uw.Compute("cpu", micro_batch=4), **more),
        )
        for more in ({"normalisation": "eval"}, {"normalisation": "train", "batch_size": 4})
    ),
]

MODELS = [
    Advised("Set requires_grad on some.", lambda: run(advised.frozen()), lambda: run(advised.thawed())),
    Advised("Pass model.float()", lambda: run(advised.half()), lambda: run(advised.half().float())),
    Advised(
        "Set sparse=False on it",
        lambda: advised.embedded(sparse=True),
        lambda: advised.embedded(sparse=False),
    ),
    Advised(
        "check that the data and the model are free of NaN",
        lambda: run(advised.huge(linear())),
        lambda: run(advised.steady(advised.huge(linear()))),
    ),
    Advised(
        "check the model's weights before the run",
        lambda: run(advised.huge(advised.Spare())),
        lambda: run(advised.steady(advised.huge(advised.Spare()))),
    ),
    *(
        Advised(
            "Use a smaller learning rate",
            lambda method=method: run(method=method, learning_rate=1e30, epochs=9),
            lambda method=method: run(method=method, learning_rate=1e-3, epochs=9),
        )
        for method in ("ga", "ft")
    ),
]

LABELS = [
    Advised(
        "For several classes use task='classification'",
        lambda: run(some=split(classes()), task="binary"),
        lambda: run(some=split(classes()), task="classification"),
    ),
    Advised(
        "for several labels task='multi-label'",
        lambda: run(some=split(several()), task="binary"),
        lambda: run(some=split(several()), task="multi-label"),
    ),
    Advised(
        "For more classes give it one output per class (task='classification')",
        lambda: run(linear(1), task="binary"),
        lambda: run(linear(3), task="classification"),
    ),
    Advised(
        "to predict quantities use task='regression'",
        lambda: run(linear(1), split(quantities()), task="binary"),
        lambda: run(linear(1), split(quantities()), task="regression"),
    ),
    Advised(
        "are those of task='multi-label'",
        lambda: run(some=split(several()), task="classification"),
        lambda: run(some=split(several()), task="multi-label"),
    ),
    Advised(
        "use task='regression'; otherwise",
        lambda: run(linear(3), split(quantities()), task="classification"),
        lambda: run(linear(1), split(quantities()), task="regression"),
    ),
    Advised(
        "otherwise convert them to whole numbers",
        lambda: run(linear(3), split(classes().float()), task="classification"),
        lambda: run(linear(3), split(classes().float().long()), task="classification"),
    ),
    Advised(
        "For other labels use task=uw.OwnLoss(loss).",
        lambda: run(linear(3), split(several()[..., None]), task="classification"),
        lambda: run(linear(3), split(several()[..., None]), task=uw.OwnLoss(advised.by_output)),
    ),
    Advised(
        "For anything else give task=uw.OwnLoss(loss).",
        lambda: run(advised.Pixels(), split((inputs() > 0).long())),
        lambda: run(advised.Pixels(), split((inputs() > 0).long()), task=uw.OwnLoss(advised.by_pixel)),
    ),
    *(
        Advised(
            "Convert classes to whole numbers (task='classification'), or give the model one output",
            lambda: run(some=split(classes().float())),
            lambda outputs=outputs, labels=labels: run(linear(outputs), split(labels())),
        )
        for outputs, labels in ((3, classes), (1, quantities))
    ),
    *(
        Advised(
            "Give the model one output per class (task='classification'). If labels are quantities",
            lambda: run(linear(1), split(classes())),
            lambda outputs=outputs, more=more: run(linear(outputs), split(classes()), **more),
        )
        for outputs, more in ((3, {}), (1, {"task": "regression"}))
    ),
    *(
        Advised(
            "For one label per sample use task='classification' or, with one logit, task='binary'.",
            lambda: run(linear(2), split(classes() % 2), task="multi-label"),
            lambda outputs=outputs, task=task: run(linear(outputs), split(classes() % 2), task=task),
        )
        for outputs, task in ((2, "classification"), (1, "binary"))
    ),
    Advised(
        "To predict quantities use task='regression'.",
        lambda: run(linear(3), split(several() * 2), task="multi-label"),
        lambda: run(linear(3), split(several() * 2), task="regression"),
    ),
    Advised(
        "For classes use task='classification' with whole numbers as labels.",
        lambda: run(linear(3), split(classes()), task="regression"),
        lambda: run(linear(3), split(classes()), task="classification"),
    ),
    Advised(
        "Leave the mean out (reduction='none').",
        lambda: run(
            linear(1), split(quantities()), task=uw.OwnLoss(lambda m, b: advised.squared(m, b, reduction="mean"))
        ),
        lambda: run(linear(1), split(quantities()), task=uw.OwnLoss(advised.squared)),
    ),
    Advised(
        "lambda model, batch: torch_loss(model(batch[0]), batch[1])",
        lambda: run(task=uw.OwnLoss(nn.CrossEntropyLoss(reduction="none"))),
        lambda: run(
            task=uw.OwnLoss(lambda model, batch: nn.CrossEntropyLoss(reduction="none")(model(batch[0]), batch[1]))
        ),
    ),
]

DATA = [
    Advised(
        "Pass a map-style data set.", lambda: split(data=advised.Stream()), lambda: run(some=split(data=advised.Rows()))
    ),
    *(
        Advised(
            "Pass a map-style torch data set, a Hugging Face data set, or a pair of tensors",
            lambda: split(data=inputs()),
            lambda data=data: run(some=split(data=data())),
        )
        for data in (advised.Rows, lambda: (inputs(), classes()))
    ),
    Advised(
        "pass a mapping from the model's argument names to tensors, including 'labels'",
        lambda: advised.tensors(as_mapping=False),
        lambda: advised.tensors(as_mapping=True),
    ),
    *(
        Advised(
            "Give all samples the same shape with a transform, or pass collate= to Split",
            lambda: run(some=split(data=advised.Rows(advised.longer))),
            lambda data=data, more=more: run(some=split(data=data, **more)),
        )
        for data, more in (
            (advised.Rows(lambda n, sample: (advised.longer(n, sample)[0][:5], sample[1])), {}),
            (advised.Rows(advised.longer), {"collate": advised.padded}),
        )
    ),
    Advised(
        "Repair or remove them before unlearning.",
        lambda: run(some=advised.broken(repaired=False), method="ft"),
        lambda: run(some=advised.broken(repaired=True), method="ft"),
    ),
    Advised("Give it at least one sample", lambda: split(forget=[]), split),
    Advised(
        "Give it at least one sample (Split.by_neighbours finds adjacent data).",
        lambda: split(adjacent=[]),
        lambda: uw.Split.by_neighbours((inputs(), classes()), forget=range(6), features=inputs(), fraction=0.9),
    ),
    Advised("Give each sample to one subset.", lambda: split(adjacent=range(5, 18)), split),
    Advised("Use positions from 0 to ", lambda: split(remote=[48]), lambda: split(remote=[47])),
    Advised("List each sample once.", lambda: split(forget=[0, 0]), lambda: split(forget=[0])),
    Advised(
        "For a boolean mask use Split.where.",
        lambda: split(forget=FIRST),
        lambda: uw.Split.where((inputs(), classes()), forget=FIRST, adjacent=torch.arange(48) < 18),
    ),
    Advised(
        "For indices use Split(...).",
        lambda: uw.Split.where((inputs(), classes()), forget=range(6), adjacent=range(6, 18)),
        split,
    ),
    *(
        Advised(
            "Choose the adjacent data yourself (Split, Split.where), or pass class labels as labels=.",
            lambda: uw.Split.by_class((inputs(), quantities()), fine=torch.arange(48) % 6, forget=0),
            follow,
        )
        for follow in (
            lambda: split(quantities()),
            lambda: uw.Split.by_class(
                (inputs(), quantities()), fine=torch.arange(48) % 6, forget=0, labels=torch.arange(48) % 3
            ),
        )
    ),
    *(
        Advised(
            "Neighbours need a model (model=) or its features (features=).",
            lambda: split().inspect(),
            follow,
        )
        for follow in (lambda: split().inspect(linear(), device="cpu"), lambda: split().inspect(features=inputs()))
    ),
]

LOOKS = [
    Advised(
        "Leave names out.",
        lambda: split().inspect(features=inputs(), groups=inputs()[:, 0], names=["a", "b"]),
        lambda: split().inspect(features=inputs(), groups=inputs()[:, 0]),
    ),
    Advised(
        "The model's features contain NaN or infinite values. Check its weights and the data.",
        lambda: split().inspect(advised.huge(linear()), device="cpu"),
        lambda: split().inspect(advised.steady(advised.huge(linear())), device="cpu"),
    ),
    Advised(
        "Check its weights and the data.",
        lambda: uw.evaluate(advised.huge(linear()), split(), resamples=0, compute=uw.Compute("cpu")),
        lambda: uw.evaluate(advised.steady(advised.huge(linear())), split(), resamples=0, compute=uw.Compute("cpu")),
    ),
    Advised(
        "Compute features yourself and pass them as features=.",
        lambda: split().inspect(advised.Headless(), device="cpu"),
        lambda: split().inspect(features=advised.Headless()(inputs()).detach()),
    ),
    *(
        Advised(
            "Convert it with a transform (for images: to a tensor) or remove the column.",
            lambda: run(advised.Keyed(), split(data=advised.Named(made=object()))),
            lambda made=made: run(advised.Keyed(), split(data=advised.Named(**made))),
        )
        for made in ({"made": torch.zeros(1)}, {})
    ),
    Advised(
        "Remove the columns that the model does not take",
        lambda: run(advised.Keyed(), split(data=advised.Named(made=object()), collate=advised.strict)),
        lambda: run(advised.Keyed(), split(data=advised.Named(), collate=advised.strict)),
    ),
    Advised(
        "Use the data set that the split was made from.",
        lambda: advised.saved_split((inputs()[:40], classes()[:40])),
        lambda: advised.saved_split((inputs(), classes())),
    ),
    Advised(
        "Name the folder with out=.",
        lambda: run(resume=True),
        advised.resumed,
    ),
]
# What needs another machine, a full disk or several processes has a test elsewhere that acts it out
ELSEWHERE = {
    "Raise ..., or name adjacent data yourself (Split.where).": "data/test_split.py",
    "Free disk space or give another folder, then resume.": "engine/test_checkpoint.py",
    "Resume with the command that started the run.": "engine/test_checkpoint.py",
    "Use --micro-batch ... (micro_batch) or more processes.": "engine/test_speed_memory.py",
    "Use a device with more memory": "engine/test_speed_memory.py",
    "Choose another folder=.": "cli/test_fuzz.py",
    "Use smaller settings: first the learning rate": "api/test_advice.py",
    "Install it with: pip install ...": "engine/test_tracking.py",
    "A phase cannot keep a .... Keep tensors, optimisers or modules.": "engine/test_engine.py",
}
TRIED = [*ARGUMENTS, *METHODS, *MODELS, *LABELS, *DATA, *LOOKS, *TEXTS]


@pytest.mark.filterwarnings("ignore::unweave.errors.RunWarning")
@pytest.mark.parametrize("case", TRIED, ids=[f"{place} {case.advice[:40]}" for place, case in enumerate(TRIED)])
def test_a_case_that_failed_succeeds_once_the_advice_is_followed(case):
    with pytest.raises((uw.UsageError, uw.RunError), match=re.escape(case.advice)):
        case.fails()
    assert case.follows() is not None


# Complete: what else the source advises is listed here, with where it is tried

ROOMS = ("api", "engine", "methods", "tasks", "evaluation", "data")
NOT_OF_UNLEARN = (  # files whose errors have callers and tests of their own
    "api/compiled_code.py",
    "engine/compiling/",
    "evaluation/answer",
    "evaluation/open_unlearning_files.py",
    "evaluation/ulira.py",
    "evaluation/distances.py",
    "evaluation/evaluate.py",
    "evaluation/scores.py",
    "evaluation/bounds.py",
)
ADVISES = re.compile(
    r"(?:^|[.:;,] |or )(?:Use|use|Give|give|Pass|pass|Take|take|Raise|Set|Load|Choose|Call|Name|Omit|Let|Check|check|"
    r"Convert|Repair|Remove|Lower|Resume|Update|Add|Free|Install|Compute|Leave|Label|Shorten|Keep|Make|Write)\b"
)


def advice_in_the_source():
    """Yield every text of an error or a warning that advises something, with its place."""
    for room in ROOMS:
        for path in sorted((ROOT / "src" / "unweave" / room).rglob("*.py")):
            name = str(path.relative_to(ROOT / "src" / "unweave"))
            if name.startswith(NOT_OF_UNLEARN):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = said_by(node)
                if ADVISES.search(text):
                    yield f"{name}: {text}"


def said_by(node):
    """Return the text of a raise or a warning, with ... for what is filled in."""
    warns = isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"
    if not warns and not isinstance(node, ast.Raise):
        return ""
    parts = [part for part in ast.walk(node) if isinstance(part, ast.JoinedStr)]
    if parts:
        return "".join(str(p.value) if isinstance(p, ast.Constant) else "..." for p in parts[0].values)
    plain = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return plain[0] if plain else ""


def test_every_advice_in_the_source_is_tried():
    tried = [case.advice for case in TRIED] + list(ELSEWHERE)
    missing = [text for text in advice_in_the_source() if not any(advice in text for advice in tried)]
    assert missing == []


def test_smaller_settings_where_a_number_became_too_large():
    data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
    split, model = uw.Split(data, forget=[0], adjacent=[1, 2]), torch.nn.Linear(6, 2)
    how = {"compute": uw.Compute("cpu"), "guard": None, "callbacks": [uw.Progress(show=False)]}
    with pytest.raises(uw.RunError, match="Use smaller settings: first the learning rate"):
        uw.unlearn(model, split, uw.FineTune(learning_rate=1e300, epochs=2), **how)
    uw.unlearn(model, split, uw.FineTune(learning_rate=1e-2, epochs=2), **how)
