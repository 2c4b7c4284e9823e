"""One check of a record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One check: whether it holds (None: it could not be made), and what was found."""

    name: str
    holds: bool | None
    words: str
