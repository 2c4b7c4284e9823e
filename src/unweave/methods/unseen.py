"""The forget losses of a model that never saw the forget data: the reference of the goal *as if never trained*.

Only retraining gives the true losses, so this is an estimate. There are three kinds, from the nearest to retraining to
the farthest (``docs/what-we-tried.md`` has the numbers):

- **A model that was trained briefly without the forget data**, by the original's recipe from the original's initial
  weights, for instance for a fifth of its epochs. Early in training it already shows *which* forget samples the kept
  data explains. It does not show how sure the model will become of its predictions. So its logits are multiplied by
  one number before the losses are taken. That number makes it as sure of kept data as the original is, measured by the
  mean distance between the two largest logits.
- **Given losses**, from an earlier retraining, from another data set, or chosen.
- **Held-out data**, never trained on: its adjacent samples show what the original's losses are without training on
  them, and kept samples of the same labels what they are with it. Each forget sample aims at the held-out loss of its
  own rank among the kept ones, so that easy samples stay easy and only what training on them added is taken away. This
  needs no training. But the original learned to recognise such samples from other samples of their class, and a
  retrained model cannot learn that for the forget data. Where a whole class is to be forgotten, this estimate is
  therefore far too low. It suits forget sets of single samples whose class stays.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from unweave.data import RETAINED, Partition, as_groups
from unweave.engine import Batches, Cost, Workbench
from unweave.errors import UsageError
from unweave.runtime import reading

ENOUGH = 5000  # samples that show how sure a model is of kept data
BATCH = 512


class Trained(Protocol):
    """A model, and what it cost."""

    @property
    def model(self) -> nn.Module:
        """A model that never saw the forget data."""

    @property
    def cost(self) -> Cost:
        """What its training cost. It is added to the cost of the run that uses it."""


Reference: TypeAlias = Partition | nn.Module | Tensor | Sequence[float] | Callable[[], Trained]


def is_made_on_demand(reference: Any) -> bool:
    """Return whether a reference is a function that trains a model. It costs nothing if nothing calls it."""
    return callable(reference) and not isinstance(reference, nn.Module)


def require_reference(reference: Any) -> None:
    """Raise if no distribution of losses can be made from this.

    >>> require_reference([0.5, float("nan")])
    Traceback (most recent call last):
    unweave.errors.UsageError: The reference must be a list of finite losses, but entry 1 is nan.
    """
    if reference is None:
        raise UsageError(
            "The goal retrain needs the losses of data that was never seen: pass reference=, which may be a model "
            "trained without the forget data (a brief training will do), held-out data (a Split), or a list of losses."
        )
    if isinstance(reference, Partition):
        if len(reference.adjacent) == 0:
            raise UsageError("The reference is a split without adjacent samples. Give held-out data that has some.")
        return
    if callable(reference):
        return
    try:
        losses = torch.as_tensor(reference, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise UsageError(
            f"The reference is {type(reference).__name__}, but must be a split of held-out data, a model trained "
            "without the forget data, or a list of losses."
        ) from None
    if losses.ndim != 1 or len(losses) == 0:
        raise UsageError(f"The reference must be a non-empty list of losses, not of shape {tuple(losses.shape)}.")
    if not losses.isfinite().all():
        first = int((~losses.isfinite()).nonzero()[0])
        raise UsageError(f"The reference must be a list of finite losses, but entry {first} is {float(losses[first])}.")


def describe_reference(reference: Any) -> str:
    """Return a reference in a few words, for the configuration on record.

    >>> describe_reference([0.5, 2.5])
    '2 given losses, mean 1.5'
    """
    if isinstance(reference, Partition):
        return f"original's losses on {len(reference.adjacent)} adjacent samples of held-out data"
    if callable(reference):
        return "losses of a model trained without the forget data"
    losses = torch.as_tensor(reference, dtype=torch.float64)
    return f"{len(losses)} given losses, mean {float(losses.mean()):.6g}"


def reference_losses(given: Reference | None, bench: Workbench, forget: Batches) -> Tensor:
    """Return the losses that the forget set should have, in float64. Given losses keep their number and order."""
    require_reference(given)
    if isinstance(given, Partition):
        with reading(bench.model, bench.device):  # measuring must not change statistics
            losses = _as_held_out(given, bench, forget)
    elif isinstance(given, nn.Module):
        losses = _losses_of(given, bench, forget)
    elif callable(given):
        trained: Trained = given()
        if not hasattr(trained, "cost") or not hasattr(trained, "model"):
            raise UsageError(
                f"reference= is a function that returned {type(trained).__name__}, but must return a result of "
                "unlearn(). To give a model itself, write reference=model."
            )
        # Its seconds are counted already: the clock of this run did not stop.
        bench.cost.sample_forwards += trained.cost.sample_forwards
        bench.cost.sample_gradients += trained.cost.sample_gradients
        losses = _losses_of(trained.model, bench, forget)
    else:
        losses = torch.as_tensor(given, dtype=torch.float64, device=bench.device)
    require_reference(losses)  # a model may give infinite losses
    return losses.double()


def is_by_sample(given: Reference | None) -> bool:
    """Return whether a reference says what each forget sample's loss should be, not only how losses are distributed."""
    return callable(given) or isinstance(given, Partition)  # models are callable


