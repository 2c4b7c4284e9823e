"""Choose the settings of every method fairly: as many trials each, one objective, held-out training data."""

from unweave.tuning.held_out import carve
from unweave.tuning.objectives import GOALS
from unweave.tuning.space import Space, tuned_methods
from unweave.tuning.tune import SEED, Tuning, tune

__all__ = ["GOALS", "SEED", "Space", "Tuning", "carve", "tune", "tuned_methods"]
