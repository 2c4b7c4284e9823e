"""What a language model makes of a request before it runs: what it can say now, and which prompts are near."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from unweave.api import Split
from unweave.data import RETAINED, nearest
from unweave.engine import Compute
from unweave.evaluation import features, predict

NEIGHBOURS, SHOWN = 20, 5  # kept prompts around each that goes; rows that are named
HARDLY = 0.5  # of the answers to forget: a model that knows fewer was perhaps asked in other words


@dataclass(frozen=True)
class PromptInspection:
    """A split of prompts as a language model sees it, before unlearning.

    Attributes:
        reproduced: The share of the answers in each subset that the model reproduces.
        covered: The share of the kept prompts nearest to those to forget that are adjacent data.
        nearest: The rows of the kept prompts that are nearest most often.
        template: How prompt and answer became a text.

    >>> print(PromptInspection({"forget": 0.25, "remote": 1.0}, 0.5, (7, 9), "chat"))
    Answers that the model reproduces now: forget 25%, remote 100%.
    It hardly knows what it is to forget. Give the template that it was trained with: it was asked with 'chat'.
    Adjacent data has 50% of the kept prompts that are nearest to those to forget. Nearest: rows 7, 9.
    """

    reproduced: dict[str, float]
    covered: float
    nearest: tuple[int, ...]
    template: str

    def __str__(self) -> str:
        shares = ", ".join(f"{subset} {share:.0%}" for subset, share in self.reproduced.items())
        doubt = (
            "It hardly knows what it is to forget. Give the template that it was trained with: it was asked with "
            f"{self.template!r}."
        )
        return "\n".join(
            [
                f"Answers that the model reproduces now: {shares}.",
                *([doubt] if self.reproduced.get("forget", 1.0) < HARDLY else []),
                f"Adjacent data has {self.covered:.0%} of the kept prompts that are nearest to those to forget. "
                f"Nearest: rows {', '.join(map(str, self.nearest))}.",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as plain values."""
        return asdict(self)


def inspect_prompts(model: torch.nn.Module, split: Split, template: str, compute: Compute) -> PromptInspection:
    """Let a model answer every prompt of a split, and find the kept prompts nearest to those to forget."""
    reproduced = {
        name: float(predict(model, split.samples, split.rows(name), **compute.looking).correct.float().mean())
        for name in split.names
        if len(split[name])
    }
    found = features(model, split.samples, torch.arange(len(split.samples)), device=compute.device)
    kept = split.rows(*RETAINED)
    around = kept[nearest(found[torch.from_numpy(split.forget)], found[kept], min(NEIGHBOURS, len(kept)))[1]]
    rows, counts = around.unique(return_counts=True)
    covered = float(torch.isin(around, torch.from_numpy(split.adjacent)).double().mean())
    first = rows[counts.argsort(descending=True, stable=True)[:SHOWN]]
    return PromptInspection(reproduced, covered, tuple(first.tolist()), template)
