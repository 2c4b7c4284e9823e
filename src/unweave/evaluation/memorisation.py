"""Memorisation of an answer's tokens: how many are on top, and how little of the answer must be given away.

Both look at tokens that are predicted from the true text before them. As in open-unlearning, the end token is left out.

- **Exact memorisation**: the share of tokens that are the likeliest.
- **Extraction strength**: 1 − k/T, where k is the smallest number of given tokens after which all others are the
  likeliest. open-unlearning's code cannot return 0: if even the last token is wrong, its k is T − 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unweave.evaluation.answer_sheets import AnswerSheet, Values

GAP = 0.5  # in the loss of a token, for a token that only the training data explains


def exact_memorisation(sheet: AnswerSheet, only: Sequence[Sequence[bool]] | None = None) -> Values:
    """Return the share of right tokens of every answer; with ``only``, among these tokens (NaN if there are none)."""
    chosen = only or [[True] * len(tokens) for tokens in sheet.right]
    found = []
    for right, mask in zip(sheet.right, chosen, strict=True):
        kept = [is_right for is_right, is_chosen in zip(right[:-1], mask[:-1], strict=True) if is_chosen]
        found.append(np.mean(kept) if kept else np.nan)
    return np.array(found)


def extraction_strength(sheet: AnswerSheet, *, floor: bool = False) -> Values:
    """Return the extraction strength of every answer. ``floor`` repeats open-unlearning's floor of 1/T."""
    found = []
    for tokens in sheet.right:
        right = tokens[:-1]
        run = next((place for place, is_right in enumerate(reversed(right)) if not is_right), len(right))
        run = max(run, 1) if floor else run
        found.append(run / len(right) if right else np.nan)
    return np.array(found)


def unshared_tokens(original: AnswerSheet, retrained: AnswerSheet, *, gap: float = GAP) -> list[list[bool]]:
    """Tell which tokens only the forget data explains: the retrained model's loss exceeds the original's by ``gap``.

    The other tokens are phrasing that neighbours share.
    """
    return [
        [mine - theirs > gap for mine, theirs in zip(a, b, strict=True)]
        for a, b in zip(original.log_probabilities, retrained.log_probabilities, strict=True)
    ]
