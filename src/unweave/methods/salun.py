"""SalUn, saliency unlearning: relabel the forget data at random, and move only the weights that matter for it.

Fan et al., ICLR 2024.

(a) Mask: the signed gradient of −CE, summed over all forget batches in evaluation mode. Of all weights together, the
share ``saliency`` with the largest absolute value may move. (b) Relabelling: forget samples get uniformly random
labels, drawn anew each epoch. CE is minimised over a shuffled mixture of them and the retained data (CIFAR-100, Tiny),
or in turn over forget and retained data (CIFAR-10, SVHN: ``passes="in turn"``). Gradients are multiplied by the mask.

Until February 2026 upstream let weight decay move masked-out weights. Our default restores them after every step and
clears their momentum, as upstream has done since; ``leak=True`` is the old form. The SalUn paper excludes the true
label (``exclude_true``), its repository does not. ``official`` is SGD 0.013 with momentum 0.9, weight decay 5e-4, batch
256, 10 epochs and training mode.

``released`` is what the entanglement paper's code calls SalUn, and it is another method. It chooses whole parameter
tensors by the mean absolute gradient over forget batches, and its loss is the difference

    β_a L_a(θ) + β_r L_r(θ) − λ L_f(θ)

without random labels, with AdamW (which also decays masked tensors), clipped to norm 1, with frozen statistics. The
paper prints 3 epochs of 1e-5 with half of the weights (``paper``: the official algorithm with these values).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unweave.data import Batch
from unweave.engine import Logged, OptimizerName, Phase, Workbench
from unweave.maths import Gradient
from unweave.methods.descent import DescentSettings, optimizer_for, set_learning_rate
from unweave.methods.method import Method, Profiles
from unweave.methods.relabel import chance, random_labels
from unweave.runtime import all_cut_like, whole
from unweave.settings import OneOf, default, setting


@dataclass(frozen=True, kw_only=True)
class SalUn(DescentSettings, Method):
    """SalUn, saliency unlearning: relabel the forget data at random, and move only the weights that matter for it.

    ``unweave methods salun`` lists the settings. Reference: Fan et al., "SalUn: Empowering Machine Unlearning via
    Gradient-based Weight Saliency in Both Image Classification and Generation" (ICLR 2024).

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> model = torch.nn.Linear(6, 2)
        >>> result = uw.unlearn(model, split, uw.SalUn(saliency=0.25, epochs=3), guard=None)
        >>> int((result.model.weight != model.weight).sum()) <= 3  # a quarter of 14 weights and biases
        True
    """

    name = "salun"
    summary = "Relabel the forget data at random, and move only the weights that matter for it."
    needs_classes = True
    profiles: ClassVar[Profiles] = {
        "official": {},  # OPTML-Group/Unlearn-Saliency, method RL
        "paper": {  # appendix "Baseline Methods", CIFAR-100
            "optimizer": "adamw",
            "learning_rate": 1e-5,
            "momentum": 0.0,
            "weight_decay": 0.05,
            "epochs": 3,
            "normalisation": "eval",
        },
        "released": {
            "mask": "tensors",
            "objective": "difference",
            "optimizer": "adamw",
            "learning_rate": 1e-5,
            "momentum": 0.0,
            "weight_decay": 0.05,
            "clip_norm": 1.0,
            "leak": True,
            "normalisation": "eval",
        },
    }

    optimizer: OptimizerName = default("sgd")
    learning_rate: float = default(0.013)
    momentum: float = default(0.9)
    weight_decay: float = default(5e-4)
    batch_size: int = default(256)
    saliency: float = setting(
        0.5,
        above=0,
        at_most=1,
        search=OneOf(0.1, 0.3, 0.5, 0.7, 0.9),
        help="Share of the weights (or tensors) that may move.",
    )
    mask: Literal["weights", "tensors"] = setting("weights", help="What is chosen: single weights or whole tensors.")
    objective: Literal["random labels", "difference"] = setting(
        "random labels", help="Random labels (SalUn) or β_a L_a + β_r L_r − λ L_f (the entanglement paper's code)."
    )
    passes: Literal["mixed", "in turn"] = setting("mixed", help="Mix forget and retained data, or take turns.")
    exclude_true: bool = setting(False, help="Never draw the true label.")
    leak: bool = setting(False, help="Let the optimiser's weight decay move masked-out weights, as upstream once did.")
    clip_norm: float = setting(0.0, at_least=0, help="Clip the gradient to this norm; 0: no clipping.")
    adjacent_weight: float = setting(1.0, at_least=0, help="β_a of the difference.")
    remote_weight: float = setting(2.0, at_least=0, help="β_r of the difference.")
    forget_weight: float = setting(1.0, at_least=0, help="λ of the difference.")
    forget_batch: int = setting(
        64,
        at_least=1,
        help="Forget and adjacent samples per step of the difference, and forget samples per step of a tensor mask.",
    )
    mask_batches: int = setting(50, at_least=1, help="Most forget batches that a mask of tensors is computed from.")

    def phases(self) -> list[Phase]:
        """Return the phase that finds the mask and the phase that unlearns within it."""
        saliency = Saliency(self)
        unlearning = Relabel if self.objective == "random labels" else Difference
        return [saliency, unlearning(self, saliency)]


class Saliency(Phase):
    """Find the weights that matter for the forget data."""

    name = "saliency"
    keeps = ("gradient",)
    guards = guards_at_end = ()  # no weight moves

    def __init__(self, settings: SalUn) -> None:
        self.settings = settings

    def prepare(self, bench: Workbench) -> None:
        """One step is one forget batch."""
        super().prepare(bench)
        s = self.settings
        # Absolute gradients depend on the batch size. The release has one forget loader for both mask and descent.
        self.forget = bench.batches("forget", size=s.forget_batch if s.mask == "tensors" else s.batch_size)
        self.steps = len(self.forget)
        if s.mask == "tensors":
            self.steps = min(self.steps, s.mask_batches)
        bench.mode("eval")

    def begin(self) -> None:
        """Gradients start at 0."""
        self.gradient: Gradient = [torch.zeros_like(parameter) for parameter in self.bench.parameters]

    def step(self, number: int) -> Logged:
        """Add one batch's gradient: signed for single weights, absolute for tensors."""
        loss = self.bench.losses(self.forget[number]).mean()
        gradient = self.bench.gradient([-loss])
        if self.settings.mask == "tensors":
            gradient = [part.abs() for part in gradient]
        torch._foreach_add_(self.gradient, gradient)
        return {"forget_loss": loss.detach()}

    def masks(self) -> list[Tensor]:
        """Return, for every parameter, which of its weights may move."""
        share = self.settings.saliency
        if self.settings.mask == "tensors":
            scores = torch.stack([whole(part.mean()) for part in self.gradient])
            chosen = top(scores, math.ceil(share * len(scores)))
            flags = [flag.expand(part.shape) for flag, part in zip(chosen, self.gradient, strict=True)]
            return all_cut_like(flags, self.gradient)
        flat = torch.cat([whole(part).abs().reshape(-1) for part in self.gradient])
        chosen = top(flat, round(share * len(flat)))
        pieces = zip(chosen.split([part.numel() for part in self.gradient]), self.gradient, strict=True)
        return all_cut_like([flags.reshape(part.shape) for flags, part in pieces], self.gradient)


