"""Evaluate a saved model, and attack it with shadow models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from unweave.api import unlearn
from unweave.engine import Compute, Progress
from unweave.errors import UsageError
from unweave.evaluation import QUESTIONS, RelearnSettings, Scores, evaluate
from unweave.evaluation import attack as attacks
from unweave.lab.audit.shadows import TARGETS, Pool, check_shadows, make_shadows, obstacle, shadow_metrics
from unweave.lab.audit.subject import Subject
from unweave.methods import Retrain, find_method
from unweave.runs import load_weights


def examine(
    subject: Subject,
    *,
    references: Sequence[Path] = (),
    retrain: int = 0,
    original: Path | None = None,
    questions: Sequence[str] = ("membership", "reference"),
    relearn: RelearnSettings | None = None,
    resamples: int = 200,
    seed: int = 0,
    device: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Scores:
    """Evaluate a saved model. ``retrain`` is the number of references to train by the benchmark's recipe.

    ``original`` are the weights before unlearning. Without them, those of the subject's request count, if it has one.
    """
    models = [load_weights(subject.same_architecture(), path) for path in references]
    for number in range(retrain):
        say(f"retraining reference {number + 1} of {retrain}")
        # Not the seed of the model itself: a retrained model must be an independent draw.
        models.append(_retrained(subject, seed=1000 + number, device=device))
    return evaluate(
        subject.model,
        subject.train,
        subject.test,
        reference=models,
        original=original_of(subject, original),
        certificate=subject.certificate,
        questions=questions,
        relearn=relearn,
        resamples=resamples,
        seed=seed,
        compute=Compute(device),
    )


def audit(
    subject: Subject,
    *,
    shadows: int = 16,
    folder: Path | None = None,
    resamples: int = 1000,
    seed: int = 0,
    device: str | None = None,
    say: Callable[[str], None] = lambda text: None,
    **more: Any,
) -> Scores:
    """Evaluate every question, and attack with ``shadows`` shadow models (0: none). ``more`` goes to `examine`."""
    note = obstacle(subject, shadows)
    if not note:
        check_shadows(subject, shadows, folder=folder, seed=seed)
    scores = examine(subject, questions=QUESTIONS, resamples=resamples, seed=seed, device=device, say=say, **more)
    if note:
        extra = [m for s in TARGETS for m in attacks.absent("mia_ulira", split="train", subset=s, note=note)]
    else:
        pool = Pool(subject.train, subject.test)
        made = make_shadows(subject, pool, shadows, folder=folder, seed=seed, device=device, say=say)
        extra = shadow_metrics(subject, pool, made, resamples=resamples, seed=seed, device=device)
    places = {metric.place for metric in extra}
    return Scores(
        scores.values,
        [*(metric for metric in scores.metrics if metric.place not in places), *extra],
        observed=scores.observed,
    )


def original_of(subject: Subject, weights: Path | None) -> nn.Module | None:
    """Return the model before unlearning: from weights, or from the source of the data if that has it."""
    if weights is not None:
        return load_weights(subject.same_architecture(), weights)
    return subject.original() if subject.original else None


def _retrained(subject: Subject, *, seed: int, device: str | None) -> nn.Module:
    benchmark = subject.benchmark
    if benchmark is None or not benchmark.retrains:
        raise UsageError(
            "Retraining needs the recipe of a benchmark, or `recipe` in the request. Give retrained weights with "
            "--reference."
        )
    settings = benchmark.settings_for(find_method("retrain"), None)
    initial = benchmark.initial(seed)
    return unlearn(
        initial,
        subject.train,
        Retrain(initial=lambda: initial, **settings),
        seed=seed,
        compute=Compute(device),
        guard=None,
        callbacks=[Progress(show=False)],
    ).model
