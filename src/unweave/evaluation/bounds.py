"""The forgetting bound: an upper bound on the accuracy on the forget samples, from measured losses.

This is Proposition 2 of "Machine Unlearning under Retain–Forget Entanglement" as its main text states it, with the
square. (Only the appendix says that the main text lacks it.) Let n be the number of classes. Assume that every forget
loss before stage 2 is at least m > log n, and that stage 2 changed the protected objective L̃ = ±(1−α) L + α W₂² by at
most ε. Then

    accuracy on the forget set ≤ ((1−α)/α + √(ε/α))² / (m − log n)²

The reason: a correctly predicted sample has a loss of at most log n, so each one that returns adds at least
(m − log n)² to the sum behind W₂². The proof's middle step, W₂² / (m − log n)², is tighter, holds for any α, and is
reported too.

The bound covers these samples and their labels only. It bounds accuracy, not what an attacker can learn, so it is not
a privacy guarantee.

>>> bound = forgetting_bound(torch.full((50,), 12.0), torch.full((50,), 11.0), alpha=0.5, classes=3)
>>> print(bound)
at most 0.8% of the 50 forget samples are predicted right (measured losses; m = 12.00, ε = 0, α = 0.5)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from unweave.errors import UsageError, unknown
from unweave.evaluation.metric import Metric
from unweave.evaluation.predictions import Observed, Predictions
from unweave.maths import squared_wasserstein

NAMES = ("forget_bound", "forget_bound_tighter")
NOT_ASKED = "Not requested: two-stage's needs the model before stage 2, unweave's needs the target of its run."
WORDS = "An upper bound on the accuracy on these samples, from their losses. It is not a privacy guarantee."

Ask: TypeAlias = Callable[[nn.Module], Predictions]  # the predictions of another model on the forget samples


class Bound(Protocol):
    """A computed upper bound on forget accuracy."""

    def metrics(self) -> list[Metric]:
        """Return the bound for the scores: one metric for each of `NAMES`."""
        ...

    def entry(self) -> dict[str, Any]:
        """Return the bound for a record: its value, a sentence, and the conditions it was computed from."""
        ...


class Certificate(Protocol):
    """The inputs of a bound, besides the model itself."""

    def bound(self, now: Predictions, ask: Ask) -> Bound:
        """Return the bound for the model's current predictions on the forget samples."""
        ...


@dataclass(frozen=True)
class BeforeStage2:
    """Inputs of the forgetting bound: the two-stage method's model between its stages, and its settings.

    Args:
        model: The model after stage 1.
        alpha: The method's ``alpha``.
        mean_sign: The method's ``mean_sign``.

    >>> BeforeStage2(nn.Linear(4, 2), alpha=0.5).mean_sign
    -1
    """

    model: nn.Module
    alpha: float
    mean_sign: int = -1

    def bound(self, now: Predictions, ask: Ask) -> Bound:
        """Return the forgetting bound."""
        then = ask(self.model)
        return forgetting_bound(
            then.losses, now.losses, alpha=self.alpha, classes=now.classes, mean_sign=self.mean_sign
        )


@dataclass(frozen=True)
class Shortfall:
    """Input of the bound of ``unweave``: the loss C above which it held the forget losses.

    Args:
        target: C, the method's ``target``.

    >>> Shortfall(target=10.0)
    Shortfall(target=10.0)
    """

    target: float

    def bound(self, now: Predictions, ask: Ask) -> Bound:
        """Return the bound of ``unweave``, which needs no other model."""
        return ShortfallBound(losses=now.losses, target=self.target, classes=now.classes)


def make_certificate(bound: str, constants: Mapping[str, float], before: nn.Module | None) -> Certificate:
    """Return the certificate for a bound that a method names, with its constants.

    >>> make_certificate("shortfall", {"target": 10.0}, None)
    Shortfall(target=10.0)
    """
    if bound == "shortfall":
        return Shortfall(**constants)
    if bound == "two-stage" and before is not None:
        return BeforeStage2(before, alpha=float(constants["alpha"]), mean_sign=int(constants["mean_sign"]))
    raise unknown("bound", bound, ("shortfall", "two-stage"))


