"""One run's folder and the weights in it."""

from unweave.runs import plain_page
from unweave.runs.answers_table import answers_section
from unweave.runs.model_card import model_card
from unweave.runs.output_paths import (
    UNFINISHED,
    absolute,
    drop_original,
    kept_original,
    refuse_existing,
    tidy,
    unfinished,
)
from unweave.runs.run_folder import (
    LAST_GOOD,
    OutputFolder,
    check_folder,
    left_in_order,
    remove_folder,
)
from unweave.runs.run_page import label_names, run_page
from unweave.runs.saved_model import SaveWith
from unweave.runs.weights import load_weights, to_bytes

__all__ = [
    "LAST_GOOD",
    "UNFINISHED",
    "OutputFolder",
    "SaveWith",
    "absolute",
    "answers_section",
    "check_folder",
    "drop_original",
    "kept_original",
    "label_names",
    "left_in_order",
    "load_weights",
    "model_card",
    "plain_page",
    "refuse_existing",
    "remove_folder",
    "run_page",
    "tidy",
    "to_bytes",
    "unfinished",
]
