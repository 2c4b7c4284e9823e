"""unweave: forgetting as a constraint, kept in one loop. Our own method.

**The problem with two stages.** The paper first gives up the adjacent data and then recovers it by steps orthogonal to
the forget and remote gradients. The projection is of first order: every step leaves a change of second order in the
forget and remote losses. Nothing ever undoes that change, so both losses drift. Therefore steps must be small, and
remote accuracy falls.

**The constrained problem.** Forgetting is not something to maximise; it is done or not done. For every sample of the
*whole* forget set take the log-odds against its label, mᵢ = log((1 − pᵢ) / pᵢ). Let C be the log-odds at which a sample
counts as forgotten. The *shortfall* is

    S(θ) = mean of (C − mᵢ)₊²

It is the squared Wasserstein-2 distance from the distribution of the log-odds to the nearest distribution above C. With
n classes, a sample that is predicted right has a probability of at least 1/n, so mᵢ < log n, and it adds at least
(C − log n)² to the sum. Therefore

    accuracy on the forget set ≤ S(θ) / (C − log n)²            (the paper's Proposition 2, without its assumption that
                                                               every loss was high at the start)

So we choose the share b of the forget set that may be predicted right at most, and solve

    min  L_a(θ) + w L_r(θ)     subject to     S(θ) ≤ τ = b (C − log n)²

Whenever the constraint holds, the accuracy is at most b, and the outputs themselves certify it. Every step logs the
bound for the weights before it. A run's scores and record have it for the final weights.

**Why not losses.** The cross-entropy is log(1 + eᵐ). Above C it exceeds m by less than 10⁻⁴, and it is larger than m
everywhere, so the bound holds for it too. But where the model is sure of a sample, the loss goes to 0 and so does its
gradient: the sample lacks C, and nothing shows in which direction its loss rises. Where such samples are most of S, as
at the start, or where only a few of them are left, a Newton step is long and points in no useful direction. The
gradient of log-odds does not vanish. (Privacy attacks use log-odds too: LiRA's statistic is −m.)

**With a loss of the user's own**, that loss takes the place of m, and C is in its units. Then 0 stands for log n, and C
in κ log n below. The constraint then says nothing about accuracy, and no bound is logged.

**The step**, as in sequential quadratic programming, with g = ∇S:

    tangent    v ← momentum · v + ∇(L_a + w L_r),   v ← v − its part along g,   v ← min(1, λ ‖θ₀‖ / η ‖v‖) v
               θ ← θ − c η v
    restoring  θ ← θ − min(β (S − τ)₊ / ‖g‖², q ρ ‖θ₀‖ / ‖g‖) g

The tangent step does not change S to first order, ⟨v, g⟩ = 0. The restoring step is a Newton step for S = τ along g: to
first order it removes the share β of the excess, however long the tangent step is. Assume that S bends upwards by at
most M (that is, S(θ + δ) ≤ S(θ) + ⟨g, δ⟩ + M ‖δ‖²/2). Then one step whose restoring part is not shortened by q ρ gives

    S − τ  ≤  (1 − β)(S − τ)₊ + M (t² + β² (S − τ)₊² / ‖g‖²) / 2,     t ≤ c λ ‖θ₀‖ the length of the tangent step

So S settles within a distance of order t² of τ and, as c falls from 1 to 0 along a cosine, on τ. At the start S is far
above τ, and ρ bounds the length of the restoring step relative to the weights. Forgetting then takes some tens of
steps, and adjacent and remote data are repaired while they are hurt, not afterwards. The bound λ on the velocity makes
η uncritical: just after something was forgotten, gradients are large, and η and momentum alone would throw the weights
far off (``docs/what-we-tried.md``). Remote data is an objective, not a direction to avoid, so a loss that rose is
pulled back.

**What step lengths are relative to**: ‖θ₀‖ is the length of the trained weights at the start. Where an adapter such as
LoRA's is trained, which begins at zero, the weights that it is added to count too.

**Trust.** A first step of full length can destroy remote data beyond repair, because the gradient of S holds only
nearby. So the longest restoring step is multiplied by a trust q, which begins at 1/64. While the remote loss is at most
κ log n above that of the first step, q doubles in every step, up to 1; otherwise it halves. So forgetting waits until
its damage is repaired. It does not wait forever, because the constraint comes first: after the share p of all steps, q
is at least p². Tangent steps follow the same trust, λ = (1 − q) σ + q ρ: they are short repairs while remote data is
hurt, and as long as the restoring ones once it is well, so that a run of few steps still gets far enough.

A run makes a number of passes over the adjacent data, but at least some ninety steps: with few adjacent samples,
forgetting and repairing take as many steps as with many.

**Two goals, and a dial.** *Erase* is above. *Retrain* aims at the model that never saw the forget data. That model
recognises much of the forget data, because adjacent data taught it. Its log-odds on the forget data have a distribution
R, which must be estimated (`unweave.methods.unseen`), and every forget sample gets log-odds rᵢ of R to aim at. If the
estimate is a model, rᵢ comes from its loss of the same sample: the model says not only how many samples it would
recognise, but which. If the estimate is a list of losses, rᵢ is the quantile of R at the rank of mᵢ, which is the best
coupling in one dimension. With P_θ the distribution of the mᵢ, the constraint is

    W₂²(P_θ, R)  ≤  S(θ) = mean of (rᵢ − mᵢ)²  ≤  τ

with equality on the left where ranks are paired. The mean loss and the mean probability of the right label then differ
from R's by √τ at most, because both are means of functions of m with slope 1 at most. Between the goals lies the
shortest way from R to the point mass at C, the W₂ geodesic, on which every sample moves at constant speed. It mixes
*log-odds*, sample by sample; a mixture of the distributions would mix *samples*, some erased and some untouched. With
``dial`` t from 0 to 1,

    aᵢ = (1 − t) rᵢ + t C,     S(θ) = mean of (aᵢ − mᵢ)₊² + (1 − t) (mᵢ − aᵢ)₊²,     τ = b · mean of (aᵢ − log n)²

t = 0 is *retrain*. At t = 1 log-odds above C cost nothing, and S and τ are those of *erase*. The cost is convex in
aᵢ − mᵢ, so pairing ranks stays the best coupling for every t, and S is then a minimum over couplings. Where ranks
change, S bends downwards only, and the inequality of the step holds unchanged.

**What a step costs**: one gradient each of an adjacent batch, some remote batches and the forget set. Where ranks are
paired, it costs one more forward pass of the forget set. At *erase* a sample whose log-odds are above C adds nothing to
S or g. So where the forget set takes several batches, all of it is first run forward, and only the samples that lack
something are differentiated; after the first steps these are about a tenth. It is the same step for half of the work.
Nothing is measured before the first step, and no copy of the model is kept.
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
from unweave.methods.unseen import (
    Reference,
    describe_reference,
    is_by_sample,
    is_made_on_demand,
    reference_losses,
    require_reference,
)
from unweave.settings import Around, Between, Multiples, given, setting


@dataclass(frozen=True, kw_only=True)
class Unweave(Method):
    """Our own method: forgetting is a constraint with a certificate, held in one loop that repairs what it harms.

    With ``goal="erase"`` no forget sample is to be recognised. With ``goal="retrain"`` the model is to look as if it
    had never been trained on the forget data. This goal needs a ``reference``: a model trained without the forget data
    (a brief training will do), a split of held-out data, or a list of losses. The step sizes are for a network of the
    size of ResNet-18. ``unweave methods unweave`` lists the settings.

    Raises:
        UsageError: From `check`, if the goal is retrain and the reference is missing or unusable, or if a reference is
            given and the goal is erase.

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> result = uw.unlearn(torch.nn.Linear(6, 2), split, uw.Unweave(reach=0.1, stride=0.05), guard=None)
        >>> result.history.rows[-1]["forget_bound"] < 0.01  # at most this share of the forget set is recognised
        True
    """

    name = "unweave"
    summary = "Forgetting as a constraint with a certificate: train on kept data, undo what comes back."
    promise = Promise(bound="shortfall", settings=("target",), any_loss=False)

    goal: Literal["erase", "retrain"] = setting(
        "erase", help="erase: no forget sample is recognised. retrain: as if never trained, by the reference."
    )
    dial: float = setting(
        0.0, at_least=0, at_most=1, help="Between the goals, with goal retrain: 0 is retrain, 1 is erase."
    )
    budget: float = setting(
        0.005,
        above=0,
        below=1,
        help="Tolerance b. For erase: the largest share of the forget set that may be predicted right.",
    )
    target: float = setting(
        10.0, above=0, help="Log-odds against its label (and loss) at which a sample counts as forgotten; C."
    )
    remote_weight: float = setting(
        3.0, at_least=0, search=Between(0.5, 10.0), help="Weight of the remote loss beside the adjacent one; w."
    )
    learning_rate: float = setting(
        3e-3, above=0, search=Around(30), help="Step size of the descent at the start. It falls to 0."
    )
    momentum: float = setting(0.9, at_least=0, below=1, help="Momentum of the descent.")
    restore: float = setting(
        0.5, above=0, at_most=1, help="Share of the excess over the constraint that a step removes; β."
    )
    reach: float = setting(
        0.005,
        above=0,
        search=Around(5),
        help="Longest restoring step, and longest tangent step while remote data is well, relative to the weights; ρ.",
    )
    stride: float = setting(
        0.002,
        above=0,
        search=Around(5),
        help="Longest tangent step while remote data is hurt, relative to the weights; σ.",
    )
    patience: float = setting(
        0.1,
        above=0,
        help="Remote data counts as hurt while its loss is above the first by this share of log(classes); κ.",
    )
    epochs: int = setting(6, at_least=0, search=Multiples(0.5, 1, 2), help="Passes over the adjacent data.")
    least_steps: int = setting(90, at_least=0, help="Fewest steps, where little adjacent data makes the epochs short.")
    batch_size: int = setting(128, at_least=1, help="Adjacent samples per step.")
    remote_batch: int = setting(512, at_least=1, help="Remote samples per batch.")
    remote_batches: int = setting(1, at_least=1, help="Remote batches per step, one pass at most.")
    forget_batch: int = setting(512, at_least=1, help="Forget samples per batch. A step uses all batches.")
    pairing: Literal["sample", "rank"] = setting(
        "sample",
        help="With a model as reference, a sample aims at its own loss there or at that of its rank. Otherwise: rank.",
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
        """Raise if the split or the reference cannot be used, or if a reference is given and not needed."""
        super().check(split)
        if self.goal == "retrain":
            require_reference(self.reference)
        elif self.reference is not None and not is_made_on_demand(self.reference):
            raise UsageError(
                "A reference was given, but it is used with the goal retrain only. Set goal, or leave it out."
            )

    def on_record(self) -> dict[str, Any]:
        """Return what the reference is, if it is used."""
        return {"reference": describe_reference(self.reference)} if self.goal == "retrain" else {}


FIRST_TRUST = 1 / 64  # six doublings lead to 1


class Constrained(Phase):
    """Descend on adjacent and remote loss; hold the forget data where the goal wants them."""

    name = "constrained descent"
    keeps = ("velocity", "length", "aims", "trust", "remote_loss", "adjacent_loss", "over")
    guards = ()  # kept data is repaired while it is hurt; what counts is the end

    def __init__(self, settings: Unweave) -> None:
        self.settings = settings
        self.dial = 1.0 if settings.goal == "erase" else settings.dial

    def prepare(self, bench: Workbench) -> None:
        """An epoch is one pass over the adjacent data. There is a least number of steps for little adjacent data."""
        super().prepare(bench)
        s = self.settings
        if s.goal == "retrain":
            self.guards_at_end = RETAINED  # retraining may forget little
        self.may_end = self.dial == 0 and isinstance(s.reference, Partition)
        self.by_rank = self.dial < 1 and (s.pairing == "rank" or not is_by_sample(s.reference))
        self.adjacent = bench.batches("adjacent", size=s.batch_size)
        self.remote = bench.batches("remote", size=s.remote_batch)
        self.forget = bench.batches(*bench.split.to_forget, size=s.forget_batch)
        # The first pass must give what the second gives: the same samples, each independent of its batch.
        alike = self.forget.are_at_hand and s.normalisation == "eval"
        self.looks_first = self.dial == 1 and len(self.forget) > 1 and alike
        self.steps = max(s.epochs * len(self.adjacent), s.least_steps) if s.epochs else 0
        self.chance = bench.limit(self.forget)
        self.slack = s.patience * (self.chance if bench.task.has_choices else s.target)
        if s.target <= self.chance:
            raise UsageError(
                f"target is {s.target:g}, but only a sample with a loss above log(classes) = {self.chance:.2f} is sure "
                "to be predicted wrong. Set a larger target."
            )
        bench.mode(s.normalisation)

    def begin(self) -> None:
        """Find the log-odds to aim at, by sample or smallest first. Measure the weights. The velocity starts at 0."""
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
        self.remote_loss = torch.tensor(math.inf, dtype=torch.float64, device=bench.device)  # set by the first step
        self.adjacent_loss = self.remote_loss.clone()
        self.over = torch.zeros_like(self.trust)

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
        self._may_end(excess)
        return self.logged

    def is_over(self) -> bool:
        """Return whether the forget data is as unseen data is, and kept data as it was. More steps would only train."""
        return bool(self.over > 0)

    def _may_end(self, excess: Tensor) -> None:
        if self.may_end:
            well = (self.logged["remote_loss"] <= self.remote_loss) & (
                self.logged["adjacent_loss"] <= self.adjacent_loss
            )
            self.over = ((excess <= 0) & well).to(self.over.dtype)

    def _trust(self, number: int) -> None:
        """Set the trust q by comparing the remote loss of this step with that of the first."""
        loss = self.logged["remote_loss"].double()
        if number == 0:
            self.remote_loss, self.adjacent_loss = loss, self.logged["adjacent_loss"].double()
        else:
            unharmed = loss <= self.remote_loss + self.slack
            least = max(FIRST_TRUST, (number / self.steps) ** 2)
            self.trust = (self.trust * torch.where(unharmed, 2.0, 0.5)).clamp(least, 1)
        self.logged["trust"] = self.trust

    def _objective(self, number: int) -> Iterator[Tensor]:
        """Yield L_a + w L_r, one batch at a time."""
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
        """Return the share of these forget samples in the gradient of S, and their log-odds."""
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
        """Return what each sample adds to S. The nearer the goal is to erase, the less an excess costs."""
        return missing.clamp(min=0).square() + (1 - self.dial) * missing.clamp(max=0).square()


def _length(gradient: Gradient) -> Tensor:
    return gram_matrix([gradient])[0, 0].sqrt()
