"""adaptive: forgetting by a margin, with steps, length and stopping found on the way. The default method.

**The problem.** `unweave` holds forgetting as a constraint, with step sizes and a length that suit one kind of network.
On another model it forgets too late, or gives up too early. Here nothing is tied to a network: steps are relative to
the weights and to the curvature seen on the way, and the run goes on until kept data is back.

**The constraint.** The margin zᵢ of a forget sample is how far its label lies below the best other one: the largest
other logit minus its own. The sample is recognised exactly where zᵢ ≤ 0 (`Task.margins`). With a target C > 0, the
shortfall is

    S(θ) = mean of (C − zᵢ)₊²,     share of recognised samples ≤ S / C²

A margin asks for no more than is needed: log-odds, which `unweave` holds, demand more the more classes there are, and
wreck what a sample has in common with kept ones. C is the dial between neighbours and unseen samples: a larger one
forgets more of what was never seen, and costs neighbours more.

**The step** is that of `unweave` in Adam's metric. Let u = ∇S, let g be the gradient of L = (L_a + w L_r) / (1 + w) on
batches of kept data, and v a running mean of g². With the metric P = r / (√v + ε), r the root mean square of each
weight tensor at the start,

    tangent    d ← momentum · d + (1 − momentum) P g,     d ← d − (⟨u, d⟩ / ⟨u, P u⟩) P u,     θ ← θ − q c η d
    restoring  θ ← θ − β (S − τ)₊ / ⟨u, P u⟩ · P u,       τ = b C²

The tangent step does not change S to first order; the restoring step is a Newton step for S = τ. Neither moves the
weights by more than q ρ, measured tensor by tensor against r. Weights that kept data does not need have small v and
move first, which is what a diagonal natural gradient does. Only forget samples below the target are differentiated.

**Trust.** Steps that suit a small network destroy the features of a large pretrained one. So η and ρ are multiplied by
a trust q ≤ 1. Before the run, a trial descends on kept data alone for a few steps and is undone. If held-back samples
are lost, the next trial takes a quarter of the step; q is the largest at which they stay known. Networks for which the
first trial succeeds run as they would without it.

**Rounds.** Some kept samples are held back from the descent. The run is a sequence of rounds: one pass over the kept
data each, later ones a third of everything before, so that the schedule needs no known end. In a round c falls from 1
to 0 along a cosine. At its end restoring steps alone run until the constraint holds, and the model is judged by the
held-back samples. The run ends when they are recognised as before, when they have not improved for two rounds (four
while much is missing), or when the effort is spent. The first round takes half the step, which is enough for most
models. The second takes the whole step, or a quarter of it if q < 1 and little is missing. If a round made the
held-back samples worse, the next takes half the step of that one. The weights returned are those of the round that
holds the constraint and keeps most of the held-back samples, not the last ones.

The values of the settings were chosen on the development half of fifteen small tasks (``docs/protocol.md``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unweave.data import RETAINED, Batch
from unweave.engine import (
    HeldBack,
    Logged,
    Phase,
    Workbench,
    add,
    derive_seed,
    metric,
    relative_length,
    remember,
    weight_scales,
)
from unweave.maths import Gradient, gram_matrix
from unweave.methods.method import Method
from unweave.settings import Around, Between, OneOf, setting

LOOKED_AT = 4  # times as many forget samples are looked at in a step as are differentiated
RESTORING = 20  # restoring steps at the end of a round, at most
PASS = 200  # steps of a pass over the kept data, at most, while batches may grow
LARGEST_BATCH = 256
SHORTEST_PASS = 100  # steps that the effort counts as a pass at least
TRIAL = 20  # steps of a trial descent
TRUST, TRUSTS = 4.0, 4  # after a trial that fails, the next has steps as much shorter; how many trials at most
FAR = 0.15  # share of held-back samples that is much to lose


@dataclass(frozen=True, kw_only=True)
class Adaptive(Method):
    """Forgetting by a margin, in Adam's metric, with steps and length found on the way. It needs no settings.

    The run ends when kept samples that were held back from it are recognised as before, when that stops getting
    better, or when the effort is spent. ``unweave methods adaptive`` lists the settings.

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> result = uw.unlearn(torch.nn.Linear(6, 2), split, uw.Adaptive(margin=2.0))
        >>> bool(result.model(data[0]).argmax(dim=1)[0] == 0)  # whether the forget sample is recognised
        False
    """

    name = "adaptive"
    summary = "Forgetting by a margin; steps and length are found on the way. Needs no settings."
    needs = ("forget", ("adjacent", "remote"))

    margin: float = setting(
        1.0,
        above=0,
        search=OneOf(0.5, 1.0, 2.0, 4.0),
        help="How far below the best other label that of a forget sample must lie; C. Larger: forget more of unseen "
        "samples, keep less of neighbours.",
    )
    budget: float = setting(
        0.005, at_least=0, below=1, help="The largest share of the forget set that may stay recognised; b."
    )
    effort: float = setting(
        12.0, above=0, at_most=1e6, help="The most work, in passes over the kept data, of 100 steps at least."
    )
    learning_rate: float = setting(
        0.06, above=0, search=Around(10), help="Step size at the start of a round, relative to each weight tensor; η."
    )
    reach: float = setting(0.05, above=0, search=Around(5), help="Longest step, relative to the weights; ρ.")
    restore: float = setting(
        0.5, above=0, at_most=1, help="Share of the excess over the constraint that a step removes; β."
    )
    momentum: float = setting(0.9, at_least=0, below=1, help="Momentum of the descent.")
    memory: float = setting(0.99, at_least=0, below=1, help="How slowly the metric changes; Adam's second beta.")
    remote_weight: float = setting(
        3.0, at_least=0, search=Between(0.5, 10.0), help="Weight of the remote loss beside the adjacent one; w."
    )
    batch_size: int = setting(
        0, at_least=0, help="Adjacent, and remote, samples per step. 0: 32, and up to 256 where a pass is long."
    )
    forget_batch: int = setting(128, at_least=1, help="Forget samples differentiated per step, at most.")
    least_steps: int = setting(60, at_least=0, help="Fewest steps of a round, where there is little kept data.")
    held_back: float = setting(
        0.1, at_least=0, at_most=0.5, help="Share of kept samples held back from the descent, to judge it by."
    )
    held_most: int = setting(256, at_least=1, help="Most samples of each kept subset to hold back.")
    tolerance: float = setting(
        0.01, at_least=0, below=1, help="Kept data is back if its held-back samples lost at most this share."
    )
    gain: float = setting(0.005, at_least=0, below=1, help="Gain of held-back samples that is worth going on for.")

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [Rounds(self)]


class Rounds(Phase):
    """Descend on kept data and hold the forget data below its margin, round by round."""

    name = "rounds"
    keeps = (
        *("velocity", "squares", "best", "scales", "before", "values", "best_value"),
        *("rate", "over", "usual", "trust"),
    )
    guards = ()  # kept data comes back within a round; what counts is the end

    def __init__(self, settings: Adaptive) -> None:
        self.settings = settings

    # Before the first step

    def prepare(self, bench: Workbench) -> None:
        """Hold samples back, make batches, and lay out the rounds that the effort allows."""
        super().prepare(bench)
        s = self.settings
        bench.mode("eval")
        kept = [name for name in RETAINED if len(bench.split[name])]
        self.held = HeldBack(bench, share=s.held_back, most=s.held_most)
        count = sum(len(bench.split[name]) for name in kept)
        size = s.batch_size or min(LARGEST_BATCH, max(32, math.ceil(count / PASS / len(kept))))
        self.kept = {name: self.held.rest(bench.batches(name, size=size)) for name in kept}
        weights = {"adjacent": 1.0, "remote": s.remote_weight if len(kept) > 1 else 1.0}
        total = sum(weights[name] for name in kept)
        self.weights = {name: weights[name] / total for name in kept}
        self.forget = bench.batches(*bench.split.to_forget, size=s.forget_batch)
        self.looks = self.forget.in_batches_of(LOOKED_AT * s.forget_batch)
        steps = math.ceil(count / (size * len(kept)))
        self.ends = list(_ends(steps, effort=s.effort, least=s.least_steps))
        self.steps = self.ends[-1]
        self.bounded = bench.limit(self.forget) > 0

    def begin(self) -> None:
        """Measure the weights and the held-back samples. Everything that is found on the way starts at 0."""
        bench = self.bench
        parameters = [parameter.detach() for parameter in bench.parameters]
        self.scales = weight_scales(bench)
        self.velocity: Gradient = [torch.zeros_like(parameter) for parameter in parameters]
        self.squares: Gradient = [torch.zeros_like(parameter) for parameter in parameters]
        self.best: Gradient = [parameter.clone() for parameter in parameters]
        zero = torch.zeros((), dtype=torch.float64, device=bench.device)
        self.usual = zero
        if not self.bounded:
            self.usual = self.held.usual_margin()
        self.before = self.held.known(usual=self.usual)
        self.values = zero.repeat(len(self.ends))
        self.best_value, self.rate, self.over = zero - 1, zero + 0.5, zero.clone()
        self.logged: dict[str, Tensor | float] = {}
        self.trust = self._trusted()

    # A step

    def step(self, number: int) -> Logged:
        """Take a tangent step and a restoring one; at the end of a round, judge it."""
        s = self.settings
        self.logged = {"trust": self.trust}
        turn = next(turn for turn, end in enumerate(self.ends) if number < end)
        first = self.ends[turn - 1] if turn else 0
        done = (number - first) / (self.ends[turn] - first)
        gradient = self.bench.gradient([self._objective(number)])
        remember(self.squares, gradient, memory=s.memory)
        self.metric = metric(self.squares, self.scales, memory=s.memory, steps=number + 1)
        shortfall, uphill = self._shortfall(number)
        self.logged["shortfall"] = shortfall
        self._tangent(gradient, uphill, rate=self._planned(done))
        self._restore(shortfall, uphill, share=s.restore)
        if number + 1 == self.ends[turn]:
            self._judge(turn)
        return self.logged

    def is_over(self) -> bool:
        """Return whether the last round said that the run may end."""
        return bool(self.over > 0)

    def finish(self) -> None:
        """Return to the best round, if one held the constraint."""
        if float(self.best_value) >= 0:
            self._set(self.best)

    def _trusted(self) -> Tensor:
        """Return the largest trust with which a trial descent on kept data alone leaves held-back samples known."""
        for turn in range(TRUSTS):
            self.trust = torch.tensor(TRUST**-turn, dtype=torch.float64, device=self.bench.device)
            lost = (self.before - self._tried()).max()
            if bool(lost <= FAR):
                break
        return self.trust

    def _tried(self) -> Tensor:
        """Return what is known of the held-back samples after a trial descent, which is undone."""
        s = self.settings
        for number in range(TRIAL):
            gradient = self.bench.gradient([self._objective(number)])
            remember(self.squares, gradient, memory=s.memory)
            self.metric = metric(self.squares, self.scales, memory=s.memory, steps=number + 1)
            self._accelerate(gradient)
            self._advance(self._planned(number / TRIAL))
        known = self.held.known(usual=self.usual)
        self._set(self.best)
        for values in (*self.velocity, *self.squares):
            values.zero_()
        return known

    def _objective(self, number: int) -> Tensor:
        """Return L on one batch of each kept subset."""
        found = self.bench.losses_together(*(batches[number] for batches in self.kept.values()))
        means = {name: losses.mean() for name, losses in zip(self.kept, found, strict=True)}
        self.logged |= {f"{name}_loss": mean.detach() for name, mean in means.items()}
        return torch.stack([self.weights[name] * mean for name, mean in means.items()]).sum()

    def _planned(self, done: float) -> Tensor:
        """Return c η for this share of a round, or of a trial, which takes the steps of the first round."""
        return self.rate * (self.settings.learning_rate * 0.5 * (1 + math.cos(math.pi * done)))

    def _tangent(self, gradient: Gradient, uphill: Gradient, *, rate: Tensor) -> None:
        """Descend along P g with momentum, without changing S to first order."""
        self._accelerate(gradient)
        along = list(torch._foreach_mul(uphill, self.metric))
        products = gram_matrix([uphill, along, self.velocity])
        self.steepness = products[0, 1]
        part = torch.where(self.steepness > 0, products[0, 2] / self.steepness, 0)
        add(self.velocity, along, -part)
        self._advance(rate)
        self.along = along

    def _accelerate(self, gradient: Gradient) -> None:
        """Add P g to the velocity."""
        s = self.settings
        torch._foreach_mul_(self.velocity, s.momentum)
        torch._foreach_addcmul_(self.velocity, gradient, self.metric, value=1 - s.momentum)

    def _advance(self, rate: Tensor) -> None:
        """Move along the velocity, no further than the reach."""
        length = relative_length(self.velocity, self.scales)
        by = torch.minimum(self.trust * rate, self.trust * self.settings.reach / length)
        self._move(self.velocity, torch.where(length > 0, by, 0))

    def _restore(self, shortfall: Tensor, uphill: Gradient, *, share: float) -> None:
        """Take a Newton step for S = τ along P u, no longer than the reach."""
        s = self.settings
        excess = (shortfall - s.budget * s.margin**2).clamp(min=0)
        length = relative_length(self.along, self.scales)
        newton = torch.minimum(share * excess / self.steepness, self.trust * s.reach / length)
        self._move(self.along, torch.where((self.steepness > 0) & (length > 0), newton, 0))

    def _shortfall(self, number: int) -> tuple[Tensor, Gradient]:
        """Return S and its gradient over some forget samples. Only those below the target are differentiated."""
        s = self.settings
        batch = self.looks[number]
        lacking = batch.rows
        if self.forget.are_at_hand:
            with torch.no_grad():
                margins = self._margins(batch)
            lacking = batch.rows[margins < s.margin]
            self.logged["forget_margin"] = margins.mean()
        return self._gradient_of(lacking, of=len(batch), seed=number)

    def _gradient_of(self, lacking: Tensor, *, of: int, seed: int) -> tuple[Tensor, Gradient]:
        """Return S, if ``lacking`` are the samples of ``of`` that are below the target, and its gradient."""
        s, bench = self.settings, self.bench
        share = len(lacking) / of
        if len(lacking) > s.forget_batch:
            draw = torch.Generator().manual_seed(derive_seed(bench.seed, "lacking", seed) % 2**63)
            order = torch.randperm(len(lacking), generator=draw)[: s.forget_batch].sort().values
            lacking = lacking[order.to(lacking.device)]
        found = [torch.zeros((), dtype=torch.float64, device=bench.device)]

        def parts() -> Iterator[Tensor]:
            for batch in self.forget.of_rows(lacking).in_order() if len(lacking) else ():
                short = (s.margin - self._margins(batch)).clamp(min=0).square().sum() * share / len(lacking)
                found.append(short.detach().double())
                yield short

        gradient = bench.gradient(parts())
        return torch.stack(found).sum(), gradient

    # The end of a round

    def _judge(self, turn: int) -> None:
        """Restore the constraint, look at the held-back samples, and decide how to go on."""
        s = self.settings
        holds = self._settle(turn)
        now = self.held.known(usual=self.usual)
        kept = torch.minimum(now, self.before).mean()
        self.logged |= {f"held_{name}": known for name, known in zip(self.held.rows, now, strict=True)}
        earlier, self.values[turn] = self.values[:turn].clone(), kept
        if holds and bool(kept > self.best_value):
            self.best_value = kept
            for mine, parameter in zip(self.best, self.bench.parameters, strict=True):
                mine.copy_(parameter.detach())
        back = bool((now >= self.before - s.tolerance).all())
        far = bool(kept < self.before.mean() - FAR)
        patience = 4 if far else 2
        stuck = turn >= patience and bool(kept < earlier[: turn + 1 - patience].max() + s.gain)
        if holds and (back or stuck):
            self.over = torch.ones_like(self.over)
        if turn == 0:
            self.rate = self.rate * (2 if far or bool(self.trust == 1) else 0.5)
        elif bool(kept < earlier[-1] - 2 * s.tolerance):
            self.rate = self.rate / 2

    def _settle(self, turn: int) -> bool:
        """Take restoring steps until the constraint holds; return whether it does."""
        s = self.settings
        rows = self.forget.rows
        for number in range(RESTORING + 1):
            with torch.no_grad():
                margins = torch.cat([self._margins(batch) for batch in self.looks.in_order()])
            left = (margins <= 0).double().mean()
            self.logged["recognised"] = left
            if bool(left <= s.budget) or number == RESTORING:
                break
            shortfall, uphill = self._gradient_of(rows[margins < s.margin], of=len(rows), seed=-1 - turn - number)
            self.along = list(torch._foreach_mul(uphill, self.metric))
            self.steepness = gram_matrix([uphill, self.along])[0, 1]
            self._restore(shortfall, uphill, share=1.0)
        return bool(left <= s.budget)

    # What the model says

    def _margins(self, batch: Batch) -> Tensor:
        margins = self.bench.margins(batch)
        return margins if self.bounded else margins - self.usual.to(margins.dtype)

    # Weights

    def _move(self, direction: Gradient, by: Tensor) -> None:
        add([parameter.data for parameter in self.bench.parameters], direction, -by)

    def _set(self, weights: Gradient) -> None:
        for parameter, weight in zip(self.bench.parameters, weights, strict=True):
            parameter.data.copy_(weight)


def _ends(steps: int, *, effort: float, least: int) -> Iterator[int]:
    """Yield the step at which each round ends: a pass each, later ones a third of all before, while effort lasts.

    >>> list(_ends(100, effort=7.0, least=4))
    [100, 200, 300, 400, 533]
    """
    end, most = 0, effort * max(steps, SHORTEST_PASS)
    while not end or end + max(least, steps, end // 3) <= most:
        end += max(least, steps, end // 3)
        yield end
