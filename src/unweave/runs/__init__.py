"""One run's folder and the weights in it."""

from unweave.runs.model_card import model_card
from unweave.runs.run_folder import (
    LAST_GOOD,
    UNFINISHED,
    OutputFolder,
    check_folder,
    kept_original,
    left_in_order,
    refuse_existing,
    remove_folder,
    unfinished,
)
from unweave.runs.saved_model import SaveWith
from unweave.runs.weights import load_weights, to_bytes

__all__ = [
    "LAST_GOOD",
    "UNFINISHED",
    "OutputFolder",
    "SaveWith",
    "check_folder",
    "kept_original",
    "left_in_order",
    "load_weights",
    "model_card",
    "refuse_existing",
    "remove_folder",
    "to_bytes",
    "unfinished",
]
