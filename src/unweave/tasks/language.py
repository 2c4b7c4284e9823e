"""Language models: a sample is a prompt with an answer, and the model is to give the answer's tokens.

ℓ = m = −(1/T) Σ_t log p(y_t | x, y_<t), over the T tokens of the answer, the end token included

exp(−m) is the geometric mean of the tokens' probabilities. A mean does not depend on the answer's length, so quantiles
of losses compare questions, not lengths. Log-odds are the losses themselves.

A sample is *recognised* if enough of the answer's tokens are right in one forward pass. ``by="tokens"`` counts the
tokens that are on top when all tokens before them are given (exact memorisation). ``by="generation"`` counts those that
greedy generation writes before its first other token. Up to there both have read the same text, so one forward pass
tells.

The *margin* of a sample is the mean over its tokens of min(ℓ_t, 5) / 2. A loss alone can be raised by one token that
becomes very unlikely, while the rest of the answer stays. Here it takes many tokens. A margin of 1 is a loss of 2,
about that of models that never saw the fact.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from unweave.data import Data, Samples, labels_of, require_texts
from unweave.errors import UsageError, unknown
from unweave.tasks.raw import explained
from unweave.tasks.task import Task
from unweave.tasks.token_logits import IGNORED, token_values

By = Literal["tokens", "generation"]
LOSS, RIGHT, TOKENS, MARGIN = range(4)  # columns of the outputs
ENOUGH, UNIT = 5.0, 2.0  # of margins: losses of tokens are counted up to 5, a probability of 0.7%


class Language(Task):
    """Causal language models: mappings of ``input_ids``, ``attention_mask`` and ``labels`` (−100 outside of answers).

    Args:
        threshold: The share of the answer's tokens that must be right for a sample to count as recognised.
        by: Whether tokens count after the true text before them (``tokens``) or after the model's own
            (``generation``).

    Raises:
        UsageError: The threshold is not above 0 and at most 1, or ``by`` is unknown.

    >>> task, outputs = Language(threshold=0.9), torch.tensor([[0.1, 1.0, 7.0, 0.05], [2.3, 0.5, 8.0, 0.9]])
    >>> task.losses(outputs, torch.tensor([7, 8])), task.recognised(outputs, torch.tensor([7, 8])).tolist()
    (tensor([0.1000, 2.3000]), [True, False])
    """

    name = "language"
    correct = "answers reproduced"
    has_choices = False
    has_tokens = True
    bounded = False

    def __init__(self, *, threshold: float = 0.9, by: By = "tokens") -> None:
        if not 0 < threshold <= 1:
            raise UsageError(f"threshold is {threshold}, but must be above 0 and at most 1.")
        if by not in get_args(By):
            raise unknown("by", by, get_args(By))
        self.threshold, self.by = float(threshold), by

    # One number per sample

    def outputs(self, model: nn.Module, data: Data) -> Tensor:
        """Return four columns: mean loss, share of right tokens, number of tokens, and margin of every answer."""
        values, answer = token_values(model, data, _loss_and_right)
        count = answer.sum(dim=1)
        right = values[..., 1]
        if self.by == "generation":
            right = torch.where(answer, right, 1).cumprod(dim=1)
        parts = (values[..., 0], right, _towards_margin(values[..., 0]))
        losses, right, margins = ((part * answer).sum(dim=1) / count for part in parts)
        return torch.stack([losses, right, count.to(losses.dtype), margins], dim=1)

    def tried_outputs(self, model: nn.Module, data: Data) -> Tensor:
        """Return what `outputs` returns; name the inputs where the model cannot take them."""
        return explained(model, data, run=self.outputs)

    def read(self, raw: Tensor) -> Tensor:
        """Take outputs as they are."""
        return raw

    def labels(self, labels: Tensor) -> Tensor:
        """Take labels as they are."""
        return labels

    def label_rows(self, data: Data) -> Tensor:
        """Return the number of tokens of every answer: batches of texts differ in width."""
        return answer_tokens(labels_of(data))

    def batch_losses(self, model: nn.Module, data: Data) -> Tensor:
        """Return the mean negative log-likelihood of every answer's tokens."""
        values, answer = token_values(model, data, token_losses)
        return (values * answer).sum(dim=1) / answer.sum(dim=1)

    def batch_odds(self, model: nn.Module, data: Data) -> Tensor:
        """Return the losses, which stand in for log-odds."""
        return self.batch_losses(model, data)

    def batch_margins(self, model: nn.Module, data: Data) -> Tensor:
        """Return the margin of every answer."""
        values, answer = token_values(model, data, token_losses)
        return (_towards_margin(values) * answer).sum(dim=1) / answer.sum(dim=1)

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the first column."""
        return outputs[:, LOSS]

    def odds(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the losses, which stand in for log-odds."""
        return self.losses(outputs, labels)

    def margins(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the last column."""
        return outputs[:, MARGIN]

    def recognised(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return whether enough tokens of each answer are right."""
        return outputs[:, RIGHT] >= self.threshold - 1e-6

    def limit(self, outputs: Tensor) -> float:
        """Return 0: a recognised answer may have any loss, because some of its tokens may be wrong."""
        return 0.0

    def require_labels(self, labels: Tensor, rows: Tensor, outputs: Tensor) -> None:
        """Refuse texts of which no token is labelled."""
        empty = (answer_tokens(labels) == 0).nonzero()
        if len(empty):
            raise UsageError(
                f"Sample {int(rows[int(empty[0])])} has no answer: all of its labels are -100. Label the tokens of the "
                "answer with their numbers."
            )

    def require_samples(self, model: nn.Module, samples: Samples, rows: Tensor) -> None:
        """Refuse, before the model runs, texts that it cannot take."""
        require_texts(model, samples, rows)

    def __repr__(self) -> str:
        return f"Language(threshold={self.threshold:g}, by={self.by!r})"


def answer_tokens(labels: Tensor) -> Tensor:
    """Return how many tokens of each text are predicted: the first token of a text is not.

    >>> answer_tokens(torch.tensor([[-100, 4, 5], [-100, -100, 5]]))
    tensor([2, 1])
    """
    return labels if labels.ndim == 1 else (labels[:, 1:] != IGNORED).sum(dim=1)


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log-likelihood of each next token, and 0 outside of the answer."""
    return functional.cross_entropy(logits, targets, reduction="none", ignore_index=IGNORED)


def _loss_and_right(logits: Tensor, targets: Tensor) -> Tensor:
    return torch.stack([token_losses(logits, targets), (logits.argmax(dim=-1) == targets).to(logits.dtype)], dim=-1)


def _towards_margin(losses: Tensor) -> Tensor:
    """Return what each token adds to the mean that is the margin.

    >>> _towards_margin(torch.tensor([1.0, 14.0]))
    tensor([0.5000, 2.5000])
    """
    return losses.clamp(max=ENOUGH) / UNIT
