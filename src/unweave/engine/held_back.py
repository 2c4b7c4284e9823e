"""Kept samples that a method does not learn from, so that they can judge it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unweave.data import RETAINED
from unweave.engine.batches import Batches, derive_seed
from unweave.engine.workbench import Workbench

USUAL = 0.95  # quantile of kept losses that counts as usual, where a task has no margin


class HeldBack:
    """Kept samples that a method does not learn from, so that they can judge it. The same seed draws the same ones.

    Where fewer than ``fewest`` of a subset are held back, the others judge as well: a few samples cannot tell, and none
    would count as all recognised.
    """

    def __init__(self, bench: Workbench, *, share: float, most: int, fewest: int = 1) -> None:
        self.bench = bench
        kept = [name for name in RETAINED if len(bench.split[name])]
        self.rows = {name: _drawn(bench, name, share=share, most=most) for name in kept}
        self.judges = {
            name: rows if len(rows) >= fewest else _drawn(bench, name, share=1.0, most=most)
            for name, rows in self.rows.items()
        }

    def rest(self, batches: Batches) -> Batches:
        """Return batches without the samples that are held back."""
        held = torch.cat(list(self.rows.values())) if self.rows else batches.rows[:0]
        return batches.only(~torch.isin(batches.rows, held.to(batches.rows.device)))

    def usual_loss(self) -> Tensor:
        """Return a loss that nearly all of the samples stay below; 0 if there are none."""
        return self._usual(self.bench.task.losses)

    def usual_margin(self) -> Tensor:
        """Return a margin that nearly all of the samples stay below; 0 if there are none."""
        return self._usual(self.bench.task.margins)

    def _usual(self, value: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        rows = torch.cat(list(self.judges.values()))
        if not len(rows):
            return torch.zeros((), dtype=torch.float64, device=self.bench.device)
        return value(*_seen(self.bench, rows)).double().quantile(USUAL)

    def known(self, *, usual: Tensor) -> Tensor:
        """Return the share of each subset that is recognised."""
        return torch.stack([look(self.bench, rows, usual=usual)[0] for rows in self.judges.values()])


def look(bench: Workbench, rows: Tensor, *, usual: Tensor) -> tuple[Tensor, Tensor]:
    """Return the share of some samples that is recognised, 1 if there are none, and the loss of each.

    Where a task does not say what is recognised, samples with at most the usual loss are.
    """
    if not len(rows):
        return torch.ones((), dtype=torch.float64, device=bench.device), torch.zeros(0, device=bench.device)
    outputs, labels = _seen(bench, rows)
    losses = bench.task.losses(outputs, labels).double()
    known = bench.task.recognised(outputs, labels)
    return (losses <= usual.to(losses.device) if known is None else known).double().mean(), losses


def _seen(bench: Workbench, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs and the labels of some samples."""
    outputs, labels = bench.forward.rows(
        bench.task.tried_outputs, bench.model, bench.split.samples, rows, labels=bench.task.label_rows
    )
    return outputs, bench.task.labels(labels)


def _drawn(bench: Workbench, name: str, *, share: float, most: int) -> Tensor:
    """Return rows of a subset to hold back, in order."""
    rows = bench.split.rows(name)
    draw = torch.Generator().manual_seed(derive_seed(bench.seed, "held back", name))
    return rows[torch.randperm(len(rows), generator=draw)[: min(most, int(share * len(rows)))].sort().values]
