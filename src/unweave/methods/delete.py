"""DELETE: on the forget data, learn the original model's answer without the true class.

Zhou et al., "Decoupled Distillation to Erase", CVPR 2025.

Objective: min over θ of the mean over forget samples of KL(q ‖ softmax(z_θ)), where q is the softmax of the original
model's logits with the entry of the label set to −∞. The gradient with respect to z is p − q, so it is bounded. No
retained data is used. With two classes this is label flipping. With superclass labels it also strikes out the label of
the adjacent data, so accuracy on adjacent data collapses by construction.

The default ``official`` is SGD 5e-5 with momentum 0.9, 20 epochs, batch 128, student in training mode. The repository
freezes normalisation for one setting with a single class (``normalisation=eval``). The entanglement paper prints no
values and its release has no code for this method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unweave.engine import Logged, OptimizerName, Phase, Workbench
from unweave.maths import divergence
from unweave.methods.descent import DescentSettings, optimizer_for, set_learning_rate
from unweave.methods.method import Method, Profiles
from unweave.settings import default


@dataclass(frozen=True, kw_only=True)
class Delete(DescentSettings, Method):
    """DELETE: on the forget data, learn the original model's answer without the true class.

    ``unweave methods delete`` lists the settings. Reference: Zhou et al., "Decoupled Distillation to Erase" (CVPR
    2025).

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> method = uw.Delete(learning_rate=0.1, epochs=3)
        >>> gaps = uw.unlearn(torch.nn.Linear(6, 2), split, method, guard=None).history.column("divergence")
        >>> gaps[0] > gaps[1] > gaps[2]
        True
    """

    name = "delete"
    summary = "Distil the original model's answer without the true class, on the forget data only."
    needs = ("forget",)
    profiles: ClassVar[Profiles] = {"official": {}}  # shaaaaron/DELETE, CIFAR-100 with ResNet-18
    takes_loss = False
    needs_classes = True

    optimizer: OptimizerName = default("sgd")
    learning_rate: float = default(5e-5)
    momentum: float = default(0.9)
    epochs: int = default(20)

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [Distil(self)]


def strike_out(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the logits with the label's entry at −∞, so that its probability is 0.

    >>> torch.softmax(strike_out(torch.zeros(1, 3), torch.tensor([1])), dim=1)
    tensor([[0.5000, 0.0000, 0.5000]])
    """
    return logits.scatter(-1, labels[..., None], -torch.inf)


class Distil(Phase):
    """Learn the teacher's answer without the true class, on the forget data."""

    name = "distil"
    keeps = ("optimizer", "teacher")

    def __init__(self, settings: Delete) -> None:
        self.settings = settings

    def prepare(self, bench: Workbench) -> None:
        """Make the batches, the optimiser and the teacher."""
        super().prepare(bench)
        self.forget = bench.batches("forget", size=self.settings.batch_size)
        self.steps = self.settings.epochs * len(self.forget)
        self.optimizer = optimizer_for(self.settings, bench)
        self.teacher = bench.frozen_copy()
        bench.mode(self.settings.normalisation)

    def step(self, number: int) -> Logged:
        """Take one optimiser step on one forget batch."""
        bench, batch = self.bench, self.forget[number]
        set_learning_rate(self.optimizer, self.settings, done=number / self.steps)
        with torch.no_grad():
            target = strike_out(bench.logits(batch, model=self.teacher), bench.labels(batch))
        loss = divergence(target, bench.logits(batch)).mean()
        bench.descend(self.optimizer, bench.gradient([loss]))
        return {"divergence": loss.detach()}