def _as_held_out(held_out: Partition, bench: Workbench, forget: Batches) -> Tensor:
    """Return the held-out loss of each forget sample's rank among kept samples of the held-out labels."""
    rows = held_out.rows("adjacent")
    unseen = bench.losses_in_order(_batches(bench, held_out, rows))
    both = as_groups(torch.cat([bench.split.samples.labels(), held_out.samples.labels()]))
    kept = bench.split.rows(*RETAINED)
    kept = kept[torch.isin(both[kept], both[len(bench.split.samples) :][rows])]
    if not len(kept):
        return unseen
    trained = bench.losses_in_order(_batches(bench, bench.split, _some(kept))).double()
    losses = bench.losses_in_order(forget).double()
    below = torch.searchsorted(trained.sort().values, losses, right=False)
    upto = torch.searchsorted(trained.sort().values, losses, right=True)
    return unseen.double().quantile(((below + upto) / (2 * len(trained))).double())


@torch.no_grad()
def _losses_of(model: nn.Module, bench: Workbench, forget: Batches) -> Tensor:
    """Return the forget losses of a model, scaled to be as sure of kept data as the workbench's model is."""
    model = copy.deepcopy(model).to(bench.device).eval()
    if not bench.task.has_choices:
        return torch.cat([bench.losses(batch, model=model) for batch in forget.in_order()])
    kept = bench.split.rows("adjacent", "remote")
    batches = _batches(bench, bench.split, _some(kept))
    with reading(bench.model, bench.device):
        sure = _sureness(bench, bench.model, batches)
    scale = sure / _sureness(bench, model, batches).clamp(min=1e-12)
    return torch.cat(
        [
            bench.task.losses(scale * bench.logits(batch, model=model), bench.labels(batch))
            for batch in forget.in_order()
        ]
    )


def _sureness(bench: Workbench, model: nn.Module, batches: Batches) -> Tensor:
    """Return the mean distance between the two largest logits."""
    gaps = [bench.logits(batch, model=model).double().topk(2, dim=-1).values for batch in batches.in_order()]
    return torch.cat([(gap[..., 0] - gap[..., 1]).flatten() for gap in gaps]).mean()


def _some(rows: Tensor) -> Tensor:
    return rows[torch.linspace(0, len(rows) - 1, min(len(rows), ENOUGH)).round().long()]


def _batches(bench: Workbench, split: Partition, rows: Tensor) -> Batches:
    split.samples.keep(rows, bench.device)
    return Batches(split.samples, rows, size=BATCH, seed=0, device=bench.device)
