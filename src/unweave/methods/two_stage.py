"""The two-stage method of "Machine Unlearning under Retain–Forget Entanglement" (ICLR 2026), Algorithm 1.

Stage 1 raises the forget loss and pins the remote loss where it was (Eq. 1–4):

    L_aug(θ; λ, μ) = −L_f(θ) + λ c + (μ/2) c²,    c = L_r(θ) − L_r(θ₀),    λ ← λ + μ c

with L_f clipped per sample at C. It does not protect adjacent data, which suffers. Stage 2 recovers it by projected
gradient descent (Eq. 10): it steps along the adjacent gradient, less its part in the span V of

    ∇L̃_f,  L̃_f = ±(1−α) L_f + α W₂²(P_θ̄, P_θ)    and    ∇L_r

where P is the distribution of the forget losses and θ̄ are the weights after stage 1. The Wasserstein term keeps single
forget samples from sliding back while the mean stays where it is. α = 0 is plain PGD, the paper's ablation.

The default profile ``released`` is what the authors' code does. It differs from the printed equations in that

- the mean forget loss enters L̃_f with a minus sign, so that samples whose loss falls weigh more, not less;
- stage 2 has momentum, added *before* the projection, and the projected direction replaces the velocity, so that every
  step is orthogonal to V;
- λ moves on the constraint as measured before the step, on the step's minibatch.

The profile ``paper`` is the printed form: plus sign, no momentum, λ moved after the step.

We depart from the release where it does not change the method. Forget batches are reshuffled on every pass (the release
replays the first pass). Remote batches come from one endless stream instead of a fresh shuffle per step. Reference
losses are computed once where the data does not vary. The projection counts parallel directions once, where the release
adds 1e-8 per parameter tensor to the Gram matrix (``ridge`` does that too).

**Several requests, one after the other**, are not in the paper. What earlier requests forgot (`Split.after`) joins the
constraints. In stage 1 its mean relapse, (min{C, ℓ(θ₀)} − ℓ(θ))₊ per sample, is held at 0 by a multiplier of its own.
In stage 2 V has a third direction, the gradient of its own L̃_f. Gradients of the relapse are large, gradients of a
forget sample that the model is sure of vanish, and Adam remembers the large ones. So confident samples are pushed
harder here (``sequential_confident_penalty``); without it, the second request on the digits may forget nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from unweave.data import Batch
from unweave.engine import Batches, Logged, OptimizerName, Phase, Workbench, make_optimizer
from unweave.maths import Gradient, clipped, remove_span, squared_wasserstein
from unweave.methods.method import Method, Profiles, Promise
from unweave.runtime import reading
from unweave.settings import Around, Multiples, OneOf, default, setting

# Keeps the extra penalty on confident samples finite where the loss is 0. The value is the release's.
CONFIDENT_OFFSET = 1e-3


@dataclass(frozen=True, kw_only=True)
class TwoStage(Method):
    """The two-stage method of "Machine Unlearning under Retain–Forget Entanglement" (ICLR 2026), Algorithm 1.

    Stage 1 raises the forget loss and pins the remote loss. Stage 2 recovers the adjacent data by projected gradient
    descent. The defaults are the values of the authors' release for CIFAR-100. The profile ``paper`` is the printed
    form. ``unweave methods two-stage`` lists the settings.

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> result = uw.unlearn(torch.nn.Linear(6, 2), split, uw.TwoStage(alpha=0.25), guard=None)
        >>> sorted({row["phase"] for row in result.history})
        ['stage 1', 'stage 2']
        >>> uw.TwoStage.configure(profile="paper").momentum
        0.0
    """

    name = "two-stage"
    summary = "Augmented Lagrangian on forget and remote, then W₂-guided projected descent on adjacent."
    profiles: ClassVar[Profiles] = {
        "released": {},
        "paper": {"mean_sign": 1, "momentum": 0.0, "multiplier_update": "after"},
    }
    promise = Promise(bound="two-stage", settings=("alpha", "mean_sign"), after_phase=0)

    alpha: float = setting(0.5, at_least=0, at_most=1, help="Share of W₂² in the protected forget objective; 0: PGD.")
    mean_sign: Literal[-1, 1] = setting(-1, help="Sign of the mean in L̃_f: −1 as released, 1 as printed.")
    penalty: float = setting(
        10.0,
        at_least=0,
        search=OneOf(5.0, 10.0, 20.0),
        help="Weight of the squared constraint in stage 1; the paper's μ.",
    )
    clip: float = setting(10.0, above=0, help="Stage 1 ignores forget losses above this; the paper's C.")
    multiplier_update: Literal["before", "after"] = setting(
        "before", help="Whether λ moves on the constraint as measured before or after the step of the weights."
    )
    constrain_adjacent: bool = setting(False, help="Let stage 1 pin the adjacent loss too (the paper's ablation).")
    confident_penalty: float = setting(
        0.0,
        at_least=0,
        help="Weight κ of the extra objective κ / (loss + 0.001), which pushes confident forget samples.",
    )
    sequential_confident_penalty: float = setting(
        0.1, at_least=0, help="Least confident_penalty where earlier requests forgot something (Split.after)."
    )
    stage1_optimizer: OptimizerName = setting("adam", help="Optimiser of stage 1.")
    stage1_learning_rate: float = setting(2.5e-6, above=0, search=Around(30), help="Step size of stage 1.")
    stage1_epochs: int = setting(
        1, at_least=0, search=Multiples(0.5, 1, 2), help="Passes over the remote data in stage 1."
    )
    stage1_remote_batch: int = setting(128, at_least=1, help="Remote samples per step of stage 1.")
    stage1_forget_batch: int = setting(16, at_least=1, help="Forget samples per step of stage 1.")
    stage2_learning_rate: float = setting(2e-5, above=0, search=Around(30), help="Step size of stage 2.")
    stage2_epochs: int = setting(
        6, at_least=0, search=Multiples(0.5, 1, 2), help="Passes over the adjacent data in stage 2."
    )
    momentum: float = setting(0.9, at_least=0, below=1, help="Momentum of stage 2, added before the projection.")
    stage2_adjacent_batch: int = setting(128, at_least=1, help="Adjacent samples per batch of stage 2.")
    stage2_forget_batch: int = setting(128, at_least=1, help="Forget samples per batch of stage 2; W₂ is per batch.")
    stage2_remote_batch: int = setting(512, at_least=1, help="Remote samples per batch of stage 2.")
    stage2_adjacent_batches: int = setting(1, at_least=1, help="Adjacent batches per step of stage 2.")
    stage2_forget_batches: int = setting(10, at_least=1, help="Forget batches per step of stage 2, one pass at most.")
    stage2_remote_batches: int = setting(10, at_least=1, help="Remote batches per step of stage 2, one pass at most.")
    ridge: float = setting(0.0, at_least=0, help="Added to the diagonal of the projection's Gram matrix; 0: nothing.")
    normalisation: Literal["eval", "train"] = setting(
        "eval", help="Mode of normalisation layers and dropout; training mode breaks the projection argument."
    )

    def phases(self) -> list[Phase]:
        """Return both stages."""
        return [Stage1(self), Stage2(self)]


@dataclass(frozen=True, kw_only=True)
class PGD(TwoStage):
    """Plain projected gradient descent: the two-stage method without the Wasserstein term (``alpha`` = 0).

    It is the ablation of "Machine Unlearning under Retain–Forget Entanglement" (ICLR 2026). Nothing holds the loss of
    single forget samples, so they are relearned.

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> uw.unlearn(torch.nn.Linear(6, 2), split, uw.PGD(), guard=None).settings.alpha
        0.0
    """

    name = "pgd"
    summary = "Two-stage without the Wasserstein term (alpha = 0): the paper's ablation, which relearns."

    alpha: float = default(0.0)


class Stage1(Phase):
    """Raise the clipped forget loss; pin the remote loss with an augmented Lagrangian (Eq. 1–4)."""

    name = "stage 1"
    keeps = ("pinned", "multiplier", "optimizer", "settled", "relapse_multiplier")
    guards = ("remote",)  # stage 1 gives adjacent data up, stage 2 recovers it
    guards_at_end = ("remote", "forget")

    def __init__(self, settings: TwoStage) -> None:
        self.settings = settings

    def prepare(self, bench: Workbench) -> None:
        """Prepare the batches: a step takes one of remote data and the next one of forget data."""
        super().prepare(bench)
        s = self.settings
        held = ("adjacent", "remote") if s.constrain_adjacent else ("remote",)
        self.remote = bench.batches(*held, size=s.stage1_remote_batch)
        self.forget = bench.batches("forget", size=s.stage1_forget_batch)
        self.forgotten, self.confident_penalty = None, s.confident_penalty
        if len(bench.split.forgotten):
            self.forgotten = bench.batches("forgotten", size=s.stage1_forget_batch)
            self.confident_penalty = max(s.confident_penalty, s.sequential_confident_penalty)
        self.steps = s.stage1_epochs * len(self.remote)
        self.optimizer = make_optimizer(s.stage1_optimizer, bench.parameters, learning_rate=s.stage1_learning_rate)
        bench.mode(s.normalisation)

    def begin(self) -> None:
        """Measure L_r(θ₀) over all of the remote data, in evaluation mode; λ starts at 0."""
        bench = self.bench
        with reading(bench.model, bench.device):  # measuring must not change statistics
            self.pinned = bench.losses_in_order(self.remote).mean()
            self.settled = torch.empty(0)
            if self.forgotten is not None:
                self.settled = bench.losses_in_order(self.forgotten).clamp(max=self.settings.clip)
        self.multiplier, self.relapse_multiplier = torch.zeros_like(self.pinned), torch.zeros_like(self.pinned)

    def step(self, number: int) -> Logged:
        """Descend on L_aug, and move λ by the violated constraint."""
        bench, s = self.bench, self.settings
        remote_batch = self.remote[number]
        remote_losses, forget_losses = bench.losses_together(remote_batch, self.forget[number])
        remote_loss = remote_losses.mean()

        gap = remote_loss - self.pinned
        objective = -clipped(forget_losses, at=s.clip).mean() + self.multiplier * gap + s.penalty / 2 * gap.square()
        if self.confident_penalty:
            objective = objective + self.confident_penalty * (1 / (forget_losses + CONFIDENT_OFFSET)).mean()
        logged: dict[str, Tensor] = {}
        if self.forgotten is not None:
            relapse, logged = self._relapse(self.forgotten, number)
            objective = objective + self.relapse_multiplier * relapse + s.penalty / 2 * relapse.square()
            self.relapse_multiplier = self.relapse_multiplier + s.penalty * relapse.detach()
        bench.descend(self.optimizer, bench.gradient([objective]))

        if s.multiplier_update == "after":
            with reading(bench.model, bench.device):
                gap = bench.losses(remote_batch).mean() - self.pinned
        self.multiplier = self.multiplier + s.penalty * gap.detach()
        return {
            "forget_loss": forget_losses.detach().mean(),
            "remote_loss": remote_loss.detach(),
            "multiplier": self.multiplier,
            **logged,
        }

    def _relapse(self, forgotten: Batches, number: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean amount by which a batch's losses fell below their values at the start, or below C."""
        batch = forgotten[number]
        losses = self.bench.losses(batch)
        before = self.settled[torch.searchsorted(forgotten.rows, batch.rows)]
        relapse = (before - losses).clamp(min=0).mean()
        return relapse, {"forgotten_loss": losses.detach().mean(), "relapse": relapse.detach()}


