"""Prompts with answers as tokens of a causal language model: every row is tokenised once and kept on disk."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unweave.data import CHAT, NO_LABEL, PLAIN, PaddingCollator, Stored, require_template, token_pairs
from unweave.errors import UsageError
from unweave.requests.data_table import DataTable
from unweave.requests.roles import Roles
from unweave.requests.spool import Spool

UNBOUNDED = 10**6  # tokenizers without a limit of their own give an astronomical one
NUMBERS = np.dtype(np.int32)


class Questions(Stored):
    """The tokens of every prompt with its answer, padded to the longest of the data. Only answers are labelled.

    Args:
        table: The data.
        roles: Its columns, and the template.
        tokenizer: The checkpoint's tokenizer.
        limit: The most tokens that the model takes, if its configuration says so.
    """

    def __init__(self, table: DataTable, roles: Roles, tokenizer: Any, limit: int | None) -> None:
        self.tokens, self.asked = Spool(NUMBERS), array("q")
        (prompt,), answer = roles.inputs, roles.label
        for batch in table.batches([prompt, answer]):
            rows = batch.to_pylist()
            how: dict[str, Any] = {"prompt": prompt, "answer": answer, "template": roles.template}
            pairs = list(token_pairs(rows, tokenizer, **how, first=len(self.tokens)))
            self.tokens.add(np.array(asked + said) for asked, said in pairs)
            self.asked.extend(len(asked) for asked, _ in pairs)
        self.width = _within(self.tokens.lengths, min(tokenizer.model_max_length, limit or UNBOUNDED), table)
        self.collate = PaddingCollator(int(tokenizer.pad_token_id))

    def __len__(self) -> int:
        return len(self.asked)

    def labels(self) -> Tensor:
        """Return the label of every token: the token itself in the answer, -100 elsewhere."""
        found: Tensor = self.batch(torch.arange(len(self)))["labels"]
        return found

    def batch(self, rows: Tensor) -> dict[str, Tensor]:
        """Return the padded tokens of these rows."""
        samples = []
        for row, tokens in zip(rows.tolist(), self.tokens.read(rows), strict=True):
            labels = tokens.copy()
            labels[: self.asked[row]] = NO_LABEL
            samples.append({"input_ids": tokens.copy(), "labels": labels})
        return self.collate(samples, width=self.width)


def template_of(asked: str | None, tokenizer: Any, name: str) -> str:
    r"""Return the template of a request: the one asked for or, without one, the tokenizer's own or a plain one.

    Args:
        asked: ``chat``, or a text with ``{prompt}`` and ``{answer}``, in which ``\n`` is a line break.
        tokenizer: The checkpoint's tokenizer.
        name: The checkpoint, for messages.

    Returns:
        The template.

    Raises:
        UsageError: The tokenizer has no chat template, or the text has no place for prompt and answer.
    """
    if asked is None:
        return CHAT if getattr(tokenizer, "chat_template", None) else PLAIN
    if asked == CHAT and not getattr(tokenizer, "chat_template", None):
        shown = PLAIN.replace("\n", r"\n")
        raise UsageError(f"The tokenizer of {name} has no chat template. Give one as text: --template '{shown}'")
    template = asked.replace(r"\n", "\n")
    require_template(template, tokenizer)
    return template


def check_tokenizer(tokenizer: Any, name: str, words: int | None) -> None:
    """Raise a `UsageError` for a tokenizer without a padding token, or of another model that knows ``words`` tokens."""
    if tokenizer.pad_token_id is None:
        own = tokenizer.eos_token or "a token that it has"
        raise UsageError(
            f'The tokenizer of {name} has no padding token. Add "pad_token": "{own}" to its tokenizer_config.json.'
        )
    count = max([len(tokenizer), *(number + 1 for number in tokenizer.get_vocab().values())])
    if words is not None and count > words:
        raise UsageError(
            f"The tokenizer of {name} has {count} tokens, but its model knows {words}: it is the tokenizer of "
            "another model. Save the model's own with it."
        )


def require_answers(table: DataTable, roles: Roles) -> None:
    """Raise a `UsageError` for rows without a prompt or an answer, before any of them is tokenised."""
    from pyarrow import compute

    for column in (*roles.inputs, roles.label):
        count, first, row = 0, -1, 0
        for batch in table.batches([column]):
            length = compute.utf8_length(compute.utf8_trim_whitespace(batch.column(0)))
            bad = compute.fill_null(compute.equal(length, 0), True).to_numpy(zero_copy_only=False)
            if bad.any() and first < 0:
                first = row + int(bad.argmax())
            count, row = count + int(bad.sum()), row + len(batch)
        if count:
            raise UsageError(f"{count} rows of {table.name} have no {column!r} (first: row {first}). Take them out.")


def _within(lengths: np.ndarray[Any, Any], most: int, table: DataTable) -> int:
    """Return the longest length; raise a `UsageError` if some are longer than the model takes."""
    over = np.flatnonzero(lengths > most)
    if len(over):
        raise UsageError(
            f"{len(over)} of the {len(lengths)} answers in {table.name} would be cut off: the model takes {most} "
            f"tokens, the prompt's included (first: row {over[0]} has {lengths[over[0]]}). Shorten them, or take their "
            "rows out."
        )
    return int(lengths.max())
