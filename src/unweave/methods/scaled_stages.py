"""The two stages of the two-stage method with steps and lengths found on the way, for models that nobody tuned for.

The objectives are those of the paper. What is found on the way:

**Steps** are taken in Adam's metric P = r / (√v + ε), with r the root mean square of each weight tensor at the start
and v a running mean of squared gradients. So a step size is a share of the weights.

**Stage 1.** The step is multiplied by a trust q, which begins at 1/64. It doubles in every step while the remote loss
is at most κ log n above L_r(θ₀), up to 1, and halves otherwise. Samples whose loss is above C add nothing to L_f, so
L_f is the mean of the others; C is at most 3 above log n, the largest loss of a recognised sample of n classes. λ moves
by a tenth of μ c, because weights move faster in this metric than the paper's do. The stage ends when hardly any forget
sample is recognised, the mean clipped loss is half-way from log n to C, and held-back remote data is as it was.

**Stage 2** projects in the same metric: with R = √P it removes the span of R∇L̃_f and R∇L_r from R∇L_a and steps along
R times the rest, which is orthogonal to ∇L̃_f and ∇L_r. It goes round by round. At the end of a round it looks at the
forget data and at kept samples that were held back, at the end of the way of this round, half-way and at a quarter of
it, and goes to the first of these places where no forget sample came back and held-back samples are better known than
before. Where it cannot go all the way, the next round has half the step. The stage ends when held-back samples are
recognised as before stage 1, or when two rounds gained nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unweave.engine import (
    HeldBack,
    Logged,
    Workbench,
    add,
    look,
    metric,
    relative_length,
    remember,
    weight_scales,
)
from unweave.maths import Gradient, remove_span
from unweave.methods.stages import Stage1, Stage2

if TYPE_CHECKING:
    from unweave.methods.two_stage import TwoStage

MEMORY = 0.99  # how slowly the metric changes; Adam's second beta
REACH = 0.05  # the longest step, relative to the weights
HELD, HELD_MOST = 0.1, 256  # share and number of kept samples to hold back
FEWEST = 5  # held-back samples of a subset with which they judge alone
LEAST_STEPS = 60  # of a pass, where there is little data
FIRST_TRUST = 1 / 64  # six doublings lead to 1
HURT = 0.1  # rise of the remote loss, as a share of log(classes), from which steps are shortened
RECOGNISED = 0.005  # share of the forget data that may be recognised
LOST = 0.01  # share of held-back samples that may be lost
GAIN = 0.005  # gain of held-back samples that is worth going on for
ABOVE = 3.0  # loss above log(classes) from which a forget sample is ignored in stage 1
SHARES = (1.0, 0.5, 0.25)  # of the way of a round that are looked at
LOOK = 10  # steps between two looks at the forget data in stage 1


class ScaledStage1(Stage1):
    """Ascend on the clipped forget loss and pin the remote loss, until the forget data is forgotten."""

    keeps = (
        *("pinned", "multiplier", "settled", "relapse_multiplier"),
        *("velocity", "squares", "scales", "trust", "before", "usual", "over"),
    )
    pace = 0.1  # in Adam's metric the multiplier must be slower than the weights
    guards = ()  # what is hurt is repaired; what counts is the end
    guards_at_end = ("remote", "forget")

    def prepare(self, bench: Workbench) -> None:
        """Hold samples back, make batches, and set the most steps."""
        super().prepare(bench)
        self.held = HeldBack(bench, share=HELD, most=HELD_MOST, fewest=FEWEST)
        self.remote = self.held.rest(self.remote)
        self.steps = self.settings.stage1_epochs * max(len(self.remote), LEAST_STEPS)
        self.rows = bench.split.rows(*bench.split.to_forget)
        self.limit = bench.limit(self.forget)
        if self.limit:
            self.clip = min(self.clip, self.limit + ABOVE)
        self.every = max(LOOK, math.ceil(len(self.rows) / (self.remote.size + self.forget.size)))

    def begin(self) -> None:
        """Measure the weights and what is known of kept data; the velocity starts at 0."""
        super().begin()
        bench = self.bench
        self.scales = weight_scales(bench)
        self.velocity: Gradient = [torch.zeros_like(parameter) for parameter in bench.parameters]
        self.squares: Gradient = [torch.zeros_like(parameter) for parameter in bench.parameters]
        zero = torch.zeros((), dtype=torch.float64, device=bench.device)
        self.usual = zero if self.limit else self.held.usual_loss()
        self.before = self.held.known(usual=self.usual)
        self.trust, self.over = zero + FIRST_TRUST, zero.clone()

    def step(self, number: int) -> Logged:
        """Take a step of the augmented Lagrangian, as long as trust allows; now and then, look if it is done."""
        self.number = number
        logged = dict(super().step(number)) | {"trust": self.trust}
        hurt = self.gap > HURT * (self.limit or self.settings.clip)
        self.trust = torch.where(hurt, self.trust / 2, self.trust * 2).clamp(FIRST_TRUST, 1)
        if (number + 1) % self.every == 0 or number + 1 == self.steps:
            logged["recognised"] = self._look()
        return logged

    def is_over(self) -> bool:
        """Return whether the forget data is forgotten, and remote data as it was."""
        return bool(self.over > 0)

    def release(self) -> None:
        """Free what only this stage's steps need, as large as two gradients."""
        super().release()
        self.velocity, self.squares = [], []

    def _forgetting(self, losses: Tensor) -> Tensor:
        """Return −L_f and the penalty. Samples above C add nothing, so the mean is that of the others."""
        lacking = (losses < self.clip).double().mean().clamp(min=1 / len(losses))
        return super()._forgetting(losses) / lacking.to(losses.dtype)

    def _descend(self, gradient: Gradient) -> None:
        s = self.settings
        remember(self.squares, gradient, memory=MEMORY)
        along = metric(self.squares, self.scales, memory=MEMORY, steps=self.number + 1)
        torch._foreach_mul_(self.velocity, s.momentum)
        torch._foreach_add_(self.velocity, gradient, alpha=1 - s.momentum)
        torch._foreach_mul_(along, self.velocity)
        length = relative_length(along, self.scales)
        wanted = self.trust * s.stage1_learning_rate
        rate = torch.where(length > 0, torch.minimum(wanted, REACH / length), 0)
        add([parameter.data for parameter in self.bench.parameters], along, -rate)

    def _look(self) -> Tensor:
        known, losses = look(self.bench, self.rows, usual=self.usual)
        enough = (self.limit + self.clip) / 2
        forgotten = (known <= RECOGNISED) & (losses.clamp(max=self.clip).mean() >= enough)
        now = self.held.known(usual=self.usual)[-1]  # remote data is the last
        self.over = (forgotten & (now >= self.before[-1] - 2 * LOST)).to(self.over.dtype)
        return known


