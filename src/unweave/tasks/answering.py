"""Let a causal model of transformers write answers: prompts are padded on the left, texts are cut at their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unweave.errors import UsageError
from unweave.tasks.token_logits import IGNORED

LONGEST = 200  # tokens of a written answer, as in open-unlearning


def prompts_and_answers(data: Any) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the tokens before each answer, and those of the answer.

    >>> data = {"input_ids": torch.tensor([[5, 6, 7, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 0]])}
    >>> list(prompts_and_answers({**data, "labels": torch.tensor([[-100, 6, 7, -100]])}))
    [([5], [6, 7])]
    """
    for ids, mask, labels in zip(data["input_ids"], data["attention_mask"], data["labels"], strict=True):
        there = mask.bool()
        tokens, own = ids[there], labels[there] != IGNORED
        start = int(own.nonzero()[0]) if own.any() else len(tokens)
        yield tokens[:start].tolist(), tokens[start:].tolist()


@torch.no_grad()
def written(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    *,
    pad: int,
    end: int | None,
    longest: int = LONGEST,
    at_once: int | None = None,
    temperature: float = 0.0,
) -> list[list[int]]:
    """Return the tokens that a model writes after each prompt, without the end token.

    Args:
        model: A causal model of transformers.
        prompts: The tokens of each prompt.
        pad: The number of the pad token.
        end: The number of the token at which writing ends. None: only ``longest`` ends it.
        longest: The most tokens to write.
        at_once: How many prompts to continue at once. None: 512 on CUDA, where a step takes as long for one prompt; 32
            elsewhere. If memory runs out, half as many.
        temperature: 0 writes the likeliest token each time. Above 0, tokens are drawn.

    Returns:
        The tokens of every answer, in the order of the prompts.

    Raises:
        UsageError: The model cannot generate, or a prompt is empty.
    """
    base: Any = getattr(model, "_orig_mod", model)
    if not hasattr(base, "generate"):
        raise UsageError(f"{type(base).__name__} has no generate(). Answers need a causal model of transformers.")
    for number, prompt in enumerate(prompts):
        if not prompt:
            raise UsageError(f"Text {number} has no prompt: its labels begin with its first token. Nothing is asked.")
    device = next(base.parameters()).device
    drawing = {"do_sample": True, "temperature": temperature} if temperature > 0 else {"do_sample": False}
    was = base.training
    base.eval()
    order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))  # prompts of one length need no padding
    size = at_once or (512 if device.type == "cuda" else 32)

    def write(places: Sequence[int]) -> list[list[int]]:
        ids, mask = _left_padded([prompts[place] for place in places], pad, device)
        texts = base.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=longest,
            pad_token_id=pad,
            eos_token_id=end,
            **drawing,
        )[:, ids.shape[1] :].tolist()
        return [text[: text.index(end)] if end in text else text for text in texts]

    try:
        found = _in_pieces(write, order, size)
    finally:
        base.train(was)
    by_place = dict(zip(order, found, strict=True))
    return [by_place[place] for place in range(len(prompts))]


def _in_pieces(write: Callable[[Sequence[int]], list[list[int]]], order: Sequence[int], size: int) -> list[list[int]]:
    """Return what is written at all places, so many at once, or half as many where memory runs out."""
    found: list[list[int]] = []
    while len(found) < len(order):
        try:
            found += write(order[len(found) : len(found) + size])
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            torch.cuda.empty_cache()
            size = -(-size // 2)
    return found


def _left_padded(prompts: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    return ids, mask
