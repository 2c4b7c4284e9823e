"""One run's folder and the weights in it."""

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
from unweave.runs.weights import WEIGHTS, load_weights, to_bytes

__all__ = [
    "LAST_GOOD",
    "UNFINISHED",
    "WEIGHTS",
    "OutputFolder",
    "check_folder",
    "kept_original",
    "left_in_order",
    "load_weights",
    "refuse_existing",
    "remove_folder",
    "to_bytes",
    "unfinished",
]
