"""unweave: forgetting as a constraint, kept in one loop. Our own method.

**The problem with two stages.** The paper first lets the adjacent data go and then wins it back by steps orthogonal to
the forget and remote gradients. The projection is of first order: every step leaves a change of second order in the
forget and remote losses, nothing ever undoes it, and both drift. So steps must be small, and remote accuracy falls.

**The constrained problem.** Forgetting is not something to be maximised; it is done or not done. With ℓᵢ the losses of
the *whole* forget set, C a loss at which a sample counts as forgotten, and n classes, the *shortfall* is

    S(θ) = mean of (C − ℓᵢ)₊²

which is the squared Wasserstein-2 distance from the distribution of the forget losses to the nearest one that lies
above C. A sample that is predicted right has a loss of log n at most, so it adds (C − log n)² to the sum, and therefore

    accuracy on the forget set ≤ S(θ) / (C − log n)²            (the paper's Proposition 2, without its assumption that
                                                               every loss was high at the start)

So we say what share b of the forget set may be predicted right at most, and solve

    min  L_a(θ) + w L_r(θ)     subject to     S(θ) ≤ τ = b (C − log n)²

Whenever the constraint holds, the accuracy is at most b, certified by the losses themselves; it is logged.

**The step**, as in sequential quadratic programming, with g = ∇S:

    tangent    v ← momentum · v + ∇(L_a + w L_r),   v ← v − its part along g,   θ ← θ − η v
    restoring  θ ← θ − min(β (S − τ)₊ / ‖g‖², ρ ‖θ₀‖ / ‖g‖) · g

The tangent step leaves S as it is to first order, ⟨v, g⟩ = 0. The restoring step is a Newton step for S = τ along g: to
first order it takes the share β of what is too much, however large or small η is. If S bends by at most M (that is,
|S(θ + δ) − S(θ) − ⟨g, δ⟩| ≤ M ‖δ‖²/2), one step gives

    S − τ  ≤  (1 − β)(S − τ)₊ + M (η² ‖v‖² + β² (S − τ)₊² / ‖g‖²) / 2

so S settles within a distance of order η² of τ and, as η falls to 0 along a cosine, on it. At the start S is far above
τ and the length of the restoring step is bounded by ρ, relative to the weights: forgetting takes some tens of steps,
during which adjacent and remote data are repaired as they are hurt, instead of afterwards. Remote data is an objective,
not a direction to avoid, so a loss that rose is pulled back.

A step costs one gradient each of an adjacent batch, some remote batches and the forget set: nothing is measured before,
and no copy of the model is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from unweave.engine import Logged, Phase, Workbench
from unweave.errors import UsageError
from unweave.methods.method import Method
from unweave.projection import Gradient, gram_matrix, remove_span
from unweave.search import Around, Between, Multiples
from unweave.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class UnweaveSettings(Settings):
    """Settings; step sizes are for a network of the size of ResNet-18."""

    budget: float = setting(
        0.005, above=0, below=1, help="Share of the forget set that may be predicted right at most; the paper has none."
    )
    target: float = setting(10.0, above=0, help="Loss at which a forget sample counts as forgotten; C.")
    remote_weight: float = setting(
        3.0, at_least=0, search=Between(0.5, 10.0), help="Weight of the remote loss beside the adjacent one; w."
    )
    learning_rate: float = setting(
        3e-4, above=0, search=Around(30), help="Step size of the descent at the start; it falls to 0."
    )
    momentum: float = setting(0.9, at_least=0, below=1, help="Momentum of the descent.")
    restore: float = setting(0.5, above=0, at_most=1, help="Share of what exceeds the constraint undone a step; β.")
    reach: float = setting(
        0.005, above=0, search=Around(5), help="Longest restoring step, relative to the length of the weights; ρ."
    )
    epochs: int = setting(6, at_least=0, search=Multiples(0.5, 1, 2), help="Passes over the adjacent data.")
    batch_size: int = setting(128, at_least=1, help="Adjacent samples per step.")
    remote_batch: int = setting(512, at_least=1, help="Remote samples per batch.")
    remote_batches: int = setting(4, at_least=1, help="Remote batches per step, one pass at most.")
    forget_batch: int = setting(512, at_least=1, help="Forget samples per batch; a step takes all of them.")
    normalisation: Literal["eval", "train"] = setting(
        "eval", help="Mode of normalisation layers and dropout; training mode breaks the bound."
    )


class Constrained(Phase):
    """Descend on adjacent and remote loss; hold the shortfall of the forget losses at its limit."""

    name = "constrained descent"
    keeps = ("velocity", "length")

    def __init__(self, settings: UnweaveSettings) -> None:
        self.settings = settings

    def prepare(self, bench: Workbench) -> None:
        """An epoch is one pass over the adjacent data."""
        super().prepare(bench)
        s = self.settings
        self.adjacent = bench.batches("adjacent", size=s.batch_size)
        self.remote = bench.batches("remote", size=s.remote_batch)
        self.forget = bench.batches(*bench.split.to_forget, size=s.forget_batch)
        self.steps = s.epochs * len(self.adjacent)
        chance = math.log(bench.classes(self.forget))
        if s.target <= chance:
            raise UsageError(
                f"target is {s.target:g}, but a sample is only sure to be predicted wrong where its loss is above "
                f"log(classes) = {chance:.2f}. Take a larger target."
            )
        self.depth = (s.target - chance) ** 2
        bench.mode(s.normalisation)

    def begin(self) -> None:
        """Measure the weights; the velocity starts at 0."""
        self.velocity: Gradient = [torch.zeros_like(parameter) for parameter in self.bench.parameters]
        self.length = _length([parameter.detach() for parameter in self.bench.parameters])

    def step(self, number: int) -> Logged:
        """Take a tangent step and a restoring one."""
        bench, s = self.bench, self.settings
        self.logged: dict[str, Tensor] = {}
        direction = bench.gradient(self._objective(number))
        torch._foreach_add_(direction, self.velocity, alpha=s.momentum)
        self.velocity = direction
        shortfall, uphill = self._shortfall()
        self.velocity = remove_span(direction, [uphill], in_place=True)
        done = number / self.steps
        bench.move(self.velocity, by=-s.learning_rate * 0.5 * (1 + math.cos(math.pi * done)))

        steepness = _length(uphill)
        excess = (shortfall - s.budget * self.depth).clamp(min=0)
        newton = s.restore * excess / steepness.square()
        longest = s.reach * self.length / steepness
        amount = torch.where(steepness > 0, torch.minimum(newton, longest), 0)
        for parameter, part in zip(bench.parameters, uphill, strict=True):
            parameter.data.addcmul_(part, -amount.to(part.dtype))
        return {**self.logged, "shortfall": shortfall, "forget_bound": (shortfall / self.depth).clamp(max=1)}

    def _objective(self, number: int) -> Iterator[Tensor]:
        """Yield L_a + w L_r, a batch at a time."""
        s = self.settings
        adjacent = self.bench.losses(self.adjacent[number]).mean()
        self.logged["adjacent_loss"] = adjacent.detach()
        yield adjacent
        count = min(s.remote_batches, len(self.remote))
        means = []
        for batch in self.remote.several(number, count):
            remote = self.bench.losses(batch).mean()
            means.append(remote.detach())
            yield s.remote_weight / count * remote
        self.logged["remote_loss"] = torch.stack(means).mean()

    def _shortfall(self) -> tuple[Tensor, Gradient]:
        """Return S and its gradient over the whole forget set."""
        size = len(self.forget.rows)
        found: list[Tensor] = []

        def parts() -> Iterator[Tensor]:
            for batch in self.forget.in_order():
                losses = self.bench.losses(batch)
                found.append(losses.detach())
                yield (self.settings.target - losses).clamp(min=0).square().sum() / size

        gradient = self.bench.gradient(parts())
        losses = torch.cat(found)
        self.logged["forget_loss"] = losses.mean()
        return (self.settings.target - losses.double()).clamp(min=0).square().mean(), gradient


def _length(gradient: Gradient) -> Tensor:
    return gram_matrix([gradient])[0, 0].sqrt()


UNWEAVE = Method(
    name="unweave",
    summary="Forgetting as a constraint with a certificate: descend on what is kept, restore what comes back.",
    settings=UnweaveSettings,
    phases=lambda settings: [Constrained(settings)],
)
