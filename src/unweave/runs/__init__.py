"""One run's folder and the weights in it."""

from unweave.runs import plain_page
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
from unweave.runs.run_page import label_names, run_page
from unweave.runs.saved_model import SaveWith
from unweave.runs.weights import load_weights, to_bytes

__all__ = [
    "LAST_GOOD",
    "UNFINISHED",
    "OutputFolder",
    "SaveWith",
    "check_folder",
    "kept_original",
    "label_names",
    "left_in_order",
    "load_weights",
    "model_card",
    "plain_page",
    "refuse_existing",
    "remove_folder",
    "run_page",
    "to_bytes",
    "unfinished",
]
