"""The one entrance to every question that can be asked of a model and a split."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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
from unweave.evaluation.predictions import Look, Observed, Predictions, predict
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

    Args:
        model: The model, whoever unlearned it.
        train: The split of the training data.
        test: The split of test data, which membership attacks need.
        reference: A retrained model, or several: then distances come with those between retrained models.
        original: The model before unlearning.
        others: Models of the same method with other seeds, for KLOM.
        certificate: What a bound is computed from: `BeforeStage2` (two-stage) or `Shortfall` (``unweave``).
        questions: What to ask besides accuracy. ``probe`` and ``relearn`` take more than one forward pass.
        relearn: How to relearn.
        resamples: Resamples of the attacks' bootstrap; 0 for no intervals.
        seed: Seed of everything random.
        look: What several evaluations remember of the models that they share.
        batch_size: Samples in a forward pass. None: what suits the device.
        device: Where to compute. None: the best there is.
        precision: That of forward passes: ``auto`` is bfloat16 on CUDA (logits in float32), else float32.
        task: What a sample is to the model. None: found from outputs and labels.
        moved: Nothing; former arguments are told where they went.

    Returns:
        Every number with interval, direction and reference; what cannot be computed is absent, with its reason.

    Raises:
        UsageError: An argument cannot be used.

    >>> data = (torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> evaluate(nn.Linear(4, 2), Partition(data, forget=[0], adjacent=[1]))["train"]["remote"]["samples"]
    2
    """
    _refuse_moved(moved)
    references = [reference] if isinstance(reference, nn.Module) else list(reference or ())
    _require_arguments(model, train, test, references, original, questions, resamples, batch_size)
    seed = require_seed(seed)
    computing: dict[str, Any] = {"batch_size": batch_size, "device": device, "precision": precision}
    asking = _Asking(model, train, test, references, original, others, seed, resamples, computing)
    return asking.scores(look, task, questions, relearn or RelearnSettings(), certificate)


def _refuse_moved(arguments: Mapping[str, Any]) -> None:
    """Say where an argument of earlier versions went; refuse any other as Python does."""
    for name in arguments:
        if name not in MOVED:
            raise TypeError(f"evaluate() got an unexpected keyword argument {name!r}")
        raise UsageError(f"evaluate() has no argument {name}= any more. Write {MOVED[name]}.")


def _require_arguments(
    model: Any,
    train: Any,
    test: Any,
    references: Sequence[Any],
    original: Any,
    questions: Collection[str],
    resamples: int,
    batch_size: int | None,
) -> None:
    """Raise a `UsageError` for an argument that cannot be used."""
    for name in questions:
        if name not in QUESTIONS:
            raise unknown("question", name, QUESTIONS)
    require_type("model", model, nn.Module, "a torch nn.Module")
    require_type("train", train, Partition, "a Split of the training data")
    require_type("test", test, (Partition, type(None)), "a Split of the test data")
    if resamples < 0 or (batch_size is not None and batch_size < 1):
        raise UsageError(f"resamples is {resamples} and batch_size {batch_size}; they must be 0 and 1 at least.")
    for other in references:
        require_type("reference", other, nn.Module, "a retrained torch nn.Module, or a list of them")
    require_type("original", original, (nn.Module, type(None)), "a torch nn.Module")


@dataclass(frozen=True)
class _Asking:
    """The models that are compared, and the data that they are asked about."""

    model: nn.Module
    train: Partition
    test: Partition | None
    references: Sequence[nn.Module]
    original: nn.Module | None
    others: Sequence[nn.Module]
    seed: int
    resamples: int
    computing: Mapping[str, Any]

    def scores(
        self,
        look: Look | None,
        task: Task | str | None,
        questions: Collection[str],
        relearn: RelearnSettings,
        certificate: Certificate | None,
    ) -> Scores:
        """Look at every model once, ask every question, and put the answers beside each other."""
        look = look or Look(self.train, self.test, task=task, **self.computing)
        if look.train is not self.train or look.test is not self.test:
            raise UsageError("look= looks at other data than train and test. Make it with these: Look(train, test).")
        seen, retrained = look(self.model), [look(other) for other in self.references]
        _require_classes(seen, retrained)
        before = look(self.original) if self.original is not None else None
        metrics = _compared(seen, retrained, before, questions, resamples=self.resamples, seed=self.seed)
        metrics += self._cheap(seen, retrained, [look(other) for other in self.others], questions)
        found, curves = self._costly(questions, relearn)
        metrics += found + certificate_metrics(certificate, seen, self._about_forget)
        metrics += [_not_asked(*place) for question, place in ON_REQUEST if question not in questions]
        return Scores(self._values(seen) | ({"relearning": curves} if curves else {}), metrics, observed=seen)

    def _cheap(
        self, seen: Observed, retrained: list[Observed], others: list[Observed], questions: Collection[str]
    ) -> list[Metric]:
        """Answer what one forward pass tells."""
        metrics: list[Metric] = []
        if "membership" in questions:
            metrics += rmia_metrics(seen, retrained, resamples=self.resamples, seed=self.seed) + no_ulira()
        if "reference" in questions:
            metrics += reference_metrics(seen, retrained, seed=self.seed)
            metrics += klom_metrics([seen, *others] if retrained else [seen], retrained)
            metrics += weight_metrics(self.model, self.references)
        return metrics

    def _costly(self, questions: Collection[str], relearn: RelearnSettings) -> tuple[list[Metric], dict[str, Any]]:
        """Answer what takes more than a forward pass; also return the curves of relearning."""
        metrics: list[Metric] = []
        curves: dict[str, Any] = {}
        device, models = self.computing["device"], (self.model, self.references, self.original)
        if "probe" in questions:
            metrics += probe_metrics(*models, train=self.train, test=self.test, seed=self.seed, device=device)
        if "relearn" in questions:
            try:
                found, curves = relearn_metrics(*models, self.train, settings=relearn, seed=self.seed, device=device)
            except UsageError as error:  # a model that cannot be trained: its other answers are worth no less
                found = no_relearning(str(error))
            metrics += found
        return metrics, curves

    def _about_forget(self, other: nn.Module) -> Predictions:
        return predict(other, self.train.samples, self.train.rows("forget"), **self.computing)

    def _values(self, seen: Observed) -> dict[str, Any]:
        values: dict[str, Any] = {
            part: {subset: accuracy_and_losses(predictions) for subset, predictions in subsets.items()}
            for part, subsets in seen.parts.items()
        }
        where = pick_device(self.computing["device"])
        return values | {"precision": resolve_precision(self.computing["precision"], where)}


def _require_classes(seen: Observed, retrained: Sequence[Observed]) -> None:
    mine, theirs = seen("train").classes, {one("train").classes for one in retrained}
    if theirs - {mine}:
        raise UsageError(f"A reference tells {max(theirs - {mine})} classes apart, and the model {mine}.")


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
