"""The original model, unchanged: what every other row of a table is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unweave.engine import Phase
from unweave.methods.method import Method


@dataclass(frozen=True, kw_only=True)
class Original(Method):
    """The original model, unchanged."""

    name: ClassVar[str] = "original"
    summary: ClassVar[str] = "The model as it was given: nothing is unlearned."
    needs = ()

    def phases(self) -> list[Phase]:
        """Return no phases."""
        return []
