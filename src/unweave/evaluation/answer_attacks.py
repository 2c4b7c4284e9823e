"""Membership attacks on answers: does the model find forget answers more familiar than held-out ones?

Scores of an answer with T tokens of log-probability l_t; a higher score means less familiar:

- loss: m = −mean l_t
- zlib: m / bytes of the compressed answer
- min-k: −mean of the lowest k of the l_t; k is 0.4 on TOFU and MUSE in open-unlearning
- min-k++: the same of (l_t − μ_t) / σ_t, where μ_t and σ_t are those of a token drawn from the model
- reference: m − m of a reference model
- gradient: the mean over weight tensors of the gradient's norm

The end token counts for loss, zlib and reference only, as in open-unlearning. AUC is 1 if every forget answer is more
familiar than every held-out one; 0.5 is chance, and less than that is telling, too.

**PrivLeak** (MUSE) is ((1 − AUC) − (1 − AUC of retraining)) / (1 − AUC of retraining) · 100, with min-k. 0 is best: the
attack does as well as on a retrained model.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import nn

from unweave.data import Samples
from unweave.evaluation import attack
from unweave.evaluation.answer_sheets import AnswerSheet, Rows, Values, Wording
from unweave.evaluation.metric import Estimate
from unweave.runtime import reading
from unweave.tasks import token_losses, token_values

SHARE = 0.4  # k of min-k
LEAST_SPREAD = 1e-3  # σ of min-k++ for a model that is sure of a token, as in open-unlearning


def loss_scores(sheet: AnswerSheet) -> Values:
    """Return the mean loss of every answer."""
    return sheet.losses


def zlib_scores(sheet: AnswerSheet) -> Values:
    """Return the mean loss of every answer, divided by the bytes of its text when compressed."""
    sizes = [len(zlib.compress(answer.encode())) for answer in sheet.answers]
    found: Values = sheet.losses / np.array(sizes)
    return found


def min_k_scores(sheet: AnswerSheet, *, share: float = SHARE) -> Values:
    """Return minus the mean of the lowest log-probabilities of every answer."""
    return np.array([_lowest(np.array(tokens[:-1]), share) for tokens in sheet.log_probabilities])


def min_k_plus_scores(sheet: AnswerSheet, *, share: float = SHARE) -> Values:
    """Return minus the mean of the lowest standardised log-probabilities of every answer."""
    parts = zip(sheet.log_probabilities, sheet.expected, sheet.spread, strict=True)
    standard = [
        (np.array(tokens) - np.array(mean)) / np.maximum(spread, LEAST_SPREAD) for tokens, mean, spread in parts
    ]
    return np.array([_lowest(tokens[:-1], share) for tokens in standard])


def reference_scores(sheet: AnswerSheet, reference: AnswerSheet) -> Values:
    """Return how much larger the loss of every answer is than a reference model's."""
    found: Values = sheet.losses - reference.losses
    return found


def gradient_scores(model: nn.Module, rows: Rows, wording: Wording, *, norm: float = 2.0) -> Values:
    """Return the mean norm of the gradient of every answer's loss over the weight tensors.

    Args:
        model: The model. It is not changed.
        rows: Questions with answers.
        wording: How questions become tokens.
        norm: Which norm: 1, 2 or infinity.
    """
    device = next(model.parameters()).device
    samples = Samples(wording.tokens(rows, model))
    kept = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    found = []
    with reading(model, device), torch.enable_grad():
        for row in range(len(samples)):
            data = samples.batch(torch.tensor([row]), device, cut=True).data
            values, answer = token_values(model, data, token_losses)
            last = answer.cumsum(dim=1) == answer.sum()
            loss = values[answer & ~last].mean() if answer.sum() > 1 else values[answer].mean()
            chosen = [parameter for parameter in model.parameters() if parameter.requires_grad]
            gradients = torch.autograd.grad(loss, chosen, allow_unused=True)
            norms = [torch.linalg.vector_norm(part, norm) for part in gradients if part is not None]
            found.append(float(torch.stack(norms).mean()))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(kept[name])
    return np.array(found)


def familiarity(forget: Values, held_out: Values, *, resamples: int = 200, seed: int = 0) -> Estimate:
    """Return the AUC of an attack, with its bootstrap interval.

    >>> familiarity(np.array([0.1, 0.2]), np.array([0.3, 0.4]), resamples=0).value
    1.0
    """
    return attack.judge(-forget, -held_out, resamples=resamples, seed=seed)["auc"]


def privacy_leak(auc: float, retrained: float = 0.5) -> float:
    """Return PrivLeak from the AUC of min-k, and that of a retrained model; without one, chance.

    >>> round(privacy_leak(0.75, 0.5), 6)
    -50.0
    """
    return ((1 - auc) - (1 - retrained)) / (1 - retrained + 1e-10) * 100


def _lowest(values: Values, share: float) -> float:
    if len(values) == 0:
        return 0.0
    return -float(np.sort(values)[: max(1, int(len(values) * share))].mean())
