"""Choose every method's settings fairly: the same number of trials, one objective, held-out training data."""

from unweave.lab.tuning.held_out import carve
from unweave.lab.tuning.objectives import GOALS, erase_score
from unweave.lab.tuning.search_space import Space, tuned_methods
from unweave.lab.tuning.tune import Tuning, tune

__all__ = ["GOALS", "Space", "Tuning", "carve", "erase_score", "tune", "tuned_methods"]
