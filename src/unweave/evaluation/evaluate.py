"""`evaluate`: every score of a model on a split."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from unweave.data import Partition
from unweave.engine import Compute
from unweave.errors import UsageError, as_whole, plain_value, require_seed, require_type, unknown
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
from unweave.runtime import pick_device, resolve_precision
from unweave.tasks import Task

QUESTIONS = ("membership", "reference", "probe", "relearn")
CHEAP = ("membership", "reference")  # these need the logits of one forward pass only
MOVED = {
    "device": "compute=uw.Compute(device=...)",
    "precision": "compute=uw.Compute(precision=...)",
    "before_stage2": "certificate=uw.BeforeStage2(model, alpha=...)",
    "target": "certificate=uw.Shortfall(target=...)",
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
    compute: Compute | None = None,
    task: Task | str | None = None,
    **moved: Any,
) -> Scores:
    """Measure a model on the three subsets of the training data and, if given, of test data.

    Args:
        model: The model, however it was unlearned.
        train: The split of the training data.
        test: The split of the test data. Membership attacks need it.
        reference: One or more retrained models. With several, distances between them are reported too.
        original: The model before unlearning.
        others: Models of the same method with other seeds, for KLOM.
        certificate: The inputs of a bound: `BeforeStage2` (two-stage) or `Shortfall` (``unweave``).
        questions: The questions besides accuracy. ``probe`` and ``relearn`` take more than one forward pass.
        relearn: Settings of relearning.
        resamples: Number of bootstrap resamples of the attacks; 0 gives no intervals.
        seed: Seed of all random choices.
        look: Cached predictions, to share between several evaluations.
        batch_size: Samples per forward pass. None chooses a size for the device.
        compute: Device, precision (the last layer runs in float32 in any case), memory, and where to keep samples.
            How to compile, micro-batches and sharding concern training only.
        task: The task. None infers it from outputs and labels.
        moved: Arguments of earlier versions. They raise an error that names their replacement.

    Returns:
        Every number with interval, direction and reference. A number that cannot be computed is absent, with a reason.

    Raises:
        UsageError: An argument is invalid.

    >>> import torch
    >>> data = (torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> evaluate(nn.Linear(4, 2), Partition(data, forget=[0], adjacent=[1]))["train"]["remote"]["samples"]
    2
    """
    _refuse_moved(moved)
    references = _listed(reference)
    _require_arguments(model, train, test, references, original, questions, batch_size, compute)
    seed, resamples = require_seed(seed), as_whole("resamples", resamples, at_least=0)
    compute = compute or Compute()
    computing = compute.looking | {"batch_size": plain_value(batch_size)}
    asking = _Asking(model, train, test, references, original, others, seed, resamples, computing)
    with compute.limiting():
        return asking.scores(look, task, questions, relearn or RelearnSettings(), certificate)


def _listed(reference: Any) -> list[Any]:
    """Return the references as a list; there may be one, several or none."""
    if reference is None:
        return []
    return list(reference) if isinstance(reference, Sequence) and not isinstance(reference, str) else [reference]


def _refuse_moved(arguments: Mapping[str, Any]) -> None:
    """Raise an error that names the replacement of an old argument, or a `TypeError` for an unknown one."""
    for name in arguments:
        if name not in MOVED:
            raise TypeError(f"evaluate() got an unexpected keyword argument {name!r}")
        raise UsageError(f"evaluate no longer takes {name}=: pass {MOVED[name]}.")


def _require_arguments(
    model: Any,
    train: Any,
    test: Any,
    references: Sequence[Any],
    original: Any,
    questions: Collection[str],
    batch_size: int | None,
    compute: Any,
) -> None:
    """Raise a `UsageError` for an invalid argument."""
    require_type("questions", questions, (list, tuple, set, frozenset), "a list of names")
    for name in questions:
        if not isinstance(name, str) or name not in QUESTIONS:
            raise unknown("question", name, QUESTIONS)
    require_type("model", model, nn.Module, "a torch nn.Module")
    require_type("train", train, Partition, "a Split of the training data")
    require_type("test", test, (Partition, type(None)), "a Split of the test data")
    if batch_size is not None:
        as_whole("batch_size", batch_size, at_least=1)
    for other in references:
        require_type("reference", other, nn.Module, "a retrained torch nn.Module, or a list of them")
    require_type("original", original, (nn.Module, type(None)), "a torch nn.Module")
    require_type("compute", compute, (Compute, type(None)), 'a Compute, such as uw.Compute(device="cuda:1")')


@dataclass(frozen=True)
class _Asking:
    """The models to compare, and the data to compare them on."""

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
        """Run every model once, answer every question, and combine the answers."""
        look = look or Look(self.train, self.test, task=task, **self.computing)
        if look.train is not self.train or look.test is not self.test:
            raise UsageError(
                "look= was made from other data than train and test. Make it from these: Look(train, test)."
            )
        seen, retrained = look(self.model), [look(other) for other in self.references]
        _require_classes(seen, retrained)
        before = look(self.original) if self.original is not None else None
        metrics = _compared(seen, retrained, before, questions, resamples=self.resamples, seed=self.seed)
        metrics += self._cheap(seen, retrained, [look(other) for other in self.others], questions)
        found, curves = self._costly(questions, relearn)
        metrics += found + certificate_metrics(certificate, seen, self._about_forget)
        metrics += [_not_asked(*place) for question, place in ON_REQUEST if question not in questions]
        values = self._values(seen) | ({"relearning": curves} if curves else {})
        return Scores(values, metrics, observed=seen, before=before)

    def _cheap(
        self, seen: Observed, retrained: list[Observed], others: list[Observed], questions: Collection[str]
    ) -> list[Metric]:
        """Answer the questions that need one forward pass only."""
        metrics: list[Metric] = []
        if "membership" in questions:
            metrics += rmia_metrics(seen, retrained, resamples=self.resamples, seed=self.seed) + no_ulira()
        if "reference" in questions:
            metrics += reference_metrics(seen, retrained, seed=self.seed)
            metrics += klom_metrics([seen, *others] if retrained else [seen], retrained)
            metrics += weight_metrics(self.model, self.references)
        return metrics

    def _costly(self, questions: Collection[str], relearn: RelearnSettings) -> tuple[list[Metric], dict[str, Any]]:
        """Answer the questions that need more than a forward pass. Also return the relearning curves."""
        metrics: list[Metric] = []
        curves: dict[str, Any] = {}
        device, models = self.computing["device"], (self.model, self.references, self.original)
        if "probe" in questions:
            metrics += probe_metrics(*models, train=self.train, test=self.test, seed=self.seed, device=device)
        if "relearn" in questions:
            try:
                found, curves = relearn_metrics(*models, self.train, settings=relearn, seed=self.seed, device=device)
            except UsageError as error:  # a model that cannot be trained still has its other answers
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
        raise UsageError(f"A reference has {max(theirs - {mine})} classes, but the model has {mine}.")


def _compared(
    seen: Observed,
    retrained: Sequence[Observed],
    before: Observed | None,
    questions: Collection[str],
    *,
    resamples: int,
    seed: int,
) -> list[Metric]:
    """Answer the same questions for the model, the references and the original, and combine the answers."""

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
    return Metric.absent(name, better="reference", note="Not requested.", split=split, subset="forget")
