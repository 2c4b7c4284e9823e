"""SSD, selective synaptic dampening: shrink the weights that matter far more for the forget data than for the rest.

Foster et al., AAAI 2024. Nothing is trained.

The importance of weight j on a set S is the mean over batches b of its squared batch gradient,

    I_S,j = (1/#batches) Σ_b (∂/∂θ_j mean CE_b)²

for S = D (all training data, forget data included) and S = D_f. Where I_f,j > α I_D,j, θ_j is multiplied by
β_j = min(1, λ I_D,j / I_f,j).

The squared gradient of a batch mean depends on the size and order of the batches. With ``batch_size=1`` it is the
per-sample Fisher information, which depends on neither. The official repository (our default) takes batches of 64 in
the order of the classes, the forget class last. We order by training label, the forget data last. The repository uses
λ = 1, α = 10 for ResNet-18 (ViT: 25, 5 or 10 by task). The entanglement paper prints λ 1, α 10. Its release takes
CIFAR-100 in the order of the fine classes, the forget class last (``order="fine"``). On its other data sets it takes
remote, adjacent and forget data one after the other, each in the order of the data set (``order="dataset"``). It swaps
λ and α on Tiny-ImageNet, as ``released`` does here for vision transformers. It also computes importances on 32×32
inputs for a network trained at 224; we do not reproduce that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unweave.data import RETAINED
from unweave.engine import Logged, Phase, Workbench
from unweave.maths import Gradient
from unweave.methods.method import Method, Profiles
from unweave.settings import Between, setting


def in_order_of(fine: Tensor, rows: Tensor) -> Tensor:
    """Return the rows by fine class, and by position within a class.

    >>> in_order_of(torch.tensor([1, 0, 1, 0]), torch.tensor([0, 1, 2]))
    tensor([1, 0, 2])
    """
    return rows[fine.to(rows.device)[rows].argsort(stable=True)]


@dataclass(frozen=True, kw_only=True)
class SSD(Method):
    """SSD, selective synaptic dampening: shrink the weights that matter mostly for the forget data. Nothing is trained.

    ``unweave methods ssd`` lists the settings. Reference: Foster et al., "Fast Machine Unlearning without Retraining
    through Selective Synaptic Dampening" (AAAI 2024).

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> model = torch.nn.Linear(6, 2)
        >>> result = uw.unlearn(model, split, uw.SSD(selection=0.5, dampening=0.5), guard=None)
        >>> bool((result.model.weight.abs() <= model.weight.abs()).all())
        True
    """

    name = "ssd"
    summary = "Shrink the weights that matter for the forget data far more than for the rest; no training."
    needs = ("forget", RETAINED)
    profiles: ClassVar[Profiles] = {
        "official": {},  # if-loops/selective-synaptic-dampening, ResNet-18
        "paper": {},  # appendix "Baseline Methods", CIFAR-100: the same values
        "released": {"order": "fine"},  # CIFAR-100
    }

    selection: float = setting(
        10.0, at_least=0, search=Between(1.0, 100.0), help="A weight is chosen where I_f > this × I_D; the paper's α."
    )
    dampening: float = setting(
        1.0,
        at_least=0,
        search=Between(0.1, 1.0),
        help="A chosen weight is multiplied by this × I_D / I_f; the paper's λ.",
    )
    batch_size: int = setting(64, at_least=1, help="Samples per squared gradient; 1: per-sample Fisher.")
    order: Literal["label", "fine", "dataset"] = setting(
        "label",
        help="Order of the data before it is cut into batches, the forget data last. label: by label. dataset: remote, "
        "then adjacent data, by position. fine: by the fine class that Split.by_class was given; as dataset without.",
    )
    normalisation: Literal["eval", "train"] = setting("eval", help="Mode of normalisation layers and dropout.")

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [Dampen(self)]


class Dampen(Phase):
    """One pass to measure importances, then one multiplication."""

    name = "importances"
    keeps = ("everywhere", "on_forget")
    guards = ()  # no weight moves before the end

    def __init__(self, settings: SSD) -> None:
        self.settings = settings

    def prepare(self, bench: Workbench) -> None:
        """Put the retained data before the forget data. A step is one batch."""
        super().prepare(bench)
        s = self.settings
        by_label = s.order == "label"
        kept = bench.batches("adjacent", "remote", size=s.batch_size, by_label=by_label)
        forget = bench.batches("forget", size=s.batch_size, by_label=by_label)
        fine = bench.split.samples.fine_classes if s.order == "fine" else None
        if fine is not None:
            self.forget = forget.of_rows(in_order_of(fine, forget.rows))
            first = in_order_of(fine, kept.rows)
        else:
            self.forget = forget
            by_position = [bench.split.rows(subset).to(bench.device) for subset in ("remote", "adjacent")]
            first = kept.rows if by_label else torch.cat(by_position)
        self.everything = kept.of_rows(torch.cat([first, self.forget.rows]))
        self.steps = len(self.everything) + len(self.forget)
        bench.mode(s.normalisation)

    def begin(self) -> None:
        """All importances start at 0."""
        self.everywhere: Gradient = [torch.zeros_like(parameter) for parameter in self.bench.parameters]
        self.on_forget: Gradient = [torch.zeros_like(parameter) for parameter in self.bench.parameters]

    def step(self, number: int) -> Logged:
        """Add one batch's squared gradient to I_D or, once all data was read, to I_f."""
        turn = number - len(self.everything)
        batches, total = (self.everything, self.everywhere) if turn < 0 else (self.forget, self.on_forget)
        loss = self.bench.losses(batches.unshuffled(number if turn < 0 else turn)).mean()
        gradient = self.bench.gradient([loss])
        torch._foreach_addcmul_(total, gradient, gradient, value=1 / len(batches))
        return {"loss" if turn < 0 else "forget_loss": loss.detach()}

    @torch.no_grad()
    def finish(self) -> None:
        """Dampen the chosen weights."""
        s = self.settings
        for parameter, everywhere, on_forget in zip(
            self.bench.parameters, self.everywhere, self.on_forget, strict=True
        ):
            chosen = on_forget > s.selection * everywhere
            share = (s.dampening * everywhere / on_forget).clamp(max=1)
            parameter.copy_(torch.where(chosen, parameter * share, parameter))
