"""Text as tokens: every sentence is tokenised once and kept on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from unweave.data import Data, Stored
from unweave.errors import UsageError
from unweave.requests.data_table import DataTable
from unweave.requests.roles import Roles
from unweave.requests.spool import Spool

UNBOUNDED = 10**6  # tokenizers without a limit of their own give an astronomical one
NUMBERS = np.dtype(np.int32)


class Sentences(Stored):
    """The tokens of every row, padded to the longest of the data.

    Args:
        table: The data.
        roles: Its columns. A second input is the second sentence of a pair.
        labels: The label of every row.
        tokenizer: The checkpoint's tokenizer.
        limit: The most tokens that the model takes, if its configuration says so.
        words: How many tokens the model knows, if its configuration says so.
    """

    def __init__(
        self, table: DataTable, roles: Roles, labels: Tensor, tokenizer: Any, *, limit: int | None, words: int | None
    ) -> None:
        self._labels = labels
        self.pad = _padding(tokenizer)
        self.on_the_left = tokenizer.padding_side == "left"
        self.kept: dict[str, Spool] = {}
        most = min(tokenizer.model_max_length, limit or UNBOUNDED)
        how = {"truncation": True, "max_length": most} if most < UNBOUNDED else {}
        row = 0
        for batch in table.batches(roles.inputs):
            texts = [batch.column(number).to_pylist() for number in range(len(roles.inputs))]
            _require_texts(texts, row, table, roles)
            row += len(batch)
            for name, values in tokenizer(*texts, **how).items():
                self.kept.setdefault(name, Spool(NUMBERS)).add(values)
                if name == "input_ids":
                    _require_known(values, words, tokenizer)
        self.width = int(self.kept["input_ids"].lengths.max())

    def __len__(self) -> int:
        return len(self._labels)

    def labels(self) -> Tensor:
        """Return the label of every row."""
        return self._labels

    def batch(self, rows: Tensor) -> Data:
        """Return the padded tokens of these rows, by the names of the model's arguments."""
        found = {name: self._padded(name, kept, rows) for name, kept in self.kept.items()}
        return {**found, "labels": self._labels[rows]}

    def _padded(self, name: str, kept: Spool, rows: Tensor) -> Tensor:
        whole = torch.full((len(rows), self.width), self.pad.get(name, 0))
        for place, tokens in enumerate(kept.read(rows)):
            start = self.width - len(tokens) if self.on_the_left else 0
            whole[place, start : start + len(tokens)] = torch.from_numpy(tokens.astype(np.int64))
        return whole


def _padding(tokenizer: Any) -> dict[str, int]:
    if tokenizer.pad_token_id is None:
        raise UsageError(
            f"The tokenizer of {tokenizer.name_or_path} has no padding token. Set tokenizer.pad_token and save it "
            "with the checkpoint."
        )
    return {"input_ids": int(tokenizer.pad_token_id), "token_type_ids": int(tokenizer.pad_token_type_id)}


def _require_known(tokens: list[list[int]], words: int | None, tokenizer: Any) -> None:
    largest = max((max(text, default=0) for text in tokens), default=0)
    if words is not None and largest >= words:
        raise UsageError(
            f"The tokenizer of {tokenizer.name_or_path} gives the token {largest}, but its model knows {words} tokens: "
            "it is the tokenizer of another model. Save the model's own with it."
        )


def _require_texts(texts: list[list[Any]], first: int, table: DataTable, roles: Roles) -> None:
    for column, values in zip(roles.inputs, texts, strict=True):
        for place, value in enumerate(values):
            if value is None:
                raise UsageError(f"Row {first + place} of {table.name} has no {column!r}. Take such rows out.")
