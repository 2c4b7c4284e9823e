"""The one entrance to every question that can be asked of a model and a split."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from unweave.data import Partition
from unweave.errors import UsageError, require_seed, require_type, unknown
from unweave.evaluation.accuracy import accuracy_and_losses, accuracy_metrics
from unweave.evaluation.bounds import Certificate, certificate_metrics
from unweave.evaluation.distances import klom_metrics, reference_metrics, weight_metrics
from unweave.evaluation.membership import membership_metrics
from unweave.evaluation.metric import Metric
from unweave.evaluation.predictions import Look, Observed, predict
from unweave.evaluation.probe import probe_metrics
from unweave.evaluation.relearn import RelearnSettings, no_relearning, relearn_metrics
from unweave.evaluation.rmia import rmia_metrics
from unweave.evaluation.scores import Scores
from unweave.evaluation.ulira import no_ulira
from unweave.runtime import Precision, pick_device, resolve_precision
from unweave.tasks import Task

QUESTIONS = ("membership", "reference", "probe", "relearn")
CHEAP = ("membership", "reference")  # answered from logits that one forward pass gave
MOVED = {
    "before_stage2": "certificate=BeforeStage2(model, alpha=...)",
    "target": "certificate=Shortfall(target=...)",
}
ON_REQUEST = (
    ("probe", ("probe_accuracy", "test")),
    ("relearn", ("relearn_steps", "train")),
    ("relearn", ("relearn_steps_adjacent", "train")),
)


def evaluate(
    model: nn.Module,
    train: Partition,
    test: Partition | None = None,
    *,
    reference: nn.Module | Sequence[nn.Module] | None = None,
    original: nn.Module | None = None,
    others: Sequence[nn.Module] = (),
    certificate: Certificate | None = None,
    questions: Collection[str] = CHEAP,
    relearn: RelearnSettings | None = None,
    resamples: int = 200,
    seed: int = 0,
    look: Look | None = None,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    precision: Precision = "auto",
    task: Task | str | None = None,
    **moved: Any,
) -> Scores:
    """Measure a model on the three subsets of the training data and, if given, of test data.

    ``reference`` is a retrained model, or several: with two or more every distance comes with what two retrained
    models have between them. ``original`` is the model before unlearning, ``others`` models of the same method with
    other seeds (for KLOM). By default every question is asked that one forward pass over the data can answer; ``probe``
    and ``relearn`` are to be asked for in ``questions``. A ``certificate`` brings the forgetting bound: `BeforeStage2`
    for a two-stage run, `Shortfall` for a run of ``unweave``. What cannot be computed is absent, with its reason.
    ``resamples`` are the attacks' bootstrap's, 0 for none. ``look`` remembers what models said, where several
    evaluations share some of them. ``precision`` is that of forward passes: ``auto`` is bfloat16 on CUDA (logits in
    float32) and float32 elsewhere.

    >>> data = (torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> scores = evaluate(nn.Linear(4, 2), Partition(data, forget=[0], adjacent=[1], remote=[2, 3]))
    >>> scores["train"]["remote"]["samples"]
    2
    >>> scores.metric("mia_rmia_auc", "train", "forget").note
    'No test data was given, and an attack needs samples that were never trained on.'
    """
    _refuse_moved(moved)
    for name in questions:
        if name not in QUESTIONS:
            raise unknown("question", name, QUESTIONS)
    require_type("model", model, nn.Module, "a torch nn.Module")
    require_type("train", train, Partition, "a Split of the training data")
    require_type("test", test, (Partition, type(None)), "a Split of the test data")
    require_seed(seed)
    if resamples < 0 or (batch_size is not None and batch_size < 1):
        raise UsageError(f"resamples is {resamples} and batch_size {batch_size}; they must be 0 and 1 at least.")
    references = [reference] if isinstance(reference, nn.Module) else list(reference or ())
    for other in references:
        require_type("reference", other, nn.Module, "a retrained torch nn.Module, or a list of them")
    if original is not None:
        require_type("original", original, nn.Module, "a torch nn.Module")
    look = look or Look(train, test, batch_size=batch_size, device=device, precision=precision, task=task)
    if look.train is not train or look.test is not test:
        raise UsageError("look= looks at other data than train and test. Make it with these: Look(train, test).")
    seen, retrained = look(model), [look(other) for other in references]
    mine, theirs = seen("train").classes, {one("train").classes for one in retrained}
    if theirs - {mine}:
        raise UsageError(f"A reference tells {max(theirs - {mine})} classes apart, and the model {mine}.")
    before = look(original) if original is not None else None
    curves: dict[str, Any] = {}
    metrics = _compared(seen, retrained, before, questions, resamples=resamples, seed=seed)
    if "membership" in questions:
        metrics += rmia_metrics(seen, retrained, resamples=resamples, seed=seed) + no_ulira()
    if "reference" in questions:
        metrics += reference_metrics(seen, retrained, seed=seed)
        metrics += klom_metrics([seen, *map(look, others)] if references else [seen], retrained)
        metrics += weight_metrics(model, references)
    if "probe" in questions:
        metrics += probe_metrics(model, references, original, train=train, test=test, seed=seed, device=device)
    if "relearn" in questions:
        settings = relearn or RelearnSettings()
        how: dict[str, Any] = {"settings": settings, "seed": seed, "device": device}
        try:
            found, curves = relearn_metrics(model, references, original, train, **how)
        except UsageError as error:  # a model that cannot be trained: its other answers are worth no less
            found = no_relearning(str(error))
        metrics += found
    computing: dict[str, Any] = {"batch_size": batch_size, "device": device, "precision": precision}
    metrics += certificate_metrics(
        certificate, seen, lambda other: predict(other, train.samples, train.rows("forget"), **computing)
    )
    metrics += [_not_asked(*place) for question, place in ON_REQUEST if question not in questions]
    values: dict[str, Any] = {
        part: {subset: accuracy_and_losses(predictions) for subset, predictions in subsets.items()}
        for part, subsets in seen.parts.items()
    }
    values["precision"] = resolve_precision(precision, pick_device(device))
    return Scores(values | ({"relearning": curves} if curves else {}), metrics, observed=seen)


def _refuse_moved(arguments: Mapping[str, Any]) -> None:
    """Say where an argument of earlier versions went; refuse any other as Python does."""
    for name in arguments:
        if name not in MOVED:
            raise TypeError(f"evaluate() got an unexpected keyword argument {name!r}")
        raise UsageError(f"evaluate() has no argument {name}= any more. Write {MOVED[name]}.")


def _compared(
    seen: Observed,
    retrained: Sequence[Observed],
    before: Observed | None,
    questions: Collection[str],
    *,
    resamples: int,
    seed: int,
) -> list[Metric]:
    """Ask the model, the references and the original the same, and put their answers beside each other."""

    def ask(observed: Observed, resamples: int) -> list[Metric]:
        found = accuracy_metrics(observed)
        if "membership" in questions:
            question = ("membership", resamples, seed)
            found += observed.once(question, lambda: membership_metrics(observed, resamples=resamples, seed=seed))
        return found

    def answers(models: Sequence[Observed]) -> dict[tuple[str, str, str], list[float]]:
        found: dict[tuple[str, str, str], list[float]] = {}
        for metric in (metric for model in models for metric in ask(model, 0)):
            if metric.value is not None:
                found.setdefault(metric.place, []).append(metric.value)
        return found

    reference, original = answers(retrained), answers([before] if before else [])
    return [
        metric.beside(reference=_mean(reference.get(metric.place)), before=_mean(original.get(metric.place)))
        for metric in ask(seen, resamples)
    ]


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def _not_asked(name: str, split: str) -> Metric:
    return Metric.absent(name, better="reference", note="Not asked for.", split=split, subset="forget")