class ScaledStage2(Stage2):
    """Descend on the adjacent loss, orthogonally to ∇L̃_f and ∇L_r in Adam's metric, round by round."""

    keeps = (
        *("velocity", "reference"),
        *("squares", "scales", "before", "usual", "best", "values", "rate", "over"),
    )
    guards = ()
    guards_at_end = ("adjacent", "remote", "forget")

    def __init__(self, settings: TwoStage, first: ScaledStage1) -> None:
        super().__init__(settings)
        self.first = first

    def passes(self, bench: Workbench) -> dict[int, int]:
        """Name none: how many rounds there are is found on the way."""
        return {}

    def prepare(self, bench: Workbench) -> None:
        """Hold samples back, make batches, and lay out the rounds."""
        super().prepare(bench)
        self.held_back = HeldBack(bench, share=HELD, most=HELD_MOST, fewest=FEWEST)
        self.adjacent, self.remote = (self.held_back.rest(batches) for batches in (self.adjacent, self.remote))
        self.round = max(LEAST_STEPS, len(self.adjacent))
        self.steps = self.settings.stage2_epochs * self.round
        self.rows = bench.split.rows(*bench.split.to_forget)
        self.limit = bench.limit(self.held)

    def begin(self) -> None:
        """Measure the weights, the forget losses and what is known of kept data."""
        super().begin()
        bench = self.bench
        self.scales = weight_scales(bench)
        self.squares: Gradient = [torch.zeros_like(parameter) for parameter in bench.parameters]
        self.best: Gradient = [parameter.detach().clone() for parameter in bench.parameters]
        zero = torch.zeros((), dtype=torch.float64, device=bench.device)
        self.usual = zero if self.limit else self.held_back.usual_loss()
        self.before = self.first.before
        self.values = zero.repeat(self.settings.stage2_epochs + 1)
        known, _ = look(bench, self.rows, usual=self.usual)
        if bool(known <= RECOGNISED):
            self.values[0] = torch.minimum(self.held_back.known(usual=self.usual), self.before).mean()
        self.rate, self.over = zero + 1, zero.clone()

    def step(self, number: int) -> Logged:
        """Take a projected step; at the end of a round, judge it."""
        s = self.settings
        self.logged: dict[str, list[Tensor]] = {}
        adjacent, span = self._adjacent(number), self._span(number)
        for gradient in (adjacent, span[-1]):
            remember(self.squares, gradient, memory=MEMORY)
        roots = metric(self.squares, self.scales, memory=MEMORY, steps=2 * (number + 1))
        torch._foreach_sqrt_(roots)
        for gradient in (adjacent, *span):
            torch._foreach_mul_(gradient, roots)
        torch._foreach_mul_(self.velocity, s.momentum)
        torch._foreach_add_(self.velocity, adjacent, alpha=1 - s.momentum)
        self.velocity = remove_span(self.velocity, span, ridge=s.ridge, in_place=True)
        torch._foreach_mul_(roots, self.velocity)
        turn, place = divmod(number, self.round)
        wanted = self.rate * s.stage2_learning_rate * 0.5 * (1 + math.cos(math.pi * place / self.round))
        length = relative_length(roots, self.scales)
        self._move(roots, torch.where(length > 0, torch.minimum(wanted, REACH / length), 0))
        logged = dict(self._means_of_step())
        return logged if place + 1 < self.round else logged | self._judge(turn + 1)

    def is_over(self) -> bool:
        """Return whether the last round said that the run may end."""
        return bool(self.over > 0)

    def finish(self) -> None:
        """Return to the best weights."""
        if self.steps:
            self._return()

    def _judge(self, turn: int) -> dict[str, Tensor]:
        """Go as far along the way of a round as is best; decide whether to go on."""
        end = [parameter.detach().clone() for parameter in self.bench.parameters]
        start, value = self.best, self.values[:turn].max()
        for share in SHARES:
            for mine, old, new in zip(self.bench.parameters, start, end, strict=True):
                mine.data.copy_(old).add_(new - old, alpha=share)
            known, _ = look(self.bench, self.rows, usual=self.usual)
            now = self.held_back.known(usual=self.usual)
            kept = torch.minimum(now, self.before).mean()
            if bool((known <= RECOGNISED) & (kept > value)):
                self.best = [parameter.detach().clone() for parameter in self.bench.parameters]
                break
        else:
            self._return()
            share, kept = 0.0, torch.zeros_like(kept)
        self.values[turn] = kept
        if share < 1:
            self.velocity = [torch.zeros_like(part) for part in self.velocity]
            self.rate = self.rate / 2
        back = bool((now >= self.before - LOST).all()) and share > 0
        stuck = turn >= 3 and bool(self.values[: turn + 1].max() < self.values[: turn - 1].max() + GAIN)
        self.over = torch.full_like(self.over, float(back or stuck))
        return {
            "recognised": known,
            "held_adjacent": now[0],
            "held_remote": now[-1],
            "share": torch.tensor(share),
            "rate": self.rate,
        }

    def _return(self) -> None:
        for mine, parameter in zip(self.best, self.bench.parameters, strict=True):
            parameter.data.copy_(mine)

    def _move(self, direction: Gradient, by: Tensor) -> None:
        add([parameter.data for parameter in self.bench.parameters], direction, -by)
