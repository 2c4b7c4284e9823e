"""The two-stage method of "Machine Unlearning under Retain–Forget Entanglement" (ICLR 2026), Algorithm 1.

Stage 1 raises the forget loss and pins the remote loss where it was (Eq. 1–4):

    L_aug(θ; λ, μ) = −L_f(θ) + λ c + (μ/2) c²,    c = L_r(θ) − L_r(θ₀),    λ ← λ + μ c

with L_f clipped per sample at C. It does not protect adjacent data, which suffers. Stage 2 recovers it by projected
gradient descent (Eq. 10): it steps along the adjacent gradient, less its part in the span V of

    ∇L̃_f,  L̃_f = ±(1−α) L_f + α W₂²(P_θ̄, P_θ)    and    ∇L_r

where P is the distribution of the forget losses and θ̄ are the weights after stage 1. The Wasserstein term keeps single
forget samples from sliding back while the mean stays where it is. α = 0 is plain PGD, the paper's ablation.

The stages are in ``stages.py``. The profile ``released`` is what the authors' code does. It differs from the printed
equations in that

- the mean forget loss enters L̃_f with a minus sign, so that samples whose loss falls weigh more, not less;
- stage 2 has momentum, added *before* the projection, and the projected direction replaces the velocity, so that every
  step is orthogonal to V;
- λ moves on the constraint as measured before the step, on the step's minibatch.

The profile ``paper`` is the printed form: plus sign, no momentum, λ moved after the step.

Their step sizes and lengths are those of one network. The profile ``default`` finds its own (``scaled_stages.py``). By
name, `unlearn` takes it on a model of the user's own; an object, and benchmarks, have the values of ``released``.

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

from dataclasses import dataclass
from typing import ClassVar, Literal

from unweave.engine import OptimizerName, Phase
from unweave.methods.method import Method, Profiles, Promise
from unweave.methods.scaled_stages import ScaledStage1, ScaledStage2
from unweave.methods.stages import Stage1, Stage2
from unweave.settings import Around, Multiples, OneOf, default, setting


@dataclass(frozen=True, kw_only=True)
class TwoStage(Method):
    """The two-stage method of "Machine Unlearning under Retain–Forget Entanglement" (ICLR 2026), Algorithm 1.

    Stage 1 raises the forget loss and pins the remote loss. Stage 2 recovers the adjacent data by projected gradient
    descent. The defaults are the values of the authors' release for CIFAR-100. The profile ``paper`` is the printed
    form. The profile ``default`` finds its steps and length; ``uw.unlearn(model, split, "two-stage")`` takes it.
    ``unweave methods two-stage`` lists the settings.

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
        "default": {
            "steps": "scaled",
            "confident_penalty": 0.1,
            "stage1_learning_rate": 0.01,
            "stage1_epochs": 6,
            "stage1_remote_batch": 128,
            "stage1_forget_batch": 32,
            "stage2_learning_rate": 0.06,
            "stage2_epochs": 12,
            "stage2_adjacent_batch": 64,
            "stage2_remote_batch": 128,
            "stage2_forget_batches": 2,
            "stage2_remote_batches": 2,
        },
    }
    on_own_models = "default"
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

    steps: Literal["fixed", "scaled"] = setting(
        "fixed",
        help="fixed: steps and lengths as given. scaled: steps relative to the weights, in Adam's metric, and lengths "
        "found on held-back samples; learning rates and passes are the most.",
    )

    def phases(self) -> list[Phase]:
        """Return both stages."""
        if self.steps == "scaled":
            first = ScaledStage1(self)
            return [first, ScaledStage2(self, first)]
        return [Stage1(self), Stage2(self)]


@dataclass(frozen=True, kw_only=True)
class PGD(TwoStage):
    """Plain projected gradient descent: the two-stage method without the Wasserstein term (``alpha`` = 0).

    It is the ablation of "Machine Unlearning under Retain–Forget Entanglement" (ICLR 2026). Nothing holds the loss of
    single forget samples, so they are relearned. It has no self-scaling profile: that would refuse every such step.

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
    profiles: ClassVar[Profiles] = {name: TwoStage.profiles[name] for name in ("released", "paper")}
    on_own_models = ""

    alpha: float = default(0.0)
