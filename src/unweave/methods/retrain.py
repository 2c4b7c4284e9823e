"""Retraining: train again without the forget data, from the original's initial weights by the original's recipe.

Objective: min over θ of L_R(θ), R = adjacent ∪ remote, from θ_init. This is what "as if never trained" means, and
what the other methods try to save the cost of. The forget data is never read.

There is no default recipe: a benchmark brings its own, and a user passes the one that the model was trained by,
with the weights that training began from (``initial=``, for instance the pretrained checkpoint).
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
    """Retraining by the original's recipe, so that nothing of it is tuned."""

    name = "retrain"
    summary = "Train again from the initial weights, without the forget data: the reference."
    needs = (RETAINED,)

    learning_rate: float = setting(1e-3, above=0, help="Step size.")
    epochs: int = setting(0, at_least=0, help="Passes over the retained data; must be given.")
    initial: Callable[[], nn.Module] | None = given(help="A function that returns the model as it was before training.")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_initial(self.initial)

    def phases(self) -> list[Phase]:
        """Return the one phase; refuse to train without a recipe or initial weights."""
        if self.epochs == 0:
            raise UsageError(
                "retrain needs the recipe that the model was trained by: pass epochs=, learning_rate=, optimizer=, "
                "batch_size= and what else it used."
            )
        if self.initial is None:
            raise UsageError(
                "retrain needs the weights that training began from: pass initial=, a function that returns the model "
                "before training (with pretrained weights, if it had some)."
            )
        return [TrainAgain(self, self.initial)]


def require_initial(initial: Any) -> None:
    """Refuse what is no function that returns a model."""
    if initial is not None and (isinstance(initial, nn.Module) or not callable(initial)):
        raise UsageError("initial= must be a function that returns the model as it was before training.")


class TrainAgain(Descent):
    """Descend on the retained data from the initial weights."""

    name = "retrain"
    guards = ()  # it begins from nothing

    def __init__(self, settings: Retrain, initial: Callable[[], nn.Module]) -> None:
        super().__init__(settings, subsets=("adjacent", "remote"))
        self.initial = initial

    def begin(self) -> None:
        """Go back to the initial weights."""
        self.bench.load(self.initial().state_dict())
