"""The original model, unchanged: what every other row of a table is measured against."""

from __future__ import annotations

from unweave.methods.method import Method
from unweave.settings import Settings

ORIGINAL = Method(
    name="original",
    summary="The model as it was given: nothing is unlearned.",
    settings=Settings,
    phases=lambda settings: [],
    needs=(),
)
