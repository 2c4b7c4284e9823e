"""Retraining: train again without the forget data, from the original's initial weights and by its recipe.

Objective: min over θ of L_R(θ), R = adjacent ∪ remote, from θ_init. This is what "as if never trained" means. The other
methods try to save its cost. The forget data is never read.

There is no default recipe. A benchmark brings its own. A user passes the recipe that the model was trained by, and the
weights that training began from (``initial=``), for instance the pretrained checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from unweave.data import RETAINED
from unweave.engine import Phase
from unweave.errors import UsageError
from unweave.methods.descent import Descent, DescentSettings
from unweave.methods.method import Method
from unweave.settings import given, setting


@dataclass(frozen=True, kw_only=True)
class Retrain(DescentSettings, Method):
    """Retraining: train again without the forget data, by the recipe that the model was trained by.

    ``epochs`` and ``initial`` must be given; ``initial`` is a function that returns the model as it was before
    training. ``unweave methods retrain`` lists the settings. They are the original's recipe, so none of them is tuned.

    Raises:
        UsageError: If ``initial`` is not a function; from `phases`, if ``epochs`` or ``initial`` is missing.

    Example:
        >>> import torch
        >>> import unweave as uw
        >>> data = (torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> split = uw.Split(data, forget=[0], adjacent=[1, 2])
        >>> method = uw.Retrain(epochs=3, initial=lambda: torch.nn.Linear(6, 2))
        >>> uw.unlearn(torch.nn.Linear(6, 2), split, method).cost.sample_gradients
        15
    """

    name = "retrain"
    summary = "Train again from the initial weights, without the forget data: the reference for other methods."
    needs = (RETAINED,)

    learning_rate: float = setting(1e-3, above=0, help="Step size.")
    epochs: int = setting(0, at_least=0, help="Passes over the retained data. Required.")
    initial: Callable[[], nn.Module] | None = given(help="A function that returns the model as it was before training.")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_initial(self.initial)

    def phases(self) -> list[Phase]:
        """Return the one phase. Raise if the recipe or the initial weights are missing."""
        if self.epochs == 0:
            raise UsageError(
                "retrain needs the recipe that the model was trained by: pass epochs=, learning_rate=, optimizer=, "
                "batch_size= and the other settings that it used."
            )
        if self.initial is None:
            raise UsageError(
                "retrain needs the weights that training began from: pass initial=, a function that returns the model "
                "before training (with pretrained weights, if it had some)."
            )
        return [TrainAgain(self, self.initial)]


def require_initial(initial: Any) -> None:
    """Raise if this cannot be a function that returns a model."""
    if initial is not None and (isinstance(initial, nn.Module) or not callable(initial)):
        raise UsageError("initial= must be a function that returns the model as it was before training.")


class TrainAgain(Descent):
    """Descend on the retained data from the initial weights."""

    name = "retrain"
    guards = ()  # initial weights have no accuracy to protect

    def __init__(self, settings: Retrain, initial: Callable[[], nn.Module]) -> None:
        super().__init__(settings, subsets=("adjacent", "remote"))
        self.initial = initial

    def begin(self) -> None:
        """Go back to the initial weights."""
        self.bench.load(self.initial().state_dict())
