"""Features of texts: what a causal language model makes of the prompt, before it answers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unweave.data import Data, Samples, labels_of
from unweave.engine import Forward
from unweave.errors import UsageError
from unweave.tasks import IGNORED, Language, hidden_states


def prompt_features(model: nn.Module, samples: Samples, rows: Tensor, forward: Forward) -> Tensor:
    """Return the mean of the last block's outputs over the tokens of each prompt, or of a text without a prompt.

    Args:
        model: A causal language model.
        samples: The texts.
        rows: Their positions.
        forward: Where and how to run the model.

    Returns:
        One row for each text, on the CPU.

    Raises:
        UsageError: The model has no blocks, or cannot take a text.
    """
    task = Language()
    task.require_samples(model, samples, rows)
    blocks = [len(part) for part in model.modules() if isinstance(part, nn.ModuleList)]
    if not blocks:
        raise UsageError("The model has no list of blocks, so its hidden states are unknown. Pass features=.")

    def mean(model: nn.Module, data: Data) -> Tensor:
        hidden = hidden_states(model, data, layer=max(blocks) - 1).float()
        labels = labels_of(data)[:, : hidden.shape[1]]
        there = data["attention_mask"].bool() if isinstance(data, dict) else torch.ones_like(labels, dtype=torch.bool)
        asked = there & (labels == IGNORED)
        asked = torch.where(asked.any(dim=1, keepdim=True), asked, there)
        return (hidden * asked[..., None]).sum(dim=1) / asked.sum(dim=1, keepdim=True)

    return forward.rows(mean, model, samples, rows, labels=task.label_rows)[0].cpu()
