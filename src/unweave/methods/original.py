"""The original model, unchanged: every other row of a table is compared with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unweave.engine import Phase
from unweave.methods.method import Method


@dataclass(frozen=True, kw_only=True)
class Original(Method):
    """The original model, unchanged. A study runs it like a method, so that its table has a row for it.

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> uw.unlearn(torch.nn.Linear(6, 2), split, uw.Original()).cost.sample_gradients
        0
    """

    name: ClassVar[str] = "original"
    summary: ClassVar[str] = "The model as it was given: nothing is unlearned."
    needs = ()

    def phases(self) -> list[Phase]:
        """Return no phases."""
        return []
