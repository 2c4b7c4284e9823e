"""Entanglement: how strongly the forget set mixes with retained data in the features of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unweave.data import nearest
from unweave.errors import UsageError, as_whole, require_names, short


@dataclass(frozen=True)
class Entanglement:
    """How strongly the forget set mixes with retained data, before unlearning.

    ``per_sample`` gives, for each forget sample, the share of its k nearest training samples that are retained
    and have its label. ``score`` is the mean. ``groups`` shows which retained data is at risk: for each retained
    group its share of all neighbourhoods, and how many times more often its samples occur there than the average
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
    try:
        group = np.asarray(groups)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"groups must be a list with one entry per sample, not {short(groups)}.") from error
    if group.ndim != 1:
        raise UsageError(f"groups must be a list with one entry per sample, but has the shape {group.shape}.")
    if len(group) != len(labels):
        raise UsageError(f"groups has {len(group)} entries, but the data set has {len(labels)} samples.")
    is_forget = np.zeros(len(labels), dtype=bool)
    is_forget[forget] = True
    k = as_whole("k", k, at_least=1)
    if names is not None:
        require_names(names)
    if names is not None and group.dtype.kind not in "iu":
        raise UsageError(f"names needs groups that are whole numbers, but these are {group.dtype}. Leave names out.")
    if names is not None and len(names) <= int(group.max()):
        raise UsageError(f"names has {len(names)} entries, but the highest group is {int(group.max())}.")
    k = min(k, len(labels) - 1)
    # k + 1, because the nearest neighbour of a sample is the sample itself.
    positions = nearest(found[torch.as_tensor(forget)], found, k + 1)[1].numpy()
    own = positions == forget[:, None]
    own[~own.any(axis=1), -1] = True  # with duplicates the sample itself may be missing from its list
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