def certificate_metrics(certificate: Certificate | None, observed: Observed, ask: Ask) -> list[Metric]:
    """Return the bounds as metrics, absent without a certificate."""
    if certificate is not None and not observed("train").has_probabilities:
        note = f"No bound: the task {observed('train').task.name} has no classes."
        return [_absent(name, note) for name in NAMES]
    if certificate is None:
        note = "Not requested: two-stage's needs the model before stage 2, unweave's needs the target of its run."
        return [_absent(name, note) for name in NAMES]
    return certificate.bound(observed("train", "forget"), ask).metrics()


def certificate_entry(certificate: Certificate | None, observed: Observed | None, ask: Ask) -> dict[str, Any]:
    """Return the bound for a record, with everything it was computed from, or the reason why there is no bound."""
    if observed is None:
        return {"bound": None, "words": "no bound: the forget samples were not evaluated.", "conditions": {}}
    if certificate is None or not observed("train").has_probabilities:
        words = "no bound: only the methods two-stage and unweave have one, unweave for cross-entropy only."
        return {"bound": None, "words": words, "conditions": {}}
    return certificate.bound(observed("train", "forget"), ask).entry()


@dataclass(frozen=True, kw_only=True)
class ForgettingBound:
    """The bound and its inputs or, if there is no bound, the condition that fails."""

    samples: int
    classes: int
    alpha: float
    mean_sign: int = 1
    smallest_loss: float | None = None  # the paper's m
    change: float | None = None  # the paper's ε
    wasserstein: float | None = None  # W₂², between the losses before and after
    value: float | None = None
    tighter: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return f"no bound: {self.reason}"
        return (
            f"at most {self.value:.1%} of the {self.samples} forget samples are predicted right (measured losses; "
            f"m = {self.smallest_loss:.2f}, ε = {self.change:.3g}, α = {self.alpha:g})"
        )

    def metrics(self) -> list[Metric]:
        """Return both bounds as metrics."""
        return [
            _absent(name, f"No bound: {self.reason}")
            if value is None
            else Metric(metric=name, value=value, better="lower", split="train", subset="forget", note=WORDS)
            for name, value in zip(NAMES, (self.value, self.tighter), strict=True)
        ]

    def entry(self) -> dict[str, Any]:
        """Return both bounds for a record."""
        return {
            "bound": self.value,
            "tighter_bound": self.tighter,
            "words": str(self),
            "conditions": {
                "forget_samples": self.samples,
                "classes": self.classes,
                "alpha": self.alpha,
                "mean_sign": self.mean_sign,
                "smallest_forget_loss_before_stage_2": self.smallest_loss,
                "must_be_above": math.log(self.classes),
                "change_of_the_protected_objective": self.change,
                "squared_wasserstein": self.wasserstein,
            },
        }