def top(scores: Tensor, count: int) -> Tensor:
    """Mark the ``count`` largest scores: exactly that many, even where scores are equal.

    >>> top(torch.tensor([3.0, 1.0, 3.0, 2.0]), 2)
    tensor([ True, False,  True, False])
    """
    chosen = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
    chosen[scores.argsort(descending=True, stable=True)[:count]] = True
    return chosen


class Masked(Phase):
    """Descend along the chosen weights only."""

    keeps = ("optimizer", "start", "masks")

    def __init__(self, settings: SalUn, saliency: Saliency) -> None:
        self.settings, self.saliency = settings, saliency

    def prepare(self, bench: Workbench) -> None:
        """Make the optimiser; subclasses make the batches."""
        super().prepare(bench)
        self.optimizer = optimizer_for(self.settings, bench)
        bench.mode(self.settings.normalisation)

    def begin(self) -> None:
        """Note the mask, and the values that masked-out weights keep."""
        self.masks: list[Tensor] = self.saliency.masks()
        self.start: Gradient = [parameter.detach().clone() for parameter in self.bench.parameters]

    def masked_step(self, gradient: Gradient, number: int) -> None:
        """Let the optimiser step along the masked gradient. Restore the other weights, unless they may leak."""
        s = self.settings
        set_learning_rate(self.optimizer, s, done=number / self.steps)
        gradient = [part * mask for part, mask in zip(gradient, self.masks, strict=True)]
        if s.clip_norm:
            length = torch.stack([whole(part.norm()) for part in gradient]).norm()
            torch._foreach_mul_(gradient, (s.clip_norm / (length + 1e-6)).clamp(max=1))
        self.bench.descend(self.optimizer, gradient)
        if s.leak:
            return
        with torch.no_grad():
            for parameter, mask, start in zip(self.bench.parameters, self.masks, self.start, strict=True):
                parameter.copy_(torch.where(mask, parameter, start))
                for entry in self.optimizer.state.get(parameter, {}).values():
                    if isinstance(entry, Tensor) and entry.shape == parameter.shape:
                        entry.mul_(mask)


