"""The two stages of the two-stage method, as printed and released: steps and lengths are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from unweave.data import Batch
from unweave.engine import Batches, Logged, Phase, Workbench, make_optimizer
from unweave.maths import Gradient, clipped, remove_span, squared_wasserstein
from unweave.runtime import reading

if TYPE_CHECKING:
    from unweave.methods.two_stage import TwoStage

# Keeps the extra penalty on confident samples finite where the loss is 0. The value is the release's.
CONFIDENT_OFFSET = 1e-3


class Stage1(Phase):
    """Raise the clipped forget loss; pin the remote loss with an augmented Lagrangian (Eq. 1–4)."""

    name = "stage 1"
    keeps: ClassVar[tuple[str, ...]] = ("pinned", "multiplier", "optimizer", "settled", "relapse_multiplier")
    guards: tuple[str, ...] = ("remote",)  # stage 1 gives adjacent data up, stage 2 recovers it
    guards_at_end: tuple[str, ...] = ("remote", "forget")
    pace = 1.0  # of the multiplier

    def __init__(self, settings: TwoStage) -> None:
        self.settings = settings

    def prepare(self, bench: Workbench) -> None:
        """Prepare the batches: a step takes one of remote data and the next one of forget data."""
        super().prepare(bench)
        s = self.settings
        held = ("adjacent", "remote") if s.constrain_adjacent else ("remote",)
        self.remote = bench.batches(*held, size=s.stage1_remote_batch)
        self.forget = bench.batches("forget", size=s.stage1_forget_batch)
        self.clip = s.clip
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
                self.settled = bench.losses_in_order(self.forgotten).clamp(max=self.clip)
        self.multiplier, self.relapse_multiplier = torch.zeros_like(self.pinned), torch.zeros_like(self.pinned)

    def step(self, number: int) -> Logged:
        """Descend on L_aug, and move λ by the violated constraint."""
        bench, s = self.bench, self.settings
        remote_batch = self.remote[number]
        remote_losses, forget_losses = bench.losses_together(remote_batch, self.forget[number])
        remote_loss = remote_losses.mean()

        gap = remote_loss - self.pinned
        objective = self._forgetting(forget_losses) + self.multiplier * gap + s.penalty / 2 * gap.square()
        logged: dict[str, Tensor] = {}
        if self.forgotten is not None:
            relapse, logged = self._relapse(self.forgotten, number)
            objective = objective + self.relapse_multiplier * relapse + s.penalty / 2 * relapse.square()
            self.relapse_multiplier = self.relapse_multiplier + s.penalty * relapse.detach()
        self._descend(bench.gradient([objective]))

        if s.multiplier_update == "after":
            with reading(bench.model, bench.device):
                gap = bench.losses(remote_batch).mean() - self.pinned
        self.gap = gap.detach()
        self.multiplier = self.multiplier + s.penalty * self.gap * self.pace
        return {
            "forget_loss": forget_losses.detach().mean(),
            "remote_loss": remote_loss.detach(),
            "multiplier": self.multiplier,
            **logged,
        }

    def _forgetting(self, losses: Tensor) -> Tensor:
        """Return −L_f, and the penalty on confident samples."""
        objective = -clipped(losses, at=self.clip).mean()
        if self.confident_penalty:
            objective = objective + self.confident_penalty * (1 / (losses + CONFIDENT_OFFSET)).mean()
        return objective

    def _descend(self, gradient: Gradient) -> None:
        self.bench.descend(self.optimizer, gradient)

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
    keeps: ClassVar[tuple[str, ...]] = ("velocity", "reference")
    guards: tuple[str, ...] = ("remote",)

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
        s = self.settings
        self.logged: dict[str, list[Tensor]] = {}
        adjacent = self._adjacent(number)
        torch._foreach_add_(adjacent, self.velocity, alpha=s.momentum)
        self.velocity = adjacent  # frees the old velocity before more gradients need memory
        self.velocity = remove_span(adjacent, self._span(number), ridge=s.ridge, in_place=True)
        self.bench.move(self.velocity, by=-s.stage2_learning_rate)
        return self._means_of_step()

    def _adjacent(self, number: int) -> Gradient:
        """Return ∇L_a."""
        some = self.adjacent.several(number, self.settings.stage2_adjacent_batches)
        gradient = self.bench.gradient(self._means("adjacent_loss", some))
        if self.settings.stage2_adjacent_batches > 1:
            torch._foreach_div_(gradient, len(self.logged["adjacent_loss"]))
        return gradient

    def _span(self, number: int) -> list[Gradient]:
        """Return the gradients that span V: ∇L̃_f, that of what was forgotten before, and ∇L_r."""
        bench, s = self.bench, self.settings
        protected = [
            bench.gradient(self._protected(name, batches.several(number, s.stage2_forget_batches)))
            for name, batches in self.to_forget.items()
        ]
        remote = self.remote.several(number, s.stage2_remote_batches)
        return [*protected, bench.gradient(self._means("remote_loss", remote))]

    def _means_of_step(self) -> Logged:
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