def forgetting_bound(
    reference: Tensor, current: Tensor, *, alpha: float, classes: int, mean_sign: int = 1
) -> ForgettingBound:
    """Return the bound from the forget losses before stage 2 (``reference``) and now, or the reason why there is none.

    ``mean_sign`` is the sign of the mean in L̃: 1 in the paper, −1 in the released code. The proof holds for both.
    """
    for name, losses in (("reference", reference), ("current", current)):
        if losses.ndim != 1 or not torch.isfinite(losses).all():
            raise UsageError(f"The {name} losses must be a vector of finite numbers, one per forget sample.")
    if len(reference) != len(current):
        raise UsageError(
            f"There are {len(reference)} reference and {len(current)} current losses. Both must cover the same samples."
        )
    if not 0 <= alpha <= 1 or mean_sign not in (-1, 1):
        raise UsageError(f"alpha must be in [0, 1] and mean_sign ±1, not {alpha} and {mean_sign}.")
    known: dict[str, Any] = {"samples": len(current), "classes": classes, "alpha": alpha, "mean_sign": mean_sign}

    def none(reason: str, **measured: Any) -> ForgettingBound:
        return ForgettingBound(**known, **measured, reason=reason)

    if len(reference) == 0:
        return none("there are no forget samples.")
    if classes < 2:
        return none(f"the model has {classes} class, so every prediction is correct.")
    before, now = reference.double(), current.double()
    least, distance = float(before.min()), float(squared_wasserstein(now, before))
    change = abs(mean_sign * (1 - alpha) * float(now.mean() - before.mean()) + alpha * distance)
    measured: dict[str, Any] = {"smallest_loss": least, "change": change, "wasserstein": distance}
    room = least - math.log(classes)
    if room <= 0:
        return none(
            f"the smallest forget loss before stage 2 is {least:.2f}, but must be above log({classes}) = "
            f"{math.log(classes):.2f}.",
            **measured,
        )
    if distance < room**2:
        measured["tighter"] = distance / room**2
    if alpha == 0:
        return none("α is 0, so nothing constrained single losses (plain PGD).", **measured)
    value = ((1 - alpha) / alpha + math.sqrt(change / alpha)) ** 2 / room**2
    if value >= 1:
        return none(f"the formula gives {value:.2f}, but a useful bound is below 1.", **measured)
    return ForgettingBound(**known, **measured, value=value)


def shortfall_bound(losses: Tensor, *, target: float, classes: int) -> tuple[float, float]:
    """Return the bound of the method ``unweave``, S / (C − log n)², and the shortfall S = mean of (C − ℓ)₊².

    A correctly predicted sample has a loss of at most log n, so it adds at least (C − log n)² to the sum. The bound
    needs no other model. The target C must be above log n.

    >>> shortfall_bound(torch.tensor([12.0, 12.0, 12.0, 0.0]), target=10.0, classes=1)
    (0.25, 25.0)
    """
    room = target - math.log(classes)
    if room <= 0 or len(losses) == 0:
        raise UsageError(f"The target {target:g} must be above log({classes}), and there must be losses.")
    shortfall = float((target - losses.double()).clamp(min=0).square().mean())
    return min(1.0, shortfall / room**2), shortfall


@dataclass(frozen=True, kw_only=True)
class ShortfallBound:
    """The bound of the method ``unweave``: losses now, the target C, and the number of classes."""

    losses: Tensor
    target: float
    classes: int

    def metrics(self) -> list[Metric]:
        """Return the bound as a metric, or the reason why there is none."""
        name, other = NAMES
        tighter = _absent(other, "Only the method two-stage has this bound.")
        if len(self.losses) == 0 or self.target <= math.log(self.classes):
            note = f"No bound: there are no forget losses, or the target is not above log({self.classes})."
            return [_absent(name, note), tighter]
        value, shortfall = shortfall_bound(self.losses, target=self.target, classes=self.classes)
        if value >= 1:
            note = f"No bound: with a shortfall of {shortfall:.3g} below {self.target:g} any accuracy is possible."
            return [_absent(name, note), tighter]
        return [Metric(metric=name, value=value, better="lower", split="train", subset="forget", note=WORDS), tighter]

    def entry(self) -> dict[str, Any]:
        """Return the bound for a record."""
        bound, shortfall = shortfall_bound(self.losses, target=self.target, classes=self.classes)
        return {
            "bound": bound,
            "words": f"at most {bound:.1%} of the {len(self.losses)} forget samples are predicted right (measured "
            f"losses; shortfall {shortfall:.3g} below C = {self.target:g})",
            "conditions": {
                "forget_samples": len(self.losses),
                "classes": self.classes,
                "target": self.target,
                "must_be_above": math.log(self.classes),
                "shortfall": shortfall,
            },
        }


def _absent(name: str, note: str) -> Metric:
    return Metric.absent(name, better="lower", note=note, split="train", subset="forget")
