"""Retraining: train again without the forget data, from the original's initial weights by the original's recipe.

Objective: min over θ of L_R(θ), R = adjacent ∪ remote, from θ_init. This is what "as if never trained" means, and
what the other methods try to save the cost of. The forget data is never read.

There is no default recipe: a benchmark brings its own, and a user passes the one that the model was trained by,
with the weights that training began from (``initial=``, for instance the pretrained checkpoint).
"""

from __future__ import annotations

from dataclasses import dataclass

from unweave.data import RETAINED
from unweave.engine import Workbench
from unweave.errors import UsageError
from unweave.methods.descent import Descent, DescentSettings
from unweave.methods.method import Method
from unweave.settings import setting


@dataclass(frozen=True, kw_only=True)
class RetrainSettings(DescentSettings):
    """The training recipe: the original's, so that nothing of it is tuned."""

    learning_rate: float = setting(1e-3, above=0, help="Step size.")
    epochs: int = setting(0, at_least=0, help="Passes over the retained data; must be given.")


class Retrain(Descent):
    """Descend on the retained data from the initial weights."""

    name = "retrain"
    guards = ()  # it begins from nothing

    def __init__(self, settings: RetrainSettings) -> None:
        super().__init__(settings, subsets=("adjacent", "remote"))
        if settings.epochs == 0:
            raise UsageError(
                "retrain needs the recipe that the model was trained by: pass epochs=, learning_rate=, optimizer=, "
                "batch_size= and what else it used."
            )

    def prepare(self, bench: Workbench) -> None:
        """Refuse to go on without initial weights."""
        if bench.initial is None:
            raise UsageError(
                "retrain needs the weights that training began from: pass initial=, a function that returns the model "
                "before training (with pretrained weights, if it had some)."
            )
        super().prepare(bench)

    def begin(self) -> None:
        """Go back to the initial weights."""
        if self.bench.initial is not None:
            self.bench.load(self.bench.initial().state_dict())


RETRAIN = Method(
    name="retrain",
    summary="Train again from the initial weights, without the forget data: the reference.",
    settings=RetrainSettings,
    phases=lambda settings: [Retrain(settings)],
    needs=(RETAINED,),
)