class Stage2(Phase):
    """Descend on the adjacent loss, orthogonally to ∇L̃_f and ∇L_r (Eq. 8–10)."""

    name = "stage 2"
    keeps = ("velocity", "reference")
    guards = ("remote",)

    def __init__(self, settings: TwoStage) -> None:
        self.settings = settings

    def passes(self, bench: Workbench) -> dict[int, int]:
        """Most passes are those of remote batches."""
        s, samples = self.settings, len(bench.split["remote"])
        batches = min(s.stage2_remote_batches, samples // s.stage2_remote_batch)
        return {s.stage2_remote_batch: batches * self._count_steps(len(bench.split["adjacent"]))}

    def _count_steps(self, adjacent: int) -> int:
        """Return the number of steps. An epoch is one pass over the adjacent data."""
        s = self.settings
        batches = -(-adjacent // s.stage2_adjacent_batch)
        return s.stage2_epochs * -(-batches // s.stage2_adjacent_batches)

    def prepare(self, bench: Workbench) -> None:
        """Prepare the batches."""
        super().prepare(bench)
        s = self.settings
        self.adjacent = bench.batches("adjacent", size=s.stage2_adjacent_batch)
        self.to_forget = {name: bench.batches(name, size=s.stage2_forget_batch) for name in bench.split.to_forget}
        self.held = bench.batches(*bench.split.to_forget, size=s.stage2_forget_batch)
        self.remote = bench.batches("remote", size=s.stage2_remote_batch)
        self.steps = self._count_steps(len(self.adjacent.rows))
        bench.mode(s.normalisation)
        # This sets only the form of the state. `begin` or a checkpoint sets the values.
        self.reference: Tensor | nn.Module = torch.empty(0)
        if bench.varies(self.held) or s.normalisation == "train":
            self.reference = bench.copied()

    def begin(self) -> None:
        """Note the forget losses of θ̄, or θ̄ itself where inputs vary. The velocity starts at 0."""
        self.velocity: Gradient = [torch.zeros_like(parameter) for parameter in self.bench.parameters]
        if isinstance(self.reference, Tensor):
            self.reference = self.bench.losses_in_order(self.held)

    def step(self, number: int) -> Logged:
        """Add momentum, project, step. The velocity becomes the projected direction."""
        bench, s = self.bench, self.settings
        self.logged: dict[str, list[Tensor]] = {}
        adjacent = bench.gradient(
            self._means("adjacent_loss", self.adjacent.several(number, s.stage2_adjacent_batches))
        )
        if s.stage2_adjacent_batches > 1:
            torch._foreach_div_(adjacent, len(self.logged["adjacent_loss"]))
        torch._foreach_add_(adjacent, self.velocity, alpha=s.momentum)
        self.velocity = adjacent  # frees the old velocity before more gradients need memory
        protected = [
            bench.gradient(self._protected(name, batches.several(number, s.stage2_forget_batches)))
            for name, batches in self.to_forget.items()
        ]
        remote = bench.gradient(self._means("remote_loss", self.remote.several(number, s.stage2_remote_batches)))
        self.velocity = remove_span(adjacent, [*protected, remote], ridge=s.ridge, in_place=True)
        bench.move(self.velocity, by=-s.stage2_learning_rate)
        return {name: torch.stack(values).mean() for name, values in self.logged.items()}

    def _means(self, name: str, batches: Iterator[Batch]) -> Iterator[Tensor]:
        """Yield the mean loss of each batch. For batches that share a pass, yield the sum of their means."""
        for group in self._passes(batches):
            means = [losses.mean() for _, losses in group]
            for mean in means:
                self._log(name, mean)
            yield torch.stack(means).sum()

    def _protected(self, name: str, batches: Iterator[Batch]) -> Iterator[Tensor]:
        """Yield L̃_f (Eq. 8) of forget data, or of data forgotten before, batch by batch. Summed as in `_means`."""
        s = self.settings
        for group in self._passes(batches):
            objectives = []
            for batch, losses in group:
                distance = squared_wasserstein(losses, self._reference_losses(batch))
                self._log(f"{name}_loss", losses.mean())
                self._log("squared_wasserstein" if name == "forget" else f"{name}_squared_wasserstein", distance)
                objectives.append(s.mean_sign * (1 - s.alpha) * losses.mean() + s.alpha * distance)
            yield torch.stack(objectives).sum()

    def _passes(self, batches: Iterator[Batch]) -> Iterator[list[tuple[Batch, Tensor]]]:
        """Yield batches with their losses. Batches that together are no larger than a remote batch share a pass."""
        return self.bench.losses_in_passes(batches, most=self.settings.stage2_remote_batch)

    def _reference_losses(self, batch: Batch) -> Tensor:
        if isinstance(self.reference, Tensor):
            return self.reference[torch.searchsorted(self.held.rows, batch.rows)]
        with torch.no_grad():
            return self.bench.losses(batch, model=self.reference)

    def _log(self, name: str, value: Tensor) -> None:
        self.logged.setdefault(name, []).append(value.detach())
