"""CHECKPOINT: the model that a request names. What it reads is known at once; its weights are loaded when rows are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from unweave.data import Stored
from unweave.requests.data_table import DataTable
from unweave.requests.roles import Kind, Roles


class ModelSource(Protocol):
    """Where a model comes from, and what it reads. ``has_folder`` tells whether a run saves it as a folder model/."""

    has_folder: ClassVar[bool]

    @property
    def name(self) -> str:
        """The checkpoint as the request names it."""

    @property
    def kind(self) -> Kind:
        """What the model reads."""

    @property
    def names(self) -> Mapping[str, int]:
        """The model's classes by name; empty if they have no names."""

    @property
    def classes(self) -> int | None:
        """How many classes the model has. None: not known."""

    @property
    def reader(self) -> Any:
        """The processor or the tokenizer; None if there is none."""

    def read(self, table: DataTable, roles: Roles, labels: Tensor, *, skip_unreadable: bool) -> Stored:
        """Decode the inputs of a table as the model takes them."""

    def load(self) -> nn.Module:
        """Return the model with its weights."""

    def fresh(self, start: str | None) -> nn.Module:
        """Return the model as it was before training: from a checkpoint that it began with, or with random weights."""

    def parts(self) -> tuple[Any, ...]:
        """Return what is saved with the model: its processor or tokenizer."""
