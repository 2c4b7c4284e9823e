"""Which retained samples are entangled with the forget set, seen in the model's own features.

The features are what the model's last linear layer receives (the penultimate layer), the distance is
Euclidean, and neighbours are found by chunked matrix products, never by an n × n matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unweave import exchange, processes
from unweave.data import Samples
from unweave.devices import pick_device, reading
from unweave.errors import UsageError
from unweave.losses import logits

FEW = 16  # samples that tell which layer the logits come from


def features(
    model: nn.Module,
    samples: Samples,
    rows: Tensor,
    *,
    batch_size: int = 256,
    device: str | torch.device | None = None,
) -> Tensor:
    """Return what the model's last linear layer receives, one row per sample, on the CPU.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> features(model, Samples((torch.randn(5, 4), torch.zeros(5, dtype=torch.long))), torch.arange(5)).shape
    torch.Size([5, 3])
    """
    where = pick_device(device)
    part = processes.part_of(len(rows))
    mine = part.rows(rows) if part else rows
    samples.keep(mine, where)
    seen: list[Tensor] = []
    order: list[tuple[nn.Module, Tensor]] = []

    def note_order(module: nn.Module, _: Any, output: Tensor) -> None:
        order.append((module, output))

    def note_input(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.append(inputs[0].flatten(1).float().cpu())

    with reading(model, where):
        linear = [m for m in model.modules() if isinstance(getattr(m, "base_layer", m), nn.Linear)]  # also adapted ones
        hooks = [module.register_forward_hook(note_order) for module in linear]
        try:
            said = logits(model, samples.batch(rows[:FEW], where).data)
        finally:
            for hook in hooks:
                hook.remove()
        heads = [module for module, output in order if _leads_to(output, said)]
        if not heads:
            raise UsageError(
                "The model has no linear layer whose outputs are its logits, so its penultimate features are "
                "unknown. Compute features yourself and pass them as features=."
            )
        handle = heads[-1].register_forward_pre_hook(note_input)
        try:
            for some in mine.split(batch_size):
                logits(model, samples.batch(some, where).data)
        finally:
            handle.remove()
    found = exchange.gathered(torch.cat(seen), part)
    if not found.isfinite().all():
        raise UsageError("The model's features hold NaN or infinite values: check its weights and the data.")
    return found


def _leads_to(output: Tensor, said: Tensor) -> bool:
    """Tell whether a layer's outputs rank the classes of every sample as the logits do, at one of its places at least.

    Logits may be scaled, bounded or normalised after it.
    """
    if output.shape[-1:] != said.shape[-1:] or output.numel() % said.numel():
        return False
    places = output.reshape(len(said), -1, said.shape[-1])
    alike = (places.argsort(dim=-1) == said.argsort(dim=-1)[:, None]).all(dim=-1)
    return bool(alike.any(dim=1).all())


def nearest(queries: Tensor, points: Tensor, k: int, *, chunk: int = 8192) -> tuple[Tensor, Tensor]:
    """Return the k nearest points of every query: squared Euclidean distances, and positions in ``points``.

    Memory grows with ``chunk``², not with queries × points.

    >>> nearest(torch.tensor([[0.0], [9.0]]), torch.tensor([[1.0], [7.0], [10.0]]), k=2)[1]
    tensor([[0, 1],
            [2, 1]])
    """
    if not isinstance(k, int) or not 1 <= k <= len(points):
        raise UsageError(f"k is {k}, but must be between 1 and the {len(points)} samples to choose from.")
    # Centred features keep the cancellation in |q|² − 2qp + |p|² small.
    centre = points.mean(dim=0)
    queries, points = queries - centre, points - centre
    rows = max(1, chunk * chunk // 4 // max(1, min(chunk, len(points))))
    distances, positions = [], []
    for some in queries.split(rows):
        best = some.new_full((len(some), k), torch.inf)
        place = torch.zeros(len(some), k, dtype=torch.long, device=some.device)
        for start in range(0, len(points), chunk):
            part = points[start : start + chunk]
            apart = torch.addmm(part.square().sum(1)[None, :], some, part.T, alpha=-2)
            near, here = apart.topk(min(k, len(part)), dim=1, largest=False)
            best, pick = torch.cat([best, near], 1).topk(k, dim=1, largest=False)
            place = torch.cat([place, here + start], 1).gather(1, pick)
        distances.append((best + some.square().sum(1, keepdim=True)).clamp(min=0))
        positions.append(place)
    return torch.cat(distances), torch.cat(positions)


def adjacency_scores(forget: Tensor, retained: Tensor, k: int) -> Tensor:
    """Return how often each retained sample is among the k nearest of a forget sample (the paper's rule)."""
    part = processes.part_of(len(forget))
    positions = exchange.gathered(nearest(part.rows(forget) if part else forget, retained, k)[1], part)
    return torch.bincount(positions.flatten(), minlength=len(retained))


@dataclass(frozen=True)
class Entanglement:
    """How far the forget set is interwoven with retained data, before anything is unlearned.

    ``per_sample`` is, for each forget sample, the share of its k nearest training samples that are retained
    and carry its label; ``score`` is the mean. ``groups`` tells which retained data is at risk: for each retained
    group its share of all neighbourhoods, and how many times more often it is met there than the average
    retained sample (``lift``).
    """

    k: int
    score: float
    per_sample: Tensor
    groups: list[dict[str, Any]]

    def __str__(self) -> str:
        lines = [
            f"Entanglement {self.score:.0%}: of the {self.k} nearest training samples of a forget sample, this share "
            "is retained data with the same label.",
            "",
            f"{'retained group':<24}{'same label':>12}{'samples':>10}{'share':>9}{'× average':>11}",
        ]
        for group in self.groups:
            same = "yes" if group["same_label"] else "no"
            lines.append(
                f"{group['group'][:23]:<24}{same:>12}{group['samples']:>10}{group['share']:>9.1%}{group['lift']:>11.1f}"
            )
        return "\n".join(lines)


def entanglement(
    found: Tensor,
    forget: np.ndarray[Any, Any],
    labels: Tensor,
    *,
    k: int,
    groups: Sequence[Any] | Tensor | np.ndarray[Any, Any],
    names: Sequence[str] | None,
) -> Entanglement:
    """Measure entanglement from features, labels and groups of the whole training data."""
    group = np.asarray(groups)
    if len(group) != len(labels):
        raise UsageError(f"groups has {len(group)} entries, but the data set has {len(labels)} samples.")
    is_forget = np.zeros(len(labels), dtype=bool)
    is_forget[forget] = True
    if k < 1:
        raise UsageError(f"k is {k}, but every sample needs one neighbour at least.")
    if names is not None and group.dtype.kind not in "iu":
        raise UsageError(f"names are for groups that are numbers; these are {group.dtype}. Leave names out.")
    if names is not None and len(names) <= int(group.max()):
        raise UsageError(f"names has {len(names)} entries, but there is a group {int(group.max())}.")
    k = min(k, len(labels) - 1)
    # One more than k, because a sample's nearest neighbour is itself.
    positions = nearest(found[torch.as_tensor(forget)], found, k + 1)[1].numpy()
    own = positions == forget[:, None]
    own[~own.any(axis=1), -1] = True  # duplicates can push the sample itself out of its own list
    around = positions[~own].reshape(len(forget), k)
    label = labels.numpy()
    kept = ~is_forget[around]
    entangled = kept & (label[around] == label[forget][:, None])
    rows: list[dict[str, Any]] = []
    forget_labels = set(label[forget].tolist())
    for value in np.unique(group[~is_forget]):
        members = (group == value) & ~is_forget
        share = float((kept & (group[around] == value)).mean())
        rows.append(
            {
                "group": str(names[int(value)]) if names is not None else str(value),
                "same_label": bool(forget_labels & set(label[members].tolist())),
                "samples": int(members.sum()),
                "share": share,
                "lift": share / max(float(kept.mean()), 1e-12) / float(members.sum() / (~is_forget).sum()),
            }
        )
    rows.sort(key=lambda row: -row["share"])
    per_sample = torch.as_tensor(entangled.mean(axis=1))
    return Entanglement(k=k, score=float(per_sample.mean()), per_sample=per_sample, groups=rows)
