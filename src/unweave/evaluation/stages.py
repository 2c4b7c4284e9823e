"""The weights that a two-stage run kept between its stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from unweave.engine import CheckpointFolder
from unweave.errors import UsageError
from unweave.evaluation.evaluate import BeforeStage2


def between_stages(folder: Path, model: nn.Module, settings: Mapping[str, Any]) -> BeforeStage2 | None:
    """Return what a two-stage run kept of the weights between its stages, in a model of the same architecture.

    None where the run was another method's, or its folder no longer has them. The model given is filled.
    """
    alpha, sign = settings.get("alpha"), settings.get("mean_sign")
    if not isinstance(alpha, int | float) or sign not in (-1, 1):
        return None
    tensors = dict(CheckpointFolder(folder / "checkpoints").between()).get(0)
    if tensors is None:
        return None
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise UsageError(f"{folder} has weights between its stages that the model does not fit: {error}") from error
    return BeforeStage2(model, alpha=float(alpha), mean_sign=sign)
