"""From the configuration of a run to its certificate: the one place that joins methods, checkpoints and bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from torch import nn

from unweave.engine import CheckpointFolder
from unweave.errors import UsageError
from unweave.evaluation import Certificate, make_certificate
from unweave.methods import Method, find_method

AfterPhase: TypeAlias = Callable[[int], nn.Module | None]


def not_kept(phase: int) -> nn.Module | None:
    """Return None: of this run nothing is kept between phases."""
    return None


def certificate_of(
    config: Mapping[str, Any], after_phase: AfterPhase = not_kept, *, method: Method | None = None
) -> Certificate | None:
    """Return what a run's bound on forget accuracy is computed from, by what its method promises.

    ``after_phase`` returns the model as it was after the phase of that number, or None. ``method`` is the run's, where
    it is known; otherwise it is found by its name in the configuration.

    There is no certificate (None) if the method is unknown or promises nothing; if it promises a bound for our own loss
    and the run had another; if the configuration lacks a setting of the bound; or if the model that it needs is not
    kept.

    >>> certificate_of({"method": "unweave", "settings": {"target": 10.0}})
    Shortfall(target=10.0)
    >>> certificate_of({"method": "two-stage", "settings": {"alpha": 0.5, "mean_sign": -1}})
    """
    try:
        promise = find_method(method or config.get("method", "")).promise
    except UsageError:  # the method of a package that is not installed here
        return None
    settings = config.get("settings")
    if promise is None or not isinstance(settings, Mapping) or ("loss" in config and not promise.any_loss):
        return None
    constants = {name: settings.get(name) for name in promise.settings}
    known = {
        name: value for name, value in constants.items() if isinstance(value, int | float) and math.isfinite(value)
    }
    if len(known) < len(constants):
        return None
    before = None if promise.after_phase is None else after_phase(promise.after_phase)
    if promise.after_phase is not None and before is None:
        return None
    return make_certificate(promise.bound, known, before)


def model_after(folder: Path, model: nn.Module, phase: int) -> nn.Module | None:
    """Fill a model with the weights that a run's folder keeps of the end of a phase; None if it keeps none."""
    tensors = dict(CheckpointFolder(folder / "checkpoints").between()).get(phase)
    if tensors is None:
        return None
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise UsageError(f"{folder} has weights between its phases that the model does not fit: {error}") from error
    return model