class Relabel(Masked):
    """Learn random labels on the forget data and the true ones on the rest."""

    name = "relabel"

    def prepare(self, bench: Workbench) -> None:
        """Mixed: one stream of all data. In turn: a forget pass and then a retained pass in each epoch."""
        super().prepare(bench)
        s = self.settings
        self.forget = bench.batches("forget", size=s.batch_size)
        self.classes = bench.classes(self.forget)
        if s.passes == "mixed":
            streams = [bench.batches("forget", "adjacent", "remote", size=s.batch_size)]
        else:
            streams = [self.forget, bench.batches("adjacent", "remote", size=s.batch_size)]
        self.plan = [
            (epoch, stream, epoch * len(stream) + place)
            for epoch in range(s.epochs)
            for stream in streams
            for place in range(len(stream))
        ]
        self.steps = len(self.plan)

    def step(self, number: int) -> Logged:
        """Take one masked step on one batch."""
        epoch, stream, place = self.plan[number]
        batch = self.relabelled(stream[place], epoch)
        loss = self.bench.losses(batch).mean()
        self.masked_step(self.bench.gradient([loss]), number)
        return {"loss": loss.detach()}

    def relabelled(self, batch: Batch, epoch: int) -> Batch:
        """Give the forget samples of a batch this epoch's random labels."""
        rows, s = self.forget.rows, self.settings
        place = torch.searchsorted(rows, batch.rows).clamp(max=len(rows) - 1)
        is_forget = rows[place] == batch.rows
        true = self.bench.labels(batch)
        drawn = chance(len(rows), *true.shape[1:], seed=self.bench.seed, turn=epoch, device=rows.device)[place]
        labels = random_labels(true, drawn, classes=self.classes, exclude_true=s.exclude_true)
        return batch.with_labels(torch.where(is_forget.view(-1, *[1] * (true.ndim - 1)), labels, true))


class Difference(Masked):
    """Descend on β_a L_a + β_r L_r − λ L_f along the chosen tensors (the entanglement paper's code)."""

    name = "difference"

    def prepare(self, bench: Workbench) -> None:
        """An epoch has as many steps as the longest stream has batches. Shorter streams begin again."""
        super().prepare(bench)
        s = self.settings
        self.forget = bench.batches("forget", size=s.forget_batch)
        self.adjacent = bench.batches("adjacent", size=s.forget_batch)
        self.remote = bench.batches("remote", size=s.batch_size)
        self.steps = s.epochs * max(len(self.forget), len(self.adjacent), len(self.remote))

    def step(self, number: int) -> Logged:
        """Take one masked step on one batch of each subset."""
        bench, s = self.bench, self.settings
        forget = bench.losses(self.forget[number]).mean()
        adjacent = bench.losses(self.adjacent[number]).mean()
        remote = bench.losses(self.remote[number]).mean()
        objective = s.adjacent_weight * adjacent + s.remote_weight * remote - s.forget_weight * forget
        self.masked_step(bench.gradient([objective]), number)
        return {"forget_loss": forget.detach(), "adjacent_loss": adjacent.detach(), "remote_loss": remote.detach()}
