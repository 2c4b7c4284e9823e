"""SSD, selective synaptic dampening: shrink the weights that matter for the forget data far more than for the rest
(Foster et al., AAAI 2024). No training.

The importance of weight j on a set S is the mean over batches b of its squared batch gradient,

    I_S,j = (1/#batches) Σ_b (∂/∂θ_j mean CE_b)²

for S = D (all training data, forget data included) and S = D_f. Where I_f,j > α I_D,j, θ_j is multiplied by
β_j = min(1, λ I_D,j / I_f,j).

The squared gradient of a batch mean depends on batch size and order; ``batch_size=1`` is the per-sample Fisher and
depends on neither. The official repository (our default) takes batches of 64 in the order of the classes, the forget
class last; we order by training label, the forget data last. It uses λ = 1, α = 10 for ResNet-18 (ViT: 25, 5 or 10
by task). The entanglement paper prints λ 1, α 10. Its release takes remote, adjacent and forget data one after the
other, each as the data set has it (``order="dataset"``), and swaps λ and α on Tiny-ImageNet, as ``released`` does here
for vision transformers. It also computes importances on 32×32 inputs for a network trained at 224: not reproduced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from unweave.data import RETAINED
from unweave.engine import Batches, Logged, Phase, Workbench
from unweave.maths import Gradient
from unweave.methods.method import Method, Profiles
from unweave.settings import Between, setting


@dataclass(frozen=True, kw_only=True)
class SSD(Method):
    """SSD, selective synaptic dampening."""

    name = "ssd"
    summary = "Shrink the weights that matter for the forget data far more than for the rest; no training."
    needs = ("forget", RETAINED)
    profiles: ClassVar[Profiles] = {
        "official": {},  # if-loops/selective-synaptic-dampening, ResNet-18
        "paper": {},  # appendix "Baseline Methods", CIFAR-100: the same values
        "released": {"order": "dataset"},
    }

    selection: float = setting(
        10.0, at_least=0, search=Between(1.0, 100.0), help="A weight is chosen where I_f > this × I_D; the paper's α."
    )
    dampening: float = setting(
        1.0, at_least=0, search=Between(0.1, 1.0), help="How much of I_D / I_f is left of a chosen weight; its λ."
    )
    batch_size: int = setting(64, at_least=1, help="Samples per squared gradient; 1: per-sample Fisher.")
    order: Literal["label", "dataset"] = setting(
        "label",
        help="Before it is cut into batches, data is ordered by label, or remote, adjacent, forget by position.",
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
        """Line up the retained data, then the forget data; a step is one batch."""
        super().prepare(bench)
        s = self.settings
        by_label = s.order == "label"
        kept = bench.batches("adjacent", "remote", size=s.batch_size, by_label=by_label)
        self.forget = bench.batches("forget", size=s.batch_size, by_label=by_label)
        by_position = [bench.split.rows(subset).to(bench.device) for subset in ("remote", "adjacent")]
        rows = torch.cat([*([kept.rows] if by_label else by_position), self.forget.rows])
        self.everything = Batches(
            kept.samples, rows, size=s.batch_size, seed=kept.seed, device=bench.device, classes=kept.classes
        )
        self.steps = len(self.everything) + len(self.forget)
        bench.mode(s.normalisation)

    def begin(self) -> None:
        """All importances start at 0."""
        self.everywhere: Gradient = [torch.zeros_like(parameter) for parameter in self.bench.parameters]
        self.on_forget: Gradient = [torch.zeros_like(parameter) for parameter in self.bench.parameters]

    def step(self, number: int) -> Logged:
        """Add one batch's squared gradient to I_D, or to I_f once all data is through."""
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
