"""unweave: forgetting as a constraint, kept in one loop. Our own method.

**The problem with two stages.** The paper first lets the adjacent data go and then wins it back by steps orthogonal to
the forget and remote gradients. The projection is of first order: every step leaves a change of second order in the
forget and remote losses, nothing ever undoes it, and both drift. So steps must be small, and remote accuracy falls.

**The constrained problem.** Forgetting is not something to be maximised; it is done or not done. Of every sample of the
*whole* forget set take the log-odds against its label, mᵢ = log((1 − pᵢ) / pᵢ), and let C be log-odds at which a sample
counts as forgotten. The *shortfall* is

    S(θ) = mean of (C − mᵢ)₊²

which is the squared Wasserstein-2 distance from the distribution of the log-odds to the nearest one that lies above C.
A sample that is predicted right has a probability of 1/n at least, n the number of classes, so mᵢ < log n, it adds
(C − log n)² to the sum, and therefore

    accuracy on the forget set ≤ S(θ) / (C − log n)²            (the paper's Proposition 2, without its assumption that
                                                               every loss was high at the start)

So we say what share b of the forget set may be predicted right at most, and solve

    min  L_a(θ) + w L_r(θ)     subject to     S(θ) ≤ τ = b (C − log n)²

Whenever the constraint holds, the accuracy is at most b, certified by the outputs themselves; it is logged at every
step (of the weights before it), and a run's scores and record have it for the weights at the end.

**Why not losses.** The cross-entropy is log(1 + eᵐ). Above C it is m but for 10⁻⁴, and it is larger than m everywhere,
so the bound holds for it too. But of a sample that the model is sure about, the loss ends at 0, and so does its
gradient: it lacks C, and says nothing of where the loss rises. Where such samples are most of S, as at the start, or
the last few that remain, a Newton step is long and leads anywhere. Log-odds have no such end. (Attacks on privacy look
at them too: LiRA's statistic is −m.)

**A loss of the user's own** takes the place of m, with C in its units. Then 0 stands for log n, and C in κ log n below;
the constraint says nothing about accuracy, and no bound is logged.

**The step**, as in sequential quadratic programming, with g = ∇S:

    tangent    v ← momentum · v + ∇(L_a + w L_r),   v ← v − its part along g,   v ← min(1, λ ‖θ₀‖ / η ‖v‖) v
               θ ← θ − c η v
    restoring  θ ← θ − min(β (S − τ)₊ / ‖g‖², q ρ ‖θ₀‖ / ‖g‖) g

The tangent step leaves S as it is to first order, ⟨v, g⟩ = 0. The restoring step is a Newton step for S = τ along g: to
first order it takes the share β of what is too much, however long the tangent step is. If S bends upwards by at most M
(that is, S(θ + δ) ≤ S(θ) + ⟨g, δ⟩ + M ‖δ‖²/2), one step whose restoring part q ρ does not shorten gives

    S − τ  ≤  (1 − β)(S − τ)₊ + M (t² + β² (S − τ)₊² / ‖g‖²) / 2,     t ≤ c λ ‖θ₀‖ the length of the tangent step

so S settles within a distance of order t² of τ and, as c falls from 1 to 0 along a cosine, on it. At the start S is far
above τ and the length of the restoring step is bounded by ρ, relative to the weights: forgetting takes some tens of
steps, during which adjacent and remote data are repaired as they are hurt, instead of afterwards. A bound on the
velocity, λ, is what makes η uncritical: just after something was forgotten gradients are large, and η and momentum
alone would throw the weights far off (``docs/what-we-tried.md``). Remote data is an objective, not a direction to
avoid, so a loss that rose is pulled back.

**What steps are measured by**: ‖θ₀‖ is the length of the trained weights at the start and, where an adapter such as
LoRA's is trained, which begins at zero, of the weights that it is added to.

**Trust.** A first step of full length can destroy remote data beyond repair, for the gradient of S holds only nearby.
So a restoring step has the share q of its longest length. q begins at 1/64; with the remote loss no more than κ log n
above that of the first step it doubles, up to 1, and else it halves: forgetting waits until what it broke is repaired.
It does not wait for ever, for the constraint comes first: after the share p of all steps, q is p² at least. Tangent
steps follow the same trust, λ = (1 − q) σ + q ρ: short repairs while remote data is hurt, and steps as long as the
restoring ones once it is well, so that a run of few steps comes as far as it has to.

A run has so many passes over the adjacent data, and no fewer than some ninety steps: whoever has few neighbours to show
needs the steps no less, to forget and to repair.

**Two goals, and a dial.** *Erase* is above. *Retrain* wants the model that never saw the forget data, which recognises
much of it, taught by adjacent data. There the forget data have a distribution R of log-odds, which must be estimated
(`unweave.methods.unseen`), and every forget sample gets log-odds rᵢ of R to aim at. Where the estimate is a model,
it has a loss of each sample, and rᵢ is from that: the model says not only how many samples it would recognise, but
which. Where it is a list of losses, rᵢ is the quantile of R at the rank of mᵢ, which is the best coupling in one
dimension. With P_θ the distribution of the mᵢ, the constraint is

    W₂²(P_θ, R)  ≤  S(θ) = mean of (rᵢ − mᵢ)²  ≤  τ

equal on the left where ranks are paired. The mean loss, and the mean probability of the right label, then differ from
R's by √τ at most, for both are means of functions of m with slope 1 at most. Between the goals lies the shortest
way from R to the point mass at C, the W₂ geodesic, on which every sample moves at constant speed: it mixes *log-odds*,
sample by sample, where a mixture of the distributions would mix *samples*, some erased and some untouched. With
``dial`` t from 0 to 1,

    aᵢ = (1 − t) rᵢ + t C,     S(θ) = mean of (aᵢ − mᵢ)₊² + (1 − t) (mᵢ − aᵢ)₊²,     τ = b · mean of (aᵢ − log n)²

t = 0 is *retrain*. At t = 1 log-odds above C cost nothing any more, and S and τ are those of *erase*. The cost is
convex in aᵢ − mᵢ, so pairing ranks stays the best coupling for every t: S is then a minimum over couplings. Where ranks
change it bends downwards only, and the inequality of the step holds as it stands.

**What a step costs**: one gradient each of an adjacent batch, some remote batches and the forget set, and where ranks
are paired one more forward pass of the forget set. At *erase* a sample whose log-odds are above C has no part in S or
in g. Where the forget set takes several batches, all of it is run forward first, and only the samples that lack
something are differentiated, after the first steps about a tenth: the same step for half of the work. Nothing is
measured before the first step; no copy of the model is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from unweave.data import RETAINED, Partition
from unweave.engine import Batches, Logged, Phase, Workbench
from unweave.errors import UsageError
from unweave.maths import Gradient, averaged_quantiles, gram_matrix, odds_of, remove_span
from unweave.methods.method import Method, Promise
from unweave.methods.unseen import Reference, describe_reference, is_made_on_demand, reference_losses, require_reference
from unweave.settings import Around, Between, Multiples, given, setting


@dataclass(frozen=True, kw_only=True)
class Unweave(Method):
    """Our own method; the step sizes are for a network of the size of ResNet-18."""

    name = "unweave"
    summary = "Forgetting as a constraint with a certificate: descend on what is kept, restore what comes back."
    promise = Promise(bound="shortfall", settings=("target",), any_loss=False)

    goal: Literal["erase", "retrain"] = setting(
        "erase", help="erase: nothing is recognised. retrain: as if never trained, as far as the reference tells."
    )
    dial: float = setting(0.0, at_least=0, at_most=1, help="With goal retrain: how far to go on to erase, which is 1.")
    budget: float = setting(
        0.005,
        above=0,
        below=1,
        help="Tolerance b. For erase, the share of the forget set that may be predicted right at most.",
    )
    target: float = setting(10.0, above=0, help="Log-odds against its label, and loss, of a forgotten sample; C.")
    remote_weight: float = setting(
        3.0, at_least=0, search=Between(0.5, 10.0), help="Weight of the remote loss beside the adjacent one; w."
    )
    learning_rate: float = setting(
        3e-3, above=0, search=Around(30), help="Step size of the descent at the start; it falls to 0."
    )
    momentum: float = setting(0.9, at_least=0, below=1, help="Momentum of the descent.")
    restore: float = setting(0.5, above=0, at_most=1, help="Share of what exceeds the constraint undone a step; β.")
    reach: float = setting(
        0.005,
        above=0,
        search=Around(5),
        help="Longest restoring step, and tangent one while remote data is well, relative to the weights' length; ρ.",
    )
    stride: float = setting(
        0.002,
        above=0,
        search=Around(5),
        help="Longest tangent step while remote data is hurt, relative to the weights' length; σ.",
    )
    patience: float = setting(
        0.1,
        above=0,
        help="Remote data is hurt while its loss is higher by this share of log(classes) than at first; κ.",
    )
    epochs: int = setting(6, at_least=0, search=Multiples(0.5, 1, 2), help="Passes over the adjacent data.")
    least_steps: int = setting(
        90, at_least=0, help="Steps at least, where the adjacent data is so little that its epochs have fewer."
    )
    batch_size: int = setting(128, at_least=1, help="Adjacent samples per step.")
    remote_batch: int = setting(512, at_least=1, help="Remote samples per batch.")
    remote_batches: int = setting(1, at_least=1, help="Remote batches per step, one pass at most.")
    forget_batch: int = setting(512, at_least=1, help="Forget samples per batch; a step looks at all of them.")
    pairing: Literal["sample", "rank"] = setting(
        "sample",
        help="With a model as reference: a sample aims at its own loss there, or at that of its rank. Others: rank.",
    )
    normalisation: Literal["eval", "train"] = setting(
        "eval", help="Mode of normalisation layers and dropout; training mode breaks the bound."
    )
    reference: Reference | None = given(
        help="For the goal retrain: a model trained without the forget data, held-out data, or a list of losses."
    )

    def phases(self) -> list[Phase]:
        """Return the one phase."""
        return [Constrained(self)]

    def check(self, split: Partition) -> None:
        """Refuse a split or a reference that cannot be used, and a reference that nothing would read."""
        super().check(split)
        if self.goal == "retrain":
            require_reference(self.reference)
        elif self.reference is not None and not is_made_on_demand(self.reference):
            raise UsageError("A reference was given, but it is read with the goal retrain only.")

    def on_record(self) -> dict[str, Any]:
        """Return what the reference is, where it is read."""
        return {"reference": describe_reference(self.reference)} if self.goal == "retrain" else {}


FIRST_TRUST = 1 / 64  # six doublings lead to 1


class Constrained(Phase):
    """Descend on adjacent and remote loss; hold the forget data where the goal wants them."""

    name = "constrained descent"
    keeps = ("velocity", "length", "aims", "trust", "remote_loss")

    def __init__(self, settings: Unweave) -> None:
        self.settings = settings
        self.dial = 1.0 if settings.goal == "erase" else settings.dial

    def prepare(self, bench: Workbench) -> None:
        """An epoch is one pass over the adjacent data; to forget and to repair takes steps, however little that is."""
        super().prepare(bench)
        s = self.settings
        if s.goal == "retrain":
            self.guards_at_end = RETAINED  # retraining may forget little
        self.by_rank = self.dial < 1 and (s.pairing == "rank" or not callable(s.reference))  # models are callable
        self.adjacent = bench.batches("adjacent", size=s.batch_size)
        self.remote = bench.batches("remote", size=s.remote_batch)
        self.forget = bench.batches(*bench.split.to_forget, size=s.forget_batch)
        # The first look must see what the second would: the same samples, each by itself.
        alike = self.forget.are_at_hand and s.normalisation == "eval"
        self.looks_first = self.dial == 1 and len(self.forget) > 1 and alike
        self.steps = max(s.epochs * len(self.adjacent), s.least_steps) if s.epochs else 0
        self.chance = bench.limit(self.forget)
        self.slack = s.patience * (self.chance if bench.task.has_choices else s.target)
        if s.target <= self.chance:
            raise UsageError(
                f"target is {s.target:g}, but a sample is only sure to be predicted wrong where its loss is above "
                f"log(classes) = {self.chance:.2f}. Take a larger target."
            )
        bench.mode(s.normalisation)

    def begin(self) -> None:
        """Find the log-odds to aim at: by sample, or smallest first; measure the weights; the velocity starts at 0."""
        bench, count = self.bench, len(self.forget.rows)
        self.aims = torch.full((count,), self.settings.target, dtype=torch.float64, device=bench.device)
        if self.dial < 1:
            unseen = reference_losses(self.settings.reference, bench, self.forget)
            if bench.task.has_choices:
                unseen = odds_of(unseen)
            if self.by_rank:
                unseen = averaged_quantiles(unseen, count)
            self.aims = (1 - self.dial) * unseen + self.dial * self.aims
        self.velocity: Gradient = [torch.zeros_like(parameter) for parameter in bench.parameters]
        self.length = _length(bench.changed_weights())
        self.trust = torch.tensor(FIRST_TRUST, dtype=torch.float64, device=bench.device)
        self.remote_loss = torch.tensor(math.inf, dtype=torch.float64, device=bench.device)  # the first step's

    def step(self, number: int) -> Logged:
        """Take a tangent step and a restoring one."""
        bench, s = self.bench, self.settings
        self.logged: dict[str, Tensor] = {}
        direction = bench.gradient(self._objective(number))
        torch._foreach_add_(direction, self.velocity, alpha=s.momentum)
        self.velocity = direction
        distance, uphill = self._distance()
        self.velocity = remove_span(direction, [uphill], in_place=True)
        speed, steepness = gram_matrix([self.velocity, uphill]).diagonal().sqrt()
        self._trust(number)
        longest = (1 - self.trust) * s.stride + self.trust * s.reach
        held = torch.where(speed > 0, (longest * self.length / (s.learning_rate * speed)).clamp(max=1), 1)
        tangent = s.learning_rate * 0.5 * (1 + math.cos(math.pi * number / self.steps))
        excess = (distance - s.budget * (self.aims - self.chance).square().mean()).clamp(min=0)
        newton = s.restore * excess / steepness.square()
        restoring = torch.where(steepness > 0, torch.minimum(newton, self.trust * s.reach * self.length / steepness), 0)
        for parameter, along, up in zip(bench.parameters, self.velocity, uphill, strict=True):
            along.mul_(held.to(along.dtype))
            parameter.data.add_(along, alpha=-tangent).addcmul_(up, -restoring.to(up.dtype))
        return self.logged

    def _trust(self, number: int) -> None:
        """Set q by the remote loss of this step beside that of the first."""
        loss = self.logged["remote_loss"].double()
        if number == 0:
            self.remote_loss = loss
        else:
            unharmed = loss <= self.remote_loss + self.slack
            least = max(FIRST_TRUST, (number / self.steps) ** 2)
            self.trust = (self.trust * torch.where(unharmed, 2.0, 0.5)).clamp(least, 1)
        self.logged["trust"] = self.trust

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

    def _distance(self) -> tuple[Tensor, Gradient]:
        """Return S and its gradient over the whole forget set."""
        aims = self._aims_by_rank() if self.by_rank else self.aims
        if self.looks_first:
            odds = self._odds().double()
            lacking = self._cost(aims - odds) > 0
            gradient, _ = self._uphill(self.forget.only(lacking), aims[lacking])
        else:
            gradient, odds = self._uphill(self.forget, aims)
        distance = self._cost(aims - odds).mean()
        task = self.bench.task
        self.logged["forget_loss"] = (functional.softplus(odds) if task.has_choices else odds).mean()
        self.logged["shortfall" if self.settings.goal == "erase" else "squared_distance"] = distance
        if task.independent:  # of other losses it is not known where a sample stops being recognised
            shortfall = (self.settings.target - odds).clamp(min=0).square().mean()
            self.logged["forget_bound"] = (shortfall / (self.settings.target - self.chance) ** 2).clamp(max=1)
        return distance, gradient

    def _uphill(self, batches: Batches, aims: Tensor) -> tuple[Gradient, Tensor]:
        """Return what these forget samples add to the gradient of S, and their log-odds."""
        found = [aims.new_empty(0)]

        def parts() -> Iterator[Tensor]:
            for number, batch in enumerate(batches.in_order()):
                odds = self.bench.log_odds(batch)
                found.append(odds.detach().double())
                aim = aims[number * batches.size :][: len(odds)].to(odds.dtype)
                yield self._cost(aim - odds).sum() / len(self.aims)

        return self.bench.gradient(parts()), torch.cat(found)

    def _aims_by_rank(self) -> Tensor:
        """Return the log-odds that each forget sample should have, in the order of the rows."""
        aims = torch.empty_like(self.aims)
        aims[self._odds().argsort(stable=True)] = self.aims
        return aims

    def _odds(self) -> Tensor:
        """Return the log-odds of every forget sample, in the order of the rows."""
        with torch.no_grad():
            return torch.cat([self.bench.log_odds(batch) for batch in self.forget.in_order()])

    def _cost(self, missing: Tensor) -> Tensor:
        """Return what each sample adds to S; too much costs less, the nearer the goal is to erase."""
        return missing.clamp(min=0).square() + (1 - self.dial) * missing.clamp(max=0).square()


def _length(gradient: Gradient) -> Tensor:
    return gram_matrix([gradient])[0, 0].sqrt()
