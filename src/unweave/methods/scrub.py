"""SCRUB: disobey a frozen teacher on the forget data, obey it on the rest.

Kurmanji et al., "Towards Unbounded Machine Unlearning", NeurIPS 2023.

The teacher is the original model. Each of the first M epochs begins with one pass over the forget data that *minimises*
−T² KL_T. Every epoch has one pass over the retained data R that minimises

    γ · CE + α · T² KL_T,    KL_T = KL(softmax(z_teacher / T) ‖ softmax(z_student / T))

One optimiser serves both passes. The forget pass has no lower bound, so the run must end with retained passes.

The sources differ. The official notebooks vary. ``official`` (our default) has their values for ResNet on CIFAR-100:
Adam 5e-4 with weight decay 5e-4, γ 1, α 0.5, T 4, five passes of each kind, batches 128 and 64, student in training
mode. Their small-scale notebook has a weight decay of 0.1. The entanglement paper prints Adam 5e-5, γ 0.9, α 0.1 and
five passes of each kind. Its release runs T = 1, ten retained passes and batches 128 and 192, with frozen statistics.
"SCRUB+R" (rewinding) is not used there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from unweave.data import RETAINED
from unweave.engine import Logged, Phase, Workbench
from unweave.maths import divergence
from unweave.methods.descent import DescentSettings, optimizer_for, set_learning_rate
from unweave.methods.method import Method, Profiles
from unweave.settings import Between, OneOf, default, setting


@dataclass(frozen=True, kw_only=True)
class Scrub(DescentSettings, Method):
    """SCRUB: disobey a frozen teacher on the forget data, obey it on the rest.

    ``epochs`` counts passes over the retained data. ``unweave methods scrub`` lists the settings. Reference: Kurmanji
    et al., "Towards Unbounded Machine Unlearning" (NeurIPS 2023).

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> result = uw.unlearn(torch.nn.Linear(6, 2), split, uw.Scrub(epochs=3, forget_epochs=2), guard=None)
        >>> len(result.history.column("forget_divergence")), len(result.history.column("retained_divergence"))
        (2, 3)
    """

    name = "scrub"
    summary = "Disobey a frozen teacher on the forget data, obey it on the rest."
    needs = ("forget", RETAINED)
    profiles: ClassVar[Profiles] = {
        "official": {},  # meghdadk/SCRUB, CIFAR-100 with ResNet
        "paper": {  # appendix "Baseline Methods", CIFAR-100; temperature and mode as released
            "learning_rate": 5e-5,
            "weight_decay": 0.0,
            "forget_batch": 128,
            "temperature": 1.0,
            "loss_weight": 0.9,
            "teacher_weight": 0.1,
            "normalisation": "eval",
        },
        "released": {
            "learning_rate": 5e-5,
            "weight_decay": 0.0,
            "epochs": 10,
            "forget_batch": 192,
            "temperature": 1.0,
            "loss_weight": 0.9,
            "teacher_weight": 0.1,
            "normalisation": "eval",
        },
    }
    takes_loss = False
    needs_classes = True

    learning_rate: float = default(5e-4)
    weight_decay: float = setting(
        5e-4,
        at_least=0,
        search=OneOf(0.0, 5e-4, 0.1),
        help="Weight decay of the optimiser; the repository uses all three.",
    )
    epochs: int = default(5)
    forget_epochs: int = setting(
        5, at_least=0, search=OneOf(2, 3, 5), help="Epochs that begin with a pass over the forget data; M."
    )
    forget_batch: int = setting(64, at_least=1, help="Forget samples per step.")
    temperature: float = setting(4.0, above=0, search=OneOf(1.0, 2.0, 4.0), help="Softens both distributions; T.")
    loss_weight: float = setting(1.0, at_least=0, help="Weight of the cross-entropy on retained data; γ.")
    teacher_weight: float = setting(
        0.5, at_least=0, search=Between(0.001, 1.0), help="Weight of the divergence on retained data; α."
    )
    epoch_decay: float = setting(1.0, above=0, at_most=1, help="Factor on the step size after every epoch.")

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [TeacherPasses(self)]


class TeacherPasses(Phase):
    """Alternate forget passes and retained passes."""

    name = "scrub"
    keeps = ("optimizer", "teacher")
    guards = ()  # a forget pass may do harm that the retained passes repair

    def __init__(self, settings: Scrub) -> None:
        self.settings = settings

    def prepare(self, bench: Workbench) -> None:
        """Plan every step: (epoch, whether it is a forget batch, number of the batch in its stream)."""
        super().prepare(bench)
        s = self.settings
        self.forget = bench.batches("forget", size=s.forget_batch)
        self.retained = bench.batches("adjacent", "remote", size=s.batch_size)
        self.plan: list[tuple[int, bool, int]] = []
        for epoch in range(s.epochs):
            if epoch < s.forget_epochs:
                self.plan += [(epoch, True, epoch * len(self.forget) + place) for place in range(len(self.forget))]
            self.plan += [(epoch, False, epoch * len(self.retained) + place) for place in range(len(self.retained))]
        self.steps = len(self.plan)
        self.optimizer = optimizer_for(s, bench)
        self.teacher = bench.frozen_copy()
        bench.mode(s.normalisation)

    def step(self, number: int) -> Logged:
        """Move away from the teacher on a forget batch, or towards it on a retained batch."""
        bench, s = self.bench, self.settings
        epoch, is_forget, place = self.plan[number]
        set_learning_rate(self.optimizer, s, done=number / self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] *= s.epoch_decay**epoch
        batch = (self.forget if is_forget else self.retained)[place]
        with torch.no_grad():
            taught = bench.logits(batch, model=self.teacher)
        scores = bench.logits(batch)
        apart = s.temperature**2 * divergence(taught, scores, temperature=s.temperature).mean()
        if is_forget:
            bench.descend(self.optimizer, bench.gradient([-apart]))
            return {"forget_divergence": apart.detach()}
        loss = bench.task.losses(scores, bench.labels(batch)).mean()
        bench.descend(self.optimizer, bench.gradient([s.loss_weight * loss + s.teacher_weight * apart]))
        return {"retained_loss": loss.detach(), "retained_divergence": apart.detach()}
