"""What computes, and how: what studies and tunings hand on to everything that they train, unlearn and look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import torch

from unweave.engine.compiling import Compile
from unweave.errors import unknown
from unweave.runtime import Precision, pick_device, resolve_precision


@dataclass(frozen=True, kw_only=True)
class Computing:
    """A device (None: the best there is), the precision of forward and backward passes, and whether to compile.

    >>> Computing(device="cpu").looking
    {'device': 'cpu', 'precision': 'auto'}
    """

    device: str | torch.device | None = None
    precision: Precision = "auto"
    compile: Compile = "auto"

    def check(self) -> torch.device:
        """Refuse what there is not; return the device."""
        if self.compile not in get_args(Compile):
            raise unknown("way to compile", self.compile, get_args(Compile))
        where = pick_device(self.device)
        resolve_precision(self.precision, where)
        return where

    @property
    def looking(self) -> dict[str, Any]:
        """The arguments of what only looks at models."""
        return {"device": self.device, "precision": self.precision}

    @property
    def working(self) -> dict[str, Any]:
        """The arguments of what changes models."""
        return {**self.looking, "compile": self.compile}
